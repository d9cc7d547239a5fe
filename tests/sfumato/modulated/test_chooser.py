"""The data-free choice against what a simulation of the same setting finds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sfumato.datasets.generated import generate, true_coefficients
from sfumato.errors import SfumatoError
from sfumato.modulated.chooser import choose
from sfumato.modulated.experiment import run
from sfumato.modulated.plan import Domain, ModulatedPlan, Modulation
from sfumato.modulated.setting import Problem, Setting
from sfumato.rng import Streams

PLAN = ModulatedPlan(Domain(4, 1.0), Modulation(amplitude=0.5), rounds=10)


def test_more_clients_or_budget_never_worsen_the_prediction() -> None:
    errors = [
        min(choose(PLAN, epsilon, 1e-5, clients).predicted.values())
        for epsilon, clients in ((1.0, 1000), (1.0, 100_000), (5.0, 100_000), (5.0, 10_000_000))
    ]
    assert errors == sorted(errors, reverse=True)


def test_with_plenty_of_clients_one_release_is_the_choice_and_informative() -> None:
    choice = choose(PLAN, 10.0, 1e-5, 1_000_000)
    assert choice.estimator == "one_shot"
    assert choice.informative
    assert "below" in choice.reason


def test_when_noise_dominates_the_choice_says_so() -> None:
    choice = choose(PLAN, 0.5, 1e-5, 500)
    assert not choice.informative
    assert "not below" in choice.reason


def test_releases_of_the_same_clients_are_never_predicted_better_than_one_release() -> None:
    for epsilon in (5.0, 10.0, 20.0):
        predicted = choose(PLAN, epsilon, 1e-5, 100_000).predicted
        assert predicted["one_shot"] < predicted["iterative"]


def test_predictions_have_the_size_of_simulated_errors() -> None:
    """30 fits on generated data: the mean squared error of the coefficients within a factor of two; the curvature is the one of the unit
    ball, 1 / (n + 2)."""
    samples = generate(60_000, 4, Streams(1).stream("data"))
    pair = (samples.x, samples.y)
    problem = Problem.of(PLAN.domain, pair, pair, pair)
    slopes = true_coefficients(4)[1:]
    setting = Setting(replace(PLAN.modulation), rounds=10)
    errors = [
        run("one_shot", problem, setting, 10.0, Streams(seed)).values["coefficient_error"]
        for seed in range(30)
    ]
    norm = float(np.linalg.norm(slopes))
    predicted = choose(PLAN, 10.0, 1e-5, 60_000, norm, 0.1, curvature=1 / 6).predicted["one_shot"]
    assert predicted / 2 < np.mean(errors) < predicted * 2


def test_the_noise_of_private_labels_is_predicted_too() -> None:
    """15 fits with private labels of little weight, whose noise is most of the error: within a factor of two."""
    plan = replace(PLAN, labels="private", label_weight=0.3)
    samples = generate(200_000, 4, Streams(1).stream("data"))
    pair = (samples.x.astype(np.float32), samples.y)
    problem = Problem.of(plan.domain, pair, pair, pair)
    setting = Setting(plan.modulation, labels="private", label_weight=0.3, rounds=10)
    errors = [
        run("one_shot", problem, setting, 20.0, Streams(seed)).values["coefficient_error"]
        for seed in range(15)
    ]
    norm = float(np.linalg.norm(true_coefficients(4)[1:]))
    found = choose(plan, 20.0, 1e-5, 200_000, norm, 0.1, curvature=1 / 6).predicted["one_shot"]
    public = choose(PLAN, 20.0, 1e-5, 200_000, norm, 0.1, curvature=1 / 6).predicted["one_shot"]
    assert found / 2 < np.mean(errors) < found * 2
    assert found > 3 * public


@pytest.mark.parametrize(
    "more",
    [{"coefficient_norm": float("nan")}, {"residual": -1.0}, {"curvature": 0.0}, {"curvature": float("inf")}],
)
def test_guesses_that_make_no_sense_are_one_sentence(more: dict[str, float]) -> None:
    with pytest.raises(SfumatoError, match=r"(coefficient_norm|residual|curvature) is"):
        choose(PLAN, 1.0, 1e-5, 1000, **more)
    with pytest.raises(SfumatoError, match=r"clients is 1000\.5"):
        choose(PLAN, 1.0, 1e-5, 1000.5)  # type: ignore[arg-type]


def test_too_few_clients_are_one_sentence() -> None:
    with pytest.raises(SfumatoError, match=r"clients is 9; allowed is an integer of at least 10"):
        choose(PLAN, 1.0, 1e-5, 9)
