"""Seconds per step of each engine, beside plain SGD on the same batch: python -m benchmarks.engines [--json]."""

from __future__ import annotations

from benchmarks.common import alternated, show  # isort: skip  (fixes the thread count before torch loads)

import torch

from sfumato.dpsgd import FastPooling, Support, get_engine
from sfumato.rng import Streams
from sfumato.topk.models import build
from sfumato.topk.training import cross_entropy

CASES = [("cnn28", (1, 28, 28), 256), ("cnn32", (3, 32, 32), 64), ("mlp", (784,), 256)]
RATIOS = [1.0, 0.5, 0.1, 0.01]


def measure(name: str, shape: tuple[int, ...], batch: int) -> list[dict[str, object]]:
    streams = Streams(0)
    model = build(name, shape, 10, streams.stream("init"))
    inputs = torch.from_numpy(streams.stream("x").standard_normal((batch, *shape))).float()
    targets = torch.from_numpy(streams.stream("y").integers(0, 10, batch))
    size = sum(parameter.numel() for parameter in model.parameters())

    def plain(fast: bool) -> None:
        if fast:
            with FastPooling():
                loss = cross_entropy(model(inputs), targets).sum()
        else:
            loss = cross_entropy(model(inputs), targets).sum()
        torch.autograd.grad(loss, list(model.parameters()))

    calls = {"non-private, naive": lambda: plain(False), "non-private, tuned": lambda: plain(True)}
    for ratio in RATIOS:
        chosen = streams.stream("support").permutation(size)[: max(1, int(ratio * size))]
        support = Support.of(chosen, size)
        for engine in ("functional", "opacus"):
            made = get_engine(engine)
            calls[f"{engine}, ratio {ratio:g}"] = lambda made=made, support=support: made.clipped_sum(
                model, cross_entropy, (inputs, targets), support, 1.0
            )
    seconds = alternated(calls, rounds=5)
    base = seconds["non-private, tuned"]
    return [
        {
            "model": name,
            "batch": batch,
            "step": step,
            "seconds": value,
            "over_tuned_non_private": value / base,
        }
        for step, value in seconds.items()
    ]


if __name__ == "__main__":
    torch.set_num_threads(1)
    show([row for case in CASES for row in measure(*case)])
