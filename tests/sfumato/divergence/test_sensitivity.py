"""The sensitivity equals brute force over all pairs of neighbouring populations on small domains."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.divergence.evaluation import evaluate
from sfumato.divergence.plan import EstimatorPlan, Floor
from sfumato.divergence.reference import PublicPoints, Reference, all_points, draw_points
from sfumato.divergence.sensitivity import inflections, second_moment_sensitivity, sensitivity
from sfumato.errors import SfumatoError
from sfumato.rng import Streams

FLOORS = st.one_of(
    st.sampled_from([0.02, 0.1, 0.5]).map(lambda level: Floor("mix", level)),
    st.tuples(st.sampled_from([0.02, 0.1, 0.5, 0.9]), st.sampled_from([None, 1.0, 1.5, 3.0])).map(
        lambda ends: Floor("clip", *ends)
    ),
)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Reference, PublicPoints, int, EstimatorPlan]:
    cells = draw(st.integers(2, 4))
    masses = np.array(draw(st.lists(st.integers(1, 20), min_size=cells, max_size=cells)), np.float64)
    reference = Reference.from_probabilities(masses / masses.sum())
    draws = draw(st.integers(0, 6))
    points = (
        draw_points(reference, draws, Streams(draw(st.integers(0, 99))).stream("points"))
        if draws
        else all_points(reference)
    )
    plan = EstimatorPlan(draw(FLOORS), draw(st.sampled_from([0.0, 0.5, 1.0, 2.0, 7.0])))
    return reference, points, draw(st.integers(2, 9)), plan


def _populations(cells: int, examples: int) -> list[tuple[int, ...]]:
    bars = itertools.combinations(range(examples + cells - 1), cells - 1)
    return [tuple(np.diff([-1, *bar, examples + cells - 1]) - 1) for bar in bars]


def _brute_force(reference: Reference, points: PublicPoints, examples: int, value: object) -> float:
    """The largest difference over every population and every replacement of one example."""
    known = {one: value(one) for one in _populations(reference.cells, examples)}  # type: ignore[operator]
    largest = 0.0
    for one, here in known.items():
        for x, y in itertools.permutations(range(reference.cells), 2):
            if one[x]:
                other = list(one)
                other[x], other[y] = other[x] - 1, other[y] + 1
                largest = max(largest, abs(known[tuple(other)] - here))
    return largest


@given(problems())
@settings(max_examples=150, deadline=None)
def test_the_sensitivity_is_that_of_brute_force_over_all_neighbours(
    problem: tuple[Reference, PublicPoints, int, EstimatorPlan],
) -> None:
    reference, points, examples, plan = problem
    found = sensitivity(points, reference, examples, plan)

    def value(population: tuple[int, ...]) -> float:
        return evaluate(np.array(population)[points.cells], examples, points, reference, plan)

    largest = _brute_force(reference, points, examples, value)
    assert found.tight
    assert found.exact == pytest.approx(largest, rel=1e-10, abs=1e-13)
    assert found.exact <= found.closed_bound * (1 + 1e-12) + 1e-13
    before, after = found.worst.populations(reference.cells, examples)
    assert before.sum() == after.sum() == examples
    assert min(before.min(), after.min()) >= 0
    assert abs(value(tuple(after)) - value(tuple(before))) == pytest.approx(largest, rel=1e-10, abs=1e-13)


@given(problems(), st.sampled_from([0.0, 0.3, -0.5]))
@settings(max_examples=150, deadline=None)
def test_the_second_moments_sensitivity_is_brute_forces_where_it_is_tight_and_never_below(
    problem: tuple[Reference, PublicPoints, int, EstimatorPlan], center: float
) -> None:
    reference, points, examples, plan = problem
    found = second_moment_sensitivity(points, reference, examples, plan, center)
    ratio_of = 1.0 / (examples * reference.probabilities[points.cells])

    def value(population: tuple[int, ...]) -> float:
        counts = np.array(population)[points.cells]
        return float(points.weights @ (plan.values(counts * ratio_of) - center) ** 2)

    largest = _brute_force(reference, points, examples, value)
    assert found.exact >= largest * (1 - 1e-10) - 1e-13
    assert found.exact <= found.closed_bound * (1 + 1e-10) + 1e-13
    if found.tight:
        assert found.exact == pytest.approx(largest, rel=1e-10, abs=1e-13)


@given(
    st.sampled_from([0.0, 0.3, 0.5, 1.0, 2.0, 5.0]),
    st.sampled_from([0.0, 0.5]),
    st.integers(50, 400),
    st.floats(0.002, 0.5),
    FLOORS,
)
@settings(max_examples=150, deadline=None)
def test_the_extreme_steps_of_one_point_are_those_of_a_scan_over_all_counts(
    coefficient: float, center: float, examples: int, mass: float, floor: Floor
) -> None:
    reference = Reference.from_probabilities([mass, 1.0 - mass])
    points, plan = PublicPoints(np.array([0]), np.array([1.0]), 1), EstimatorPlan(floor, coefficient)
    values = plan.values(np.arange(examples + 1) / (examples * mass))
    for found, seen in (
        (sensitivity(points, reference, examples, plan), values),
        (second_moment_sensitivity(points, reference, examples, plan, center), (values - center) ** 2),
    ):
        steps = np.diff(seen)
        assert found.up[0] == pytest.approx(steps.max(), rel=1e-9, abs=1e-13)
        assert found.down[0] == pytest.approx((-steps).max(), rel=1e-9, abs=1e-13)


def test_at_lambda_0_the_closed_bound_of_the_likeliest_loser_is_attained() -> None:
    """Section 4.2: max w ln(1 + d / gamma), where an undrawn cell gains."""
    reference = Reference.from_probabilities([0.5, 0.3, 0.2])
    points = PublicPoints(np.array([0, 2]), np.array([0.5, 0.5]), 2)
    found = sensitivity(points, reference, 100, EstimatorPlan(Floor("mix", 0.05), 0.0))
    step = 0.95 / (100 * 0.2)
    assert found.closed_bound == pytest.approx(0.5 * math.log1p(step / 0.05))
    assert found.exact == pytest.approx(found.closed_bound)


def test_with_every_cell_a_point_lambda_does_not_matter_to_a_mixed_ratio() -> None:
    reference = Reference.from_probabilities([0.5, 0.3, 0.2])
    values = [
        sensitivity(all_points(reference), reference, 50, EstimatorPlan(Floor("mix", 0.1), coefficient)).exact
        for coefficient in (0.0, 1.0, 2.0)
    ]
    assert values == pytest.approx([values[0]] * 3, rel=1e-10)


def test_repeated_draws_raise_the_sensitivity_with_their_weight() -> None:
    reference = Reference.from_probabilities([0.25] * 4)
    plan = EstimatorPlan(Floor("mix", 0.1), 0.0)
    once = PublicPoints(np.array([0, 1, 2]), np.full(3, 1 / 3), 3)
    twice = PublicPoints(np.array([0, 1]), np.array([2 / 3, 1 / 3]), 3)
    one, two = (sensitivity(points, reference, 100, plan).exact for points in (once, twice))
    assert two == pytest.approx(2 * one)


def test_noise_falls_with_the_number_of_examples_and_a_higher_floor() -> None:
    reference = Reference.from_probabilities([0.5, 0.3, 0.2])
    few, many, high = (
        sensitivity(all_points(reference), reference, n, EstimatorPlan(Floor("mix", level))).exact
        for n, level in ((100, 0.1), (10_000, 0.1), (100, 0.5))
    )
    assert many < few / 50
    assert high < few


def test_inflections_are_where_the_second_derivative_of_the_square_changes_sign() -> None:
    for coefficient, center in itertools.product([0.0, 0.4, 1.0, 3.0], [0.0, 0.5, 2.0]):
        turns = inflections(coefficient, center)
        for turn in turns:
            r = turn * np.array([1 - 1e-4, 1 + 1e-4])
            value = coefficient * (r - 1) - np.log(r) - center
            bend = (coefficient - 1 / r) ** 2 + value / r**2
            assert bend[0] * bend[1] < 0


@pytest.mark.parametrize("examples", [1, 0, -3, 2.0, True, None])
def test_a_population_of_less_than_two_examples_is_refused_in_one_sentence(examples: object) -> None:
    reference = Reference.from_probabilities([0.5, 0.5])
    with pytest.raises(SfumatoError, match=r"examples is .*allowed is an integer from 2") as caught:
        sensitivity(all_points(reference), reference, examples, EstimatorPlan(Floor("mix", 0.1)))  # type: ignore[arg-type]
    assert str(caught.value).count(".") <= 2


def test_without_a_floor_there_is_no_sensitivity() -> None:
    reference = Reference.from_probabilities([0.5, 0.5])
    with pytest.raises(SfumatoError, match="floor is None"):
        sensitivity(all_points(reference), reference, 10, EstimatorPlan(None, 1.0))


@pytest.mark.parametrize(
    "coefficient", [5e-324, 1e-310, 1e-308, 1e-9, 0.3, 1.0, 1.0 + 1e-9, 20.0, 800.0, 1e6]
)
@pytest.mark.parametrize("center", [0.0, 0.5, 3.0, -3.0, 1e5])
def test_every_allowed_lambda_has_its_inflections_to_rounding(coefficient: float, center: float) -> None:
    """Between them q < 0, and there are two where its least value, at r = 1 / lambda, is below 0."""
    turns = inflections(coefficient, center)
    least = 1.0 - coefficient - center + math.log(coefficient)
    assert len(turns) == (2 if least < 0.0 else 0)
    for turn in turns:
        if 0.0 < turn < 1e300:
            size = coefficient * turn
            terms = (size**2, -size, 1.0 - coefficient - center, -math.log(turn))
            assert abs(math.fsum(terms)) < 1e-8 * max(1.0, *map(abs, terms))
    if turns:
        assert turns[0] <= 1.0 / coefficient
        assert turns[1] >= min(1.0 / coefficient, 1e300)


@pytest.mark.parametrize("coefficient", [1e-310, 800.0, 1e6])
@pytest.mark.parametrize("floor", [Floor("mix", 0.1), Floor("clip", 0.1, 3.0)])
def test_the_second_moment_of_an_extreme_lambda_has_the_sensitivity_of_brute_force(
    coefficient: float, floor: Floor
) -> None:
    reference, plan, examples = (
        Reference.from_probabilities([0.5, 0.3, 0.2]),
        EstimatorPlan(floor, coefficient),
        8,
    )
    points = all_points(reference)
    found = second_moment_sensitivity(points, reference, examples, plan, 0.0)

    def value(population: tuple[int, ...]) -> float:
        ratio = np.array(population) / (examples * reference.probabilities)
        return float(points.weights @ plan.values(ratio) ** 2)

    largest = _brute_force(reference, points, examples, value)
    assert largest * (1 - 1e-10) <= found.exact <= found.closed_bound * (1 + 1e-10)
    if found.tight:
        assert found.exact == pytest.approx(largest, rel=1e-9)
