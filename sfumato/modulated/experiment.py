"""One cell of the comparison: a data set and an epsilon, every method, fit by fit.

>>> from sfumato.rng import Streams
>>> x = np.linspace(-0.9, 0.9, 60).reshape(30, 2) * [1.0, -0.5]
>>> y = 0.1 + x @ np.array([0.4, 0.2])
>>> problem = Problem.of(Domain(2, 1.0), (x, y), (x, y), (x, y))
>>> setting = Setting(Modulation(amplitude=0.5), rounds=3)
>>> result = run("one_shot", problem, setting, 20.0, Streams(0))
>>> sorted(result.values)[:3], result.fit.ledger.steps
(['bound_reached', 'coefficient_error', 'covered'], 1)

What is compared is error on held-out rows, relative to predicting the training mean of the labels: 1 is worth nothing.
Test rows lie outside of every guarantee; so do the validation rows on which step sizes are chosen, and each such fit
is a further look at the private data that statements count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from sfumato.ledger import EventLedger
from sfumato.modulated.aggregate import AggregateData
from sfumato.modulated.baselines import (
    CalibratedLocalSgd,
    LocalSgdPlan,
    local_sgd,
)
from sfumato.modulated.iterative import Fit, Release, Steps, iterate, one_release, release_of
from sfumato.modulated.methods import Method, get_method
from sfumato.modulated.plan import CalibratedModulation, Domain, ModulatedPlan, Modulation
from sfumato.modulated.server import (
    Moments,
    NormalEquations,
    Stabilization,
    Vector,
    descend,
    matrix_noise,
    project,
    solve,
)
from sfumato.modulated.setting import Calibrated, Problem, Setting, Tuned, Values
from sfumato.modulated.sufficient_statistics import (
    CalibratedSufficientStatistics,
    SufficientStatisticsPlan,
    ada_ssp,
)
from sfumato.modulated.theory import confidence_interval
from sfumato.rng import Streams


@dataclass(frozen=True, eq=False)
class Result:
    """A fit and what was measured of it."""

    fit: Fit
    values: Values


def modulation_of(method: Method, setting: Setting) -> Modulation:
    """The modulation that a method uses; its number of directions matters only with an amplitude."""
    if not method.modulated:
        return replace(setting.modulation, amplitude=0.0)
    return replace(setting.modulation, frequency=setting.modulation.frequency * method.frequency_factor)


def plan_of(method: Method, domain: Domain, setting: Setting) -> ModulatedPlan:
    """The modulated protocol of a method that has one."""
    return ModulatedPlan(
        domain,
        modulation_of(method, setting),
        calibration=method.calibration,
        rule=setting.rule,
        labels=setting.labels,
        label_weight=setting.label_weight,
        rounds=1 if method.one_release else setting.rounds,
        regime=method.regime,
    )


def calibrated_of(
    method: Method, domain: Domain, setting: Setting, epsilon: float | None, tuned: Tuned
) -> Calibrated:
    """A private method's plan with its noise: the one that fits run, accounting prices and statements print.

    Args:
        method: a private one.
        domain: the public bounds.
        setting: the public numbers.
        epsilon: one client's budget; None for no noise.
        tuned: step size and clip norm.
    """
    if method.kind == "ada_ssp":
        plan = SufficientStatisticsPlan(domain, setting.rule, coefficient_bound=setting.coefficient_bound)
        return plan.calibrate(epsilon, setting.delta)
    if method.kind == "local_sgd":
        share = setting.clip_norms[0] if tuned.clip_norm is None else tuned.clip_norm
        clip_norm = share * math.sqrt(1.0 + domain.radius**2) * domain.label_bound
        sgd = LocalSgdPlan(domain, clip_norm, setting.rounds, method.regime, setting.rule)
        return sgd.calibrate(epsilon, setting.delta)
    return plan_of(method, domain, setting).calibrate(epsilon, setting.delta)


def aggregate_release(problem: Problem, calibrated: CalibratedModulation, streams: Streams) -> Release:
    """A release by the aggregate simulator; for tuning grids and sweeps."""
    known: dict[tuple[int | None, int | None], AggregateData] = {}

    def release(clients: slice, directions: Vector, round_number: int) -> Moments:
        key = (clients.start, clients.stop)
        if key not in known:
            features, labels = (part[clients] for part in problem.train)
            known[key] = AggregateData.of(np.asarray(features, np.float64), labels, problem.domain)
        phases = known[key].phases(directions.shape[1], streams.stream("phases", round_number))
        return known[key].moments(calibrated, directions, phases, streams.stream("noise", round_number))

    return release


def tune(
    name: str, problem: Problem, setting: Setting, epsilon: float | None, repeats: Sequence[Streams]
) -> Tuned:
    """Choose step size and clip norm on the validation rows, by the mean error of a few fits per choice.

    Not covered by any guarantee of the fit that follows: each trial is a look at the private data. Trials use
    aggregate noise, which is distributed as the clients'.

    Args:
        name: of the method.
        problem: the data.
        setting: with the choices.
        epsilon: of each trial, as of the fit.
        repeats: the randomness of each fit per choice, other than that of any fit that is reported.
    """
    method = get_method(name)
    clips: Sequence[float | None] = setting.clip_norms if method.kind == "local_sgd" else (None,)
    choices = list(product(setting.step_sizes, clips)) if method.tunable else [(setting.step_sizes[0], None)]
    if len(choices) == 1:
        return Tuned(choices[0][0], choices[0][1], 0)
    table: list[tuple[float, float | None, float]] = []
    trials = len(choices) * len(repeats)
    for size, clip in choices:
        trial = Tuned(size, clip, trials)
        fits = [
            _rounds(method, problem, setting, epsilon, trial, streams, aggregate=True) for streams in repeats
        ]
        errors = [problem.relative_error(fit.coefficients, problem.validation) for fit in fits]
        table.append((size, clip, sum(errors) / len(errors)))
    best = min(table, key=lambda row: row[2])
    return Tuned(best[0], best[1], trials, tuple(table))


def run(
    name: str,
    problem: Problem,
    setting: Setting,
    epsilon: float | None,
    streams: Streams,
    tuned: Tuned | None = None,
) -> Result:
    """Fit one method once, by real messages, and measure it on the test rows.

    Args:
        name: of the method.
        problem: the data.
        setting: the public numbers.
        epsilon: one client's budget; None only for methods without privacy.
        streams: this fit's randomness.
        tuned: step size and clip norm; the setting's first ones by default.
    """
    method = get_method(name)
    chosen = tuned or Tuned(setting.step_sizes[0], setting.clip_norms[0], 0)
    extra: Values = {}
    if method.one_release:
        fit, extra = _one_shot(method, problem, setting, epsilon, streams)
    elif method.tunable:
        fit = _rounds(method, problem, setting, epsilon, chosen, streams, aggregate=False)
        noise = calibrated_of(method, problem.domain, setting, epsilon, chosen)
        extra = {"step_size": chosen.step_size, "trials": chosen.trials}
        if not isinstance(noise, CalibratedSufficientStatistics):
            extra["noise_std"] = noise.noise_std
        extra |= (
            {} if chosen.clip_norm is None or method.kind != "local_sgd" else {"clip_norm": chosen.clip_norm}
        )
    elif method.kind == "ada_ssp":
        calibrated = calibrated_of(method, problem.domain, setting, epsilon, chosen)
        assert isinstance(calibrated, CalibratedSufficientStatistics)
        fit = ada_ssp(*problem.train, calibrated, streams.stream("noise"))
    else:
        known = problem.reference if method.kind == "least_squares" else problem.mean
        fit = Fit(known, EventLedger(), 0, 0)
    norm = float(np.linalg.norm(fit.coefficients))
    values: Values = {
        "test_error": problem.error(fit.coefficients, problem.test),
        "bound_reached": method.private and norm >= setting.coefficient_bound * (1.0 - 1e-9),
        "rounds": fit.rounds,
    }
    values |= extra
    if streams.mode == "release":
        fit.faulty = 0
        return Result(fit, values | _withheld(values))
    values |= {
        "test_relative_error": problem.relative_error(fit.coefficients, problem.test),
        "coefficient_error": float(np.sum((fit.coefficients - problem.reference) ** 2)),
        "faulty": fit.faulty,
    }
    return Result(fit, values)


def _withheld(values: Values) -> Values:
    """What a release does not keep: every figure that reads the clients' rows without noise, and why."""
    names = [
        "coefficient_error",
        "faulty",
        "test_relative_error",
        *(["covered"] if "covered" in values else []),
    ]
    reason = "it reads the clients' rows without noise, so a release does not keep it"
    kept: Values = dict.fromkeys(names)
    kept |= {f"{name}_reason": reason for name in names}
    return kept


