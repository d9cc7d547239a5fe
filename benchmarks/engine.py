"""What a private step takes: python -m benchmarks.engine [--json] [--models mlp,cnn28,cnn32] [--batch B] [--rounds R].

One thread, process seconds of one whole step on random inputs: forward, backward, and for private engines clip, sum
and noise, then the update by SGD with momentum. All engines of a model run in turns of about 0.2 s or one step, so that a slow
moment of the machine hits all alike; a ratio is the median over the rounds of the ratio within a round.

``ratio_tuned_nonprivate`` compares with a non-private step that is made as fast as we know how: images and filters
with channels last, micro-batches of 32 (the whole batch for ``mlp``). ``nonprivate_naive`` is one batch in torch's own
layout. ``speedup_opacus`` is against Opacus's hooks on the whole batch, and ``speedup_opacus_tuned`` against the same with
channels last and physical batches of 32. Opacus 1.6 takes the memory of images with channels last for another layout, so
that its per-example gradients of convolutions are wrong there, without a word: the tuned one copies what a convolution
has read into torch's own layout first, and is then right, and still the fastest of what we tried. For ``mlp`` both
are against its ghost clipping, since its hooks form gradients there that nobody needs (their rows are printed all the same).

``peak_mb`` is the peak memory of a process of its own that loads the model, makes two steps with one engine and imports
nothing but what that needs. What the imports alone take has rows of its own: torch alone, the planned engine (torch and
Numba, no Opacus) and Opacus. ``--without-memory`` leaves them out.
"""

from __future__ import annotations

from benchmarks.common import show, times_in_turns  # isort: skip  (fixes the thread count before torch loads)

import argparse
import copy
import importlib
import itertools
import resource
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

CLIP_NORM, LEARNING_RATE, MOMENTUM, MICRO_BATCH = 1.0, 0.01, 0.9, 32
SHAPES = {"mlp": (784,), "cnn28": (1, 28, 28), "cnn32": (3, 32, 32)}
CONTENDERS = [
    ("nonprivate_tuned", "full", 1.0),
    ("nonprivate_naive", "full", 1.0),
    ("opacus", "full", 1.0),
    ("opacus_tuned", "full", 1.0),
    ("opacus_ghost", "full", 1.0),
    ("planned", "full", 1.0),
    ("planned", "random", 0.01),
    ("planned", "random", 0.05),
    ("planned", "random", 0.2),
    ("planned", "random", 0.5),
    ("planned", "rows", 0.05),
    ("planned_torch", "full", 1.0),
    ("planned_torch", "random", 0.05),
    ("functional", "full", 1.0),
    ("functional", "random", 0.05),
]
IMPORTS = {
    "torch": ("torch",),
    "planned": ("torch", "sfumato.dpsgd.planned", "sfumato.dpsgd.kernels"),
    "opacus": ("torch", "opacus"),
}

TURN = 0.2
"""Seconds that a turn takes, or the time of one step if that is longer: training repeats its steps, so that short ones
find their own data in the caches."""
LAYERS = (nn.Sequential, nn.Linear, nn.Conv2d, nn.MaxPool2d, nn.Flatten, nn.Tanh)
"""What the models of the benchmark are made of."""

Step = Callable[[], None]


@dataclass(frozen=True)
class Case:
    """A model, a batch for it and the noise; ``indices`` are the active coordinates."""

    model: nn.Module
    inputs: torch.Tensor
    targets: torch.Tensor
    indices: torch.Tensor
    noise_multiplier: float = 1.0


def channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """Images and filters with channels last in memory, also where torch takes the two formats for the same."""
    if tensor.ndim != 4:
        return tensor
    return torch.empty(tensor.shape, memory_format=torch.channels_last).copy_(tensor)


def in_channels_last(model: nn.Module) -> nn.Module:
    for parameter in model.parameters():
        parameter.data = channels_last(parameter.data)
    return model


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)


def nonprivate(case: Case, tuned: bool) -> Step:
    """Plain SGD."""
    model, optimizer, count = case.model, sgd(case.model), len(case.inputs)
    images = case.inputs.ndim == 4
    size, arranged = count, torch.Tensor.contiguous
    if tuned:
        in_channels_last(model)
        size, arranged = (MICRO_BATCH if images else count), channels_last

    def run() -> None:
        optimizer.zero_grad()
        for start in range(0, count, size):
            outputs = model(arranged(case.inputs[start : start + size]))
            losses = functional.cross_entropy(outputs, case.targets[start : start + size], reduction="sum")
            (losses / count).backward()
        optimizer.step()

    return run


