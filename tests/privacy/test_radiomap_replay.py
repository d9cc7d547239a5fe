"""Record and replay of the radio-map defences: what a replaced upload can change, with everybody's randomness fixed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sfumato.radiomap.certified import CertifiedDefence
from sfumato.radiomap.clips import GroupClips, WholeClip
from sfumato.radiomap.defences import GuaranteedDefence, StaticDefence
from sfumato.radiomap.shaped import ShapedDefence, principal_shape
from sfumato.rng import RandomStream, Streams
from tests.cases import quick_ones
from tests.sfumato.radiomap.defended import guaranteed, lively, three_groups

PARTITION = three_groups()
SKEWED = principal_shape(np.random.default_rng(0).normal(size=(9, 12)) * np.geomspace(1, 0.05, 12), 3, 0.05)
DEFENCES: dict[str, GuaranteedDefence] = {
    **guaranteed(PARTITION, 0.8),
    "shaped, skewed": ShapedDefence(PARTITION, 0.8, 1.5, SKEWED, 0.9),
}
UPDATES = arrays(np.float64, 12, elements=st.floats(-1e6, 1e6) | st.floats(-1e-3, 1e-3))


def _distances(defence: GuaranteedDefence, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """In the norm that the promise names."""
    if isinstance(defence, ShapedDefence):
        return defence.distances(first, second)
    if isinstance(defence, StaticDefence) and isinstance(defence.clip, GroupClips):
        return defence.clip.distances(first, second)
    return WholeClip(1.5).distances(first, second)


@pytest.mark.parametrize("name", list(DEFENCES))
@given(UPDATES, UPDATES)
@settings(max_examples=30, deadline=None)
def test_a_replaced_update_moves_an_upload_by_at_most_the_promised_sensitivity(
    name: str, one: np.ndarray, two: np.ndarray
) -> None:
    defence = DEFENCES[name]
    first, second = (
        defence.protect(update, 0, Streams(1).stream("noise", 0, 0)).upload for update in (one, two)
    )
    moved, allowed = _distances(defence, first, second), np.array(defence.promise.sensitivities)
    assert moved.shape == allowed.shape
    assert np.all(moved <= allowed * (1 + 1e-9) + 1e-12)


@pytest.mark.parametrize("name", list(DEFENCES))
def test_the_sensitivity_is_attained(name: str) -> None:
    """So the bound above is no looser than it has to be."""
    defence = DEFENCES[name]
    far = 1e3 * defence.farthest()
    first, second = (
        defence.protect(sign * far, 0, Streams(1).stream("noise", 0, 0)).upload for sign in (1.0, -1.0)
    )
    assert _distances(defence, first, second) == pytest.approx(np.array(defence.promise.sensitivities))


@pytest.mark.parametrize("name", quick_ones(list(DEFENCES), ["adaptive_certified", "shaped, skewed"]))
def test_the_noise_has_the_claimed_covariance_and_does_not_know_the_update(name: str) -> None:
    """Over 2000 uploads the whitened noise has mean 0 and covariance I. A variance deviates by sqrt(2 / 2000) = 0.032, a
    covariance and a mean by 0.022: a bound of 0.15 is 4.7 deviations for each of 12 variances and more than 6 for the
    others, a false alarm of 3e-5 per case."""
    defence, update = DEFENCES[name], np.linspace(-2.0, 3.0, 12)
    stream = Streams(7).stream("noise", 0, 0)
    uploads = np.array([defence.protect(update, 0, stream).upload for _run in range(2000)])
    clean = defence.protect(update, 0, _Silence()).upload
    noise = uploads - clean
    precision = np.array([defence.precise(row) for row in np.eye(12)])
    values, vectors = np.linalg.eigh((precision + precision.T) / 2.0)
    white = noise @ (vectors * np.sqrt(values)) @ vectors.T
    assert np.abs(white.mean(0)).max() < 0.15
    assert np.abs(white.T @ white / 2000 - np.eye(12)).max() < 0.15


class _Silence:
    """A stream of zeros: shows what is sent before the noise. Only the calls that a defence makes."""

    def standard_normal(self, size: int) -> np.ndarray:
        return np.zeros(size)

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"a defence asked for {name}")


@pytest.mark.parametrize("name", list(DEFENCES))
def test_noise_is_fresh_for_every_round_and_client_and_for_every_seed(name: str) -> None:
    defence, update = DEFENCES[name], np.ones(12)
    streams: list[RandomStream] = [
        Streams(seed).stream("noise", number, client)
        for seed in (0, 1)
        for number in range(3)
        for client in range(3)
    ]
    uploads = np.array([defence.protect(update, 0, stream).upload for stream in streams])
    assert len(np.unique(uploads, axis=0)) == len(uploads)
    whole = np.concatenate([np.unique(uploads[:, column]) for column in range(12)])
    assert len(whole) == uploads.size


@pytest.mark.parametrize("name", list(DEFENCES))
def test_in_release_mode_nothing_can_be_replayed(name: str) -> None:
    stream = Streams(None, "release")
    first, second = (
        DEFENCES[name].protect(np.ones(12), 0, stream.stream("noise", 0, 0)).upload for _ in range(2)
    )
    assert not np.any(first == second)


@given(
    st.lists(arrays(np.float64, (2, 12), elements=st.floats(-1e3, 1e3)), min_size=1, max_size=3),
    UPDATES,
    UPDATES,
)
@settings(max_examples=30, deadline=None)
def test_replaying_recorded_uploads_gives_the_same_levels_and_the_promised_bound_in_every_round(
    history: list[np.ndarray], one: np.ndarray, two: np.ndarray
) -> None:
    """The certified allocation from the server's record alone; two clients' updates cannot be told from the levels."""
    state = CertifiedDefence(PARTITION, 0.8, 1.5, lively(PARTITION, size=10.0), rounds=4)
    for number, released in enumerate(history):
        first, second = (
            state.protect(update, number, Streams(1).stream("noise", number, 0)) for update in (one, two)
        )
        assert np.array_equal(first.sigmas, second.sigmas)
        apart = first.upload - second.upload
        assert np.sqrt(apart @ state.precise(apart)) <= state.promise.mu * (1 + 1e-9)
        state = state.observe(list(released))