def _one_shot(
    method: Method, problem: Problem, setting: Setting, epsilon: float | None, streams: Streams
) -> tuple[Fit, Values]:
    """One release, and whichever server-side estimate the method makes of it."""
    calibrated = plan_of(method, problem.domain, setting).calibrate(epsilon, setting.delta)
    release = release_of(*problem.train, calibrated, streams)
    equations, directions, fit = one_release(problem.clients, calibrated, streams, release)
    gamma = matrix_noise(calibrated, problem.clients)
    fit.coefficients = _server_side(method, equations, setting, gamma)
    values: Values = {
        "noise_std": calibrated.noise_std,
        "matrix_noise": gamma,
        "noise_dominated": gamma >= problem.domain.radius**2 / problem.domain.features,
    }
    if method.kind == "solve" and epsilon is not None:
        interval = confidence_interval(equations, calibrated, directions, setting.confidence)
        inside = np.abs(interval.coefficients - problem.reference) <= interval.half_widths
        if np.all(np.isfinite(interval.half_widths)):
            values |= {
                "covered": float(np.mean(inside)),
                "half_width": float(np.median(interval.half_widths)),
            }
        else:
            reason = "the estimated matrix is not positive definite"
            values |= {
                "covered": None,
                "covered_reason": reason,
                "half_width": None,
                "half_width_reason": reason,
            }
    return fit, values


