"""From a cell's name and the parameters to the objects of the modulated library."""

from __future__ import annotations

from sfumato import datasets
from sfumato.modulated.plan import Domain, Modulation
from sfumato.modulated.setting import Problem, Setting
from sfumato.rng import Streams
from tasks.command import Call
from tasks.data_cells import RELEASE, prepared_path, regression_name

TUNING_SEED = 1_000_000
"""The first seed of the fits that choose step sizes; no fit that is reported has one of them."""


def domain_of(call: Call) -> Domain:
    """The public bounds of the cell's data set: features within the radius, labels within 1."""
    spec = datasets.get_regression_spec(regression_name(call))
    share = call.params.modulated.client.radius_share
    return Domain(len(spec.features), share * spec.radius, 1.0)


def setting_of(call: Call) -> Setting:
    """The public numbers of the comparison, in the units of the cell's domain."""
    client, train = call.params.modulated.client, call.params.modulated.train
    radius = domain_of(call).radius
    return Setting(
        Modulation(
            shrinkage=client.shrinkage,
            amplitude=client.amplitude * radius,
            frequency=client.frequency / radius,
            directions=client.directions,
        ),
        delta=call.params.privacy.delta,
        rule=client.rule,
        labels=client.labels,
        label_weight=client.label_weight,
        rounds=train.rounds,
        server_steps=train.server_steps,
        step_sizes=train.step_sizes,
        step_decay=train.step_decay,
        clip_norms=train.clip_norms,
        coefficient_bound=train.coefficient_bound,
        strength=train.strength,
        confidence=train.confidence,
    )


def problem_of(call: Call) -> Problem:
    """The cell's data; clients compute in float32, as a phone would send."""
    import numpy as np

    data = datasets.load(prepared_path(call), datasets.RegressionData)
    pairs = [
        (part.x.astype(np.float32) if split == "train" else part.x, part.y)
        for split, part in (("train", data.train), ("validation", data.validation), ("test", data.test))
    ]
    return Problem.of(domain_of(call), pairs[0], pairs[1], pairs[2])


def streams_of(call: Call) -> dict[str, Streams]:
    """The streams of every fit, by the seed's text; one unseeded fit in release mode."""
    seeds = call.params.modulated.grid.seeds
    if call.params.privacy.mode == "release" or seeds is None:
        return {RELEASE: Streams(None, "release")}
    return {str(seed): Streams(seed) for seed in seeds}
