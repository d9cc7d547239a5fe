"""Every method of the comparison runs, records what it spends, and is tuned on validation rows alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sfumato.accounting import gaussian_epsilon, spent
from sfumato.errors import SfumatoError
from sfumato.modulated.experiment import calibrated_of, run, tune
from sfumato.modulated.methods import METHODS, get_method
from sfumato.modulated.plan import Domain, Modulation
from sfumato.modulated.setting import Problem, Setting, Tuned
from sfumato.rng import Streams
from tests.sfumato.modulated.populations import population

SETTING = Setting(
    Modulation(amplitude=0.5, frequency=2.0), rounds=4, step_sizes=(0.5, 2.0), clip_norms=(0.1, 0.3)
)


def _problem(clients: int = 300) -> Problem:
    parts = [population(size, 3, seed) for seed, size in enumerate((clients, 80, 80))]
    pairs = [(part.features.copy(), part.labels.copy()) for part in parts]
    return Problem.of(Domain(3, 1.0), pairs[0], pairs[1], pairs[2])


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_gives_finite_values_and_spends_its_budget_exactly(name: str) -> None:
    method = get_method(name)
    epsilon = 6.0 if method.private else None
    result = run(name, _problem(), SETTING, epsilon, Streams(0))
    assert np.all(np.isfinite(result.fit.coefficients))
    assert result.fit.coefficients.shape == (4,)
    for key, value in result.values.items():
        if isinstance(value, float):
            assert np.isfinite(value), key
        if value is None:
            assert result.values[f"{key}_reason"]
    if method.private:
        priced = gaussian_epsilon(spent(result.fit.ledger.events).mu(2.0), SETTING.delta)
        assert priced == pytest.approx(6.0, rel=1e-9)
        assert priced <= 6.0
    else:
        assert result.fit.ledger.steps == 0


def test_relative_error_is_one_for_the_mean_and_small_for_least_squares() -> None:
    assert run("mean", _problem(), SETTING, None, Streams(0)).values["test_relative_error"] == pytest.approx(
        1.0
    )
    found = run("least_squares", _problem(), SETTING, None, Streams(0)).values
    assert found["coefficient_error"] == 0.0
    assert float(found["test_relative_error"] or 0.0) < 0.2


def test_with_a_huge_budget_local_methods_find_least_squares() -> None:
    for name in ("one_shot", "one_shot_ridge", "one_shot_floor", "one_shot_descent", "no_modulation"):
        result = run(name, _problem(50_000), replace(SETTING, server_steps=2000), 200.0, Streams(0))
        assert float(result.values["coefficient_error"] or 1.0) < 2e-3, name


def test_tuning_reads_validation_rows_and_neither_test_rows_nor_the_fits_seed() -> None:
    problem = _problem()
    chosen = tune("dp_sgd", problem, SETTING, 6.0, [Streams(99), Streams(98)])
    assert len(chosen.table) == 4
    assert chosen.trials == 8
    best = min(chosen.table, key=lambda row: row[2])
    assert (chosen.step_size, chosen.clip_norm) == best[:2]
    other = replace(problem, test=(problem.test[0] * 0, problem.test[1] * 0 + 1))
    assert tune("dp_sgd", other, SETTING, 6.0, [Streams(99), Streams(98)]) == chosen


def test_a_grid_of_one_is_no_tuning() -> None:
    single = replace(SETTING, step_sizes=(0.5,), clip_norms=(0.1,))
    assert tune("dp_sgd", _problem(), single, 6.0, [Streams(99), Streams(98)]).trials == 0
    assert tune("one_shot", _problem(), SETTING, 6.0, [Streams(99), Streams(98)]).trials == 0


def test_methods_that_differ_in_one_thing_share_the_rest_of_their_randomness() -> None:
    problem = _problem()
    one, two = (run(name, problem, SETTING, 6.0, Streams(5)) for name in ("one_shot", "one_shot_ridge"))
    assert one.values["matrix_noise"] == two.values["matrix_noise"]
    again = run("one_shot", problem, SETTING, 6.0, Streams(5))
    assert np.array_equal(one.fit.coefficients, again.fit.coefficients)


def test_the_lipschitz_calibration_adds_more_noise_and_no_modulation_none_less() -> None:
    problem = _problem()
    noise = {
        name: float(run(name, problem, SETTING, 6.0, Streams(0)).values["noise_std"] or 0.0)
        for name in ("one_shot_descent", "one_shot_descent_lipschitz", "no_modulation", "other_frequency")
    }
    assert noise["one_shot_descent"] == noise["no_modulation"] == noise["other_frequency"]
    assert noise["one_shot_descent_lipschitz"] == pytest.approx(2.0 * noise["one_shot_descent"])


def test_degenerate_data_are_defined() -> None:
    parts = [population(size, 3, seed) for seed, size in enumerate((5, 4, 4))]
    pairs = [(part.features.copy(), part.labels.copy()) for part in parts]
    pairs[0][0][:, 1] = 0.25
    pairs[0][0][0] = np.nan
    problem = Problem.of(Domain(3, 1.0), *pairs)
    for name in METHODS:
        result = run(name, problem, SETTING, 2.0 if get_method(name).private else None, Streams(0))
        assert np.all(np.isfinite(result.fit.coefficients)), name


def test_an_unknown_method_is_one_sentence() -> None:
    with pytest.raises(SfumatoError, match=r"method is 'magic'; allowed are one_shot"):
        get_method("magic")


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.private])
def test_the_plan_that_statements_print_is_the_one_that_ran(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The calibrated object that reaches the mechanism's code equals the one that accounting rebuilds."""
    from sfumato.modulated import experiment

    seen: list[object] = []
    for target in ("local_sgd", "ada_ssp", "release_of"):
        real = getattr(experiment, target)

        def watched(
            features: object, labels: object, calibrated: object, *rest: object, _real: Any = real
        ) -> Any:
            seen.append(calibrated)
            return _real(features, labels, calibrated, *rest)

        monkeypatch.setattr(experiment, target, watched)
    tuned = Tuned(0.7, 0.2, 4)
    run(name, _problem(), SETTING, 6.0, Streams(0), tuned)
    assert seen == [calibrated_of(get_method(name), Domain(3, 1.0), SETTING, 6.0, tuned)]