def opacus_hooks(case: Case, tuned: bool) -> Step:
    """GradSampleModule and DPOptimizer; physical batches as Opacus's BatchMemoryManager makes them, if tuned."""
    from opacus import GradSampleModule
    from opacus.grad_sample.conv import compute_conv_grad_sample
    from opacus.optimizers import DPOptimizer

    def in_torch_s_own_layout(layer: nn.Conv2d, read: list[torch.Tensor], gradients: torch.Tensor) -> Any:
        return compute_conv_grad_sample(layer, [part.contiguous() for part in read], gradients)

    class ReadsChannelsLast(GradSampleModule):
        GRAD_SAMPLERS = GradSampleModule.GRAD_SAMPLERS | {nn.Conv2d: in_torch_s_own_layout}

    count = len(case.inputs)
    size, arranged = (MICRO_BATCH, channels_last) if tuned else (count, torch.Tensor.contiguous)
    model = ReadsChannelsLast(in_channels_last(case.model)) if tuned else GradSampleModule(case.model)
    optimizer = DPOptimizer(
        sgd(model),
        noise_multiplier=case.noise_multiplier,
        max_grad_norm=CLIP_NORM,
        expected_batch_size=count,
        generator=torch.Generator().manual_seed(0),
    )

    def run() -> None:
        for start in range(0, count, size):
            optimizer.zero_grad()
            optimizer.signal_skip_step(do_skip=start + size < count)
            outputs = model(arranged(case.inputs[start : start + size]))
            functional.cross_entropy(outputs, case.targets[start : start + size]).backward()
            optimizer.step()

    return run


def opacus_ghost(case: Case) -> Step:
    """Ghost clipping: two backward passes."""
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    model = GradSampleModuleFastGradientClipping(
        case.model, loss_reduction="mean", max_grad_norm=CLIP_NORM, use_ghost_clipping=True
    )
    optimizer = DPOptimizerFastGradientClipping(
        sgd(model),
        noise_multiplier=case.noise_multiplier,
        max_grad_norm=CLIP_NORM,
        expected_batch_size=len(case.inputs),
        generator=torch.Generator().manual_seed(0),
    )
    criterion = DPLossFastGradientClipping(model, optimizer, nn.CrossEntropyLoss())

    def run() -> None:
        optimizer.zero_grad()
        criterion(model(case.inputs), case.targets).backward()
        optimizer.step()

    return run


def ours(case: Case, name: str) -> Step:
    """One of the library's engines, its noise and its SGD."""
    from sfumato.dpsgd import ParameterLayout, Sgd, Support, get_engine, privatize
    from sfumato.rng import Streams

    engine = get_engine("planned", kernels="torch") if name == "planned_torch" else get_engine(name)
    layout, optimizer, streams = ParameterLayout.of(case.model), Sgd(LEARNING_RATE, MOMENTUM), Streams(0)
    support, batch, count = Support(case.indices, layout.size), (case.inputs, case.targets), len(case.inputs)
    state, steps = optimizer.init(layout.size), itertools.count()

    loss = nn.CrossEntropyLoss(reduction="none")

    def run() -> None:
        clipped = engine.clipped_sum(case.model, loss, batch, support, CLIP_NORM)
        stream = streams.stream("noise", next(steps))
        gradient = privatize(clipped, CLIP_NORM, case.noise_multiplier, count, stream)
        layout.add(case.model, support, optimizer.advance(state, gradient, support))

    return run


def prepared(engine: str, case: Case) -> Step:
    """A step of that engine, which trains the case's model."""
    if engine.startswith("nonprivate"):
        return nonprivate(case, engine == "nonprivate_tuned")
    if engine in ("opacus", "opacus_tuned"):
        return opacus_hooks(case, engine == "opacus_tuned")
    return opacus_ghost(case) if engine == "opacus_ghost" else ours(case, engine)


def build_model(name: str) -> nn.Module:
    """784-512-256-10 with tanh, or one of the networks of ``sfumato.topk``."""
    from sfumato.rng import Streams
    from sfumato.topk.models import build, initialize

    stream = Streams(0).stream("init")
    if name != "mlp":
        return build(name, SHAPES[name], 10, stream)
    model = nn.Sequential(nn.Linear(784, 512), nn.Tanh(), nn.Linear(512, 256), nn.Tanh(), nn.Linear(256, 10))
    initialize(model, stream)
    return model


def build_case(name: str, batch: int, support: str, ratio: float, noise_multiplier: float = 1.0) -> Case:
    """A model of its own, random inputs and a support drawn at random."""
    from sfumato.dpsgd import ParameterLayout
    from sfumato.rng import Streams
    from sfumato.topk.supports import random_support

    model, generator = build_model(name), torch.Generator().manual_seed(0)
    inputs = torch.randn(batch, *SHAPES[name], generator=generator)
    targets = torch.randint(0, 10, (batch,), generator=generator)
    layout, indices = ParameterLayout.of(model), torch.arange(0)
    if support == "full":
        indices = torch.arange(layout.size)
    else:
        shape = "rows" if support == "rows" else "global"
        indices = random_support(ratio, shape, layout, Streams(0).stream("support")).indices
    return Case(model, inputs, targets, indices, noise_multiplier)