def _server_side(method: Method, equations: NormalEquations, setting: Setting, gamma: float) -> Vector:
    bound = setting.coefficient_bound
    if method.kind == "descend":
        # The step is a function of the released matrix, so it is post-processing.
        largest = float(np.max(np.abs(np.linalg.eigvalsh(equations.matrix))))
        return descend(equations, setting.server_steps, 1.0 / max(largest, 1e-12), bound)
    if method.kind == "ridge":
        return solve(equations, Stabilization(bound, "ridge", setting.strength), gamma)
    if method.kind == "floor":
        return solve(equations, Stabilization(bound, "eigenvalue_floor", setting.strength), gamma)
    return solve(equations, Stabilization(bound))


def _rounds(
    method: Method,
    problem: Problem,
    setting: Setting,
    epsilon: float | None,
    tuned: Tuned,
    streams: Streams,
    *,
    aggregate: bool,
) -> Fit:
    """The iterative estimator or DP-SGD, by messages or by aggregate noise."""
    curvature = 1.0 + problem.domain.radius**2
    steps = Steps(tuned.step_size / curvature, setting.step_decay, setting.coefficient_bound)
    calibrated = calibrated_of(method, problem.domain, setting, epsilon, tuned)
    if isinstance(calibrated, CalibratedLocalSgd):
        return local_sgd(*problem.train, calibrated, steps, streams, "mean" if aggregate else "clients")
    assert isinstance(calibrated, CalibratedModulation)
    release = (
        aggregate_release(problem, calibrated, streams)
        if aggregate
        else release_of(*problem.train, calibrated, streams)
    )
    fit = iterate(problem.clients, calibrated, steps, streams, release)
    fit.coefficients = project(fit.coefficients, setting.coefficient_bound)
    return fit
