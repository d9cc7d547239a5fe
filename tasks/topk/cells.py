"""From a cell's name and the parameters to the objects of the topk library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from sfumato import datasets
from sfumato.dpsgd import ParameterLayout, get_engine
from sfumato.errors import SfumatoError
from sfumato.guarantee import TuningCost
from sfumato.records import Value
from sfumato.rng import Streams
from sfumato.topk.models import build, initialize
from sfumato.topk.plan import METHODS, CalibratedPlan, Method, TwoPhasePlan
from sfumato.topk.probe import Probe
from sfumato.topk.state import State
from sfumato.topk.training import Problem
from tasks.command import Call, number, progress, required
from tasks.data_cells import RELEASE, dataset_name


def method_name(call: Call) -> Method:
    """The cell's method, checked."""
    name = required(call.options, "method")
    if name not in METHODS:
        raise SfumatoError(f"--method is {name!r}; allowed are {', '.join(METHODS)}.")
    return name


def plan_of(call: Call, method: Method) -> TwoPhasePlan:
    """The plan of a method on the cell's data set."""
    topk, name = call.params.topk, dataset_name(call)
    clips, rates = topk.train.clip_norm.get(name, {}), topk.train.learning_rate.get(name, {})
    missing = (
        "clip_norm"
        if method not in ("non_private", *clips)
        else "learning_rate"
        if method not in rates
        else None
    )
    if missing:
        raise SfumatoError(
            f"topk.train.{missing}.{name} has no entry for {method!r}; allowed is a method that has one."
        )
    clip_norm = 1.0 if method == "non_private" else clips[method]  # without privacy nothing is clipped
    return replace(
        _common_plan(call), method=method, clip_norm_train=clip_norm, learning_rate_train=rates[method]
    )


def _common_plan(call: Call) -> TwoPhasePlan:
    """What the plans of all methods on the cell's data set share; clip norm and rate of the second phase are left."""
    topk, name = call.params.topk, dataset_name(call)
    if name not in topk.warmup.clip_norm or name not in topk.warmup.learning_rate:
        raise SfumatoError(f"topk.warmup has no entry for {name!r}; allowed is a data set that has one.")
    return TwoPhasePlan(
        active_ratio=topk.train.active_ratio,
        warmup_budget_share=topk.warmup.budget_share,
        clip_norm_warmup=topk.warmup.clip_norm[name],
        expected_batch_size=topk.sampling.expected_batch_size[name],
        warmup_steps=topk.warmup.steps,
        train_steps=topk.train.steps,
        learning_rate_warmup=topk.warmup.learning_rate[name],
        optimizer=topk.optimizer.name,
        momentum=topk.optimizer.momentum,
        score=topk.train.score,
        support=topk.train.support,
        reselect_every=topk.train.reselect_every,
        reselect_memory=topk.train.reselect_memory,
    )


def calibrated_warmup_of(call: Call) -> CalibratedPlan:
    """The plan whose first phase is the warm-up; its noise does not depend on the second phase."""
    n = datasets.SPECS[dataset_name(call)].n_train
    return _common_plan(call).calibrate(number(call.options, "epsilon"), call.params.privacy.delta, n)


def calibrated_of(call: Call, method: Method) -> CalibratedPlan:
    """The cell's plan, calibrated to its epsilon and the data set's declared public size."""
    epsilon = None if method == "non_private" else number(call.options, "epsilon")
    n = datasets.SPECS[dataset_name(call)].n_train
    return plan_of(call, method).calibrate(epsilon, call.params.privacy.delta, n)


def tuning_of(call: Call) -> TuningCost:
    """What choosing the hyper-parameters cost on the cell's data set, as the parameters declare it."""
    tuning = call.params.topk.train.tuning
    trials = tuning.private_trials[dataset_name(call)]
    if trials > 0:
        return TuningCost(trials, "private_data")
    return TuningCost(0, "public_data" if tuning.chosen_on == "public data" else "not_tuned")


def streams_of(call: Call) -> dict[str, Streams]:
    """The streams of every fit of the cell, by the seed's text; one unseeded fit in release mode."""
    seeds = call.params.topk.grid.seeds
    if call.params.privacy.mode == "release" or seeds is None:
        return {RELEASE: Streams(None, "release")}
    return {str(seed): Streams(seed) for seed in seeds}


def problem_of(call: Call, data: datasets.Dataset) -> Problem:
    """The module, rows and engine of the cell's data set; its weights are drawn by ``start_weights``."""
    name, topk = dataset_name(call), call.params.topk
    spec = datasets.SPECS[name]
    module = build(topk.model[name], spec.example_shape, spec.classes, Streams(0).stream("shape"))
    count = min(topk.train.probe_examples, len(data.validation.y))
    probe = Probe(
        torch.from_numpy(data.inputs("validation")[:count]), torch.from_numpy(data.validation.y[:count])
    )
    release = call.params.privacy.mode == "release"  # there, nothing un-noised is kept beside the model
    return Problem(
        module,
        torch.from_numpy(data.inputs("train")),
        torch.from_numpy(data.train.y),
        engine=get_engine(topk.optimizer.engine, micro_batch=topk.optimizer.micro_batch),
        probe=None if release else probe,
    )


def start_weights(problem: Problem, streams: Streams) -> None:
    """Draw a fit's initial weights; the same for every method of a seed."""
    initialize(problem.module, streams.stream("init"))


def observer(call: Call, label: str, total: int, save: Callable[[State], None]) -> Callable[[State], None]:
    """What to do after each step of a fit: tell, and save when it is time."""

    def observe(state: State) -> None:
        progress(state.step, total, f"{call.cell} seed {label}")
        save(state)

    return observe


def density_values(state: State, layout: ParameterLayout) -> dict[str, Value]:
    """The support's density in every parameter, as metrics."""
    return {f"density/{_leaf(name)}": value for name, value in state.support.density(layout).items()}


def _leaf(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name.lower())


def warm_state(path: Path, label: str) -> State:
    """The state that the warm-up stage saved for a seed.

    Raises:
        SfumatoError: if the file has no such seed.
    """
    from sfumato import artifacts

    prefix = f"seed{label}/"
    tensors = {
        k.removeprefix(prefix): v for k, v in artifacts.read_tensors(path).items() if k.startswith(prefix)
    }
    text = {
        k.removeprefix(prefix): v for k, v in artifacts.read_metadata(path).items() if k.startswith(prefix)
    }
    return State.from_tensors(tensors, text)