def measured(name: str, batch: int, rounds: int, memory: bool) -> list[dict[str, Any]]:
    """The rows of one model."""
    cases = {contender: build_case(name, batch, *contender[1:]) for contender in CONTENDERS}
    stored = {contender: copy.deepcopy(case) for contender, case in cases.items()} if memory else {}
    keys = {"/".join(map(str, contender)): contender for contender in CONTENDERS}
    calls = {key: prepared(contender[0], cases[contender]) for key, contender in keys.items()}
    times = {keys[key]: found for key, found in times_in_turns(calls, rounds, TURN).items()}
    hooks, tuned = ("opacus_ghost", "opacus_ghost") if name == "mlp" else ("opacus", "opacus_tuned")

    def against(engine: str, seconds: Sequence[float]) -> float:
        """The median over the rounds of that engine's time over the given ones."""
        base = times[(engine, "full", 1.0)]
        return statistics.median(one / other for one, other in zip(base, seconds, strict=True))

    rows = list[dict[str, Any]]()
    for contender, seconds in times.items():
        engine, support, _ = contender
        case = cases[contender]
        d = sum(parameter.numel() for parameter in case.model.parameters())
        rows.append(
            {
                "model": name,
                "engine": engine,
                "support": support,
                "active_ratio": len(case.indices) / d,
                "seconds": statistics.median(seconds),
                "ratio_tuned_nonprivate": 1 / against("nonprivate_tuned", seconds),
                "speedup_opacus": against(hooks, seconds),
                "speedup_opacus_tuned": against(tuned, seconds),
                "peak_mb": peak_mb(engine, stored[contender]) if memory else None,
            }
        )
    return rows


def peak_mb(engine: str, case: Case) -> float:
    """Peak memory of a process that makes two steps with that engine."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.pt"
        # the process would import the topk room to build a model; a file of torch's own classes spares it that
        torch.save((case.model, case.inputs, case.targets, case.indices, case.noise_multiplier), path)
        return in_a_process_of_its_own("--peak-of", engine, "--case", str(path))


def in_a_process_of_its_own(*words: str) -> float:
    command = [sys.executable, "-m", "benchmarks.engine", *words]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def import_rows() -> list[dict[str, Any]]:
    """What the imports alone take."""
    blank = dict.fromkeys(
        ("active_ratio", "seconds", "ratio_tuned_nonprivate", "speedup_opacus", "speedup_opacus_tuned")
    )
    return [
        {"model": "none", "engine": "imports", "support": name, **blank}
        | {"peak_mb": in_a_process_of_its_own("--peak-of", f"imports,{name}")}
        for name in IMPORTS
    ]


def print_peak(engine: str, path: str | None) -> None:
    """What the process of its own does."""
    if path is None:
        for module in IMPORTS[engine.partition(",")[2]]:
            importlib.import_module(module)
    else:
        # the reader that builds nothing but what is listed here
        with torch.serialization.safe_globals([set, *LAYERS]):
            run = prepared(engine, Case(*torch.load(path, weights_only=True)))
        for _ in range(2):
            run()
    sys.stdout.write(f"{own_peak_mb():.1f}\n")


def own_peak_mb() -> float:
    """Peak memory of this process; Linux's ``ru_maxrss`` would hold that of the process which started it, too."""
    status = Path("/proc/self/status")
    if status.exists():
        found = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(found.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        1024**2 if sys.platform == "darwin" else 1024
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--models", default=",".join(SHAPES), help="some of mlp, cnn28 and cnn32, with commas"
    )
    parser.add_argument("--batch", type=int, default=512, help="examples in a step")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds")
    parser.add_argument("--without-memory", action="store_true", help="start no processes, print no peaks")
    parser.add_argument("--peak-of", help=argparse.SUPPRESS)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak_of:
        print_peak(options.peak_of, options.case)
        return
    rows, memory = list[dict[str, Any]](), not options.without_memory
    for name in options.models.split(","):
        rows += measured(name, options.batch, options.rounds, memory)
    rows += import_rows() if memory else []
    for row in rows:
        row |= {name: round(value, 4) for name, value in row.items() if isinstance(value, float)}
        if not options.json:
            row |= {name: "" for name, value in row.items() if value is None}
    show(rows)


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # Opacus warns of its hooks at each step
    main()
