"""Clip first, noise second, and exactly the energy of the budget, for every defence and variant."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from sfumato.errors import SfumatoError
from sfumato.radiomap.allocation import energies
from sfumato.radiomap.clips import GroupClips, NoClip, WholeClip
from sfumato.radiomap.defences import (
    Defence,
    Promise,
    StaticDefence,
    frozen,
    none,
    static_optimal,
    targeted_uniform,
    uniform,
)
from sfumato.radiomap.partition import partition_of
from sfumato.rng import Streams
from tests.sfumato.radiomap.defended import group_clips, guaranteed, three_groups, without_promise

NU, CLIP = 0.7, 1.5
LARGE = three_groups(4800)
BUDGETS = {
    "none": 0.0,
    "clip_only": 0.0,
    "targeted_uniform, multiplier": (NU * CLIP) ** 2 * (1 / 12 + 1 / 6),
}
NAMES = [*guaranteed(three_groups(), NU), *without_promise(three_groups(), NU)]


def _all(partition: object = LARGE) -> dict[str, Defence]:
    return {**guaranteed(partition, NU, CLIP), **without_promise(partition, NU, CLIP)}  # type: ignore[arg-type]


DEFENCES = _all()
UPDATE = np.random.default_rng(0).normal(size=4800)


@pytest.mark.parametrize("name", NAMES)
def test_the_reported_levels_have_exactly_the_energy_of_the_budget(name: str) -> None:
    sent = DEFENCES[name].protect(UPDATE, 0, Streams(0).stream("noise", 0))
    budget = BUDGETS.get(name, (NU * CLIP) ** 2)
    assert energies(sent.sigmas, LARGE.sizes).sum() == pytest.approx(budget, rel=1e-9)
    assert getattr(DEFENCES[name], "energy") == pytest.approx(budget, rel=1e-9)  # noqa: B009


@pytest.mark.parametrize("name", NAMES)
def test_the_energy_really_added_is_within_one_percent_of_the_budget(name: str) -> None:
    """An update of zero is sent as noise alone. Over 300 uploads the mean square has a relative deviation of at
    most 0.0024 (all energy on 1200 coordinates), so 1 % is 4 deviations: a case alarms falsely with probability 6e-5."""
    update = np.zeros(4800)
    norms = [
        np.sum(DEFENCES[name].protect(update, 0, Streams(1).stream("noise", number)).upload ** 2)
        for number in range(300)
    ]
    assert np.mean(norms) == pytest.approx(BUDGETS.get(name, (NU * CLIP) ** 2), rel=0.01)


def _clipped(name: str, update: np.ndarray) -> np.ndarray:
    if name == "none":
        return update
    if name == "static_optimal":
        return GroupClips(LARGE, group_clips(LARGE)).apply(update)
    length = DEFENCES["shaped"].shape.norm(update) if name == "shaped" else np.linalg.norm(update)  # type: ignore[attr-defined]
    return update * (CLIP / length)


@pytest.mark.parametrize("name", NAMES)
def test_an_upload_is_its_clipped_update_plus_noise_that_does_not_see_the_update(name: str) -> None:
    """Under one stream two updates differ by what clipping leaves of them; `adaptive` alone breaks this."""
    other = UPDATE * LARGE.spread(np.array([20.0, 1.0, -3.0]))
    first, second = (
        DEFENCES[name].protect(values, 0, Streams(2).stream("noise")) for values in (UPDATE, other)
    )
    expected = _clipped(name, UPDATE) - _clipped(name, other)
    assert np.allclose(first.upload - second.upload, expected, atol=1e-9) == (name != "adaptive")


@pytest.mark.parametrize("name", NAMES)
def test_a_short_update_is_not_clipped_and_one_of_norm_zero_is_noised_like_any_other(name: str) -> None:
    defence = DEFENCES[name]
    short = defence.protect(1e-3 * UPDATE, 0, Streams(2).stream("noise"))
    zero = defence.protect(np.zeros(4800), 0, Streams(2).stream("noise"))
    assert not short.clipped
    assert not zero.clipped
    assert short.norm_before == pytest.approx(1e-3 * np.linalg.norm(UPDATE))
    assert zero.norm_before == 0.0
    assert np.isfinite(zero.upload).all()
    assert bool(np.any(zero.upload != 0.0)) == (name not in ("none", "clip_only"))
    assert defence.protect(UPDATE, 0, Streams(2).stream("noise")).clipped == (name != "none")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_an_update_that_is_not_finite_or_of_endless_norm_is_refused_before_any_noise(
    name: str, bad: float
) -> None:
    update = UPDATE.copy()
    update[7] = bad
    with pytest.raises(SfumatoError, match="nothing is sent"):
        DEFENCES[name].protect(update, 0, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_the_same_stream_gives_the_same_bits_also_after_pickling_and_another_shape_is_refused(
    name: str,
) -> None:
    defence = DEFENCES[name]
    twin = copy.deepcopy(defence)
    first, second = (one.protect(UPDATE, 0, Streams(5).stream("noise")).upload for one in (defence, twin))
    assert np.array_equal(first, second)
    assert first.dtype == np.float64
    with pytest.raises(SfumatoError, match="shape"):
        defence.protect(UPDATE[:-1], 0, Streams(5).stream("noise"))


def test_targeted_noise_leaves_all_other_weights_bare_and_equals_uniform_per_coordinate_when_multiplier_is_matched() -> (
    None
):
    even, targeted = uniform(LARGE, NU, CLIP), targeted_uniform(LARGE, NU, CLIP, "multiplier")
    assert np.allclose(targeted.sigmas[LARGE.sensitive], even.sigmas[0], rtol=1e-12)
    sent = targeted.protect(1e-3 * UPDATE, 0, Streams(0).stream("noise"))
    bare = LARGE.groups[-1].index
    assert np.array_equal(sent.upload[bare], 1e-3 * UPDATE[bare])
    assert np.allclose(even.sigmas, uniform(LARGE, NU, CLIP, "multiplier").sigmas, rtol=1e-12)


def test_static_optimal_has_sigmas_in_the_proportion_of_the_closed_form() -> None:
    defence = static_optimal(LARGE, NU, CLIP, group_clips(LARGE))
    proportion = defence.sigmas**2 / (group_clips(LARGE) / np.sqrt(LARGE.sizes))
    assert np.allclose(proportion, proportion[0])


def test_static_defences_learn_nothing_and_their_levels_cannot_be_changed() -> None:
    defence = uniform(LARGE, NU, CLIP)
    assert defence.observe([UPDATE]) is defence
    with pytest.raises(ValueError, match="read-only"):
        defence.sigmas[0] = 0.0


def test_a_promise_composes_groups_by_squares() -> None:
    assert Promise("per_group", (3.0, 8.0), (1.0, 2.0)).mu == pytest.approx(5.0)


def test_bad_numbers_and_partitions_are_refused() -> None:
    plain = partition_of(4, {})
    with pytest.raises(SfumatoError, match="no group of the partition is sensitive"):
        targeted_uniform(plain, 1.0, 1.0)
    with pytest.raises(SfumatoError, match="matching is 'power'"):
        uniform(plain, 1.0, 1.0, "power")  # type: ignore[arg-type]
    with pytest.raises(SfumatoError, match="sigmas is"):
        StaticDefence("own", plain, NoClip(), np.array([-1.0]))
    with pytest.raises(SfumatoError, match="sigmas is"):
        StaticDefence("own", plain, NoClip(), np.array([np.nan]))
    with pytest.raises(SfumatoError, match="clip_norm is -1"):
        WholeClip(-1.0)
    with pytest.raises(SfumatoError, match="with sum 1"):
        frozen(plain, 1.0, 1.0, np.array([0.5]))
    with pytest.raises(SfumatoError, match="none has no farthest pair"):
        none(plain).farthest()


class _Halves:
    """A clip of no known bound."""

    def apply(self, delta: np.ndarray) -> np.ndarray:
        return delta / 2.0

    def distances(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.array([np.linalg.norm(first - second)])


def test_a_clip_of_ones_own_may_run_and_gets_no_promise() -> None:
    defence = StaticDefence("own", three_groups(), _Halves(), np.ones(3))
    assert defence.protect(np.ones(12), 0, Streams(0).stream("noise")).clipped
    with pytest.raises(SfumatoError, match="no known bound"):
        _ = defence.promise
