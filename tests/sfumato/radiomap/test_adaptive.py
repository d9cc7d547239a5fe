"""The paper's defence: the budget is kept, the levels follow the upload, and nothing can print an epsilon for it."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.errors import SfumatoError
from sfumato.radiomap.adaptive import AdaptiveDefence, progress_of
from sfumato.radiomap.allocation import energies
from sfumato.radiomap.pricing import price, promise_of, why_no_epsilon
from sfumato.rng import Streams
from tests.sfumato.radiomap.defended import lively, three_groups

PARTITION = three_groups(48)
DEFENCE = AdaptiveDefence(PARTITION, 0.7, 1.5, lively(PARTITION), rounds=10)


def test_the_levels_follow_the_upload_and_the_round_at_one_energy() -> None:
    random = np.random.default_rng(0)
    updates = [
        PARTITION.spread(10.0 ** random.normal(size=3)) * random.normal(size=48) for _number in range(20)
    ]
    found = np.array([DEFENCE.protect(update, 0, Streams(0).stream("noise")).sigmas for update in updates])
    assert np.ptp(found, axis=0).min() > 1e-4
    assert np.allclose(
        [energies(sigmas, PARTITION.sizes).sum() for sigmas in found], DEFENCE.energy, rtol=1e-12
    )
    later = DEFENCE.protect(updates[0], 9, Streams(0).stream("noise")).sigmas
    assert not np.allclose(later, found[0])


def test_the_levels_are_those_of_the_clipped_update() -> None:
    """Whatever is cut away cannot move them."""
    update = np.random.default_rng(1).normal(size=48)
    near, far = (DEFENCE.protect(scale * update, 0, Streams(0).stream("noise")) for scale in (10.0, 1e6))
    assert np.allclose(near.sigmas, far.sigmas, rtol=1e-9)
    assert np.allclose(near.upload, far.upload, rtol=1e-9)


def test_pricing_refuses_it_in_a_sentence() -> None:
    for refused in (lambda: promise_of(DEFENCE), lambda: price(DEFENCE, 1, 1e-5)):  # type: ignore[arg-type]
        with pytest.raises(SfumatoError, match="computes its noise levels from the upload that they protect"):
            refused()
    assert not hasattr(DEFENCE, "promise")
    assert "no epsilon holds" in why_no_epsilon(DEFENCE)


def test_it_learns_nothing_and_bad_rounds_are_refused() -> None:
    assert DEFENCE.observe([np.ones(48)]) is DEFENCE
    assert progress_of(15, 10) == 1.0
    with pytest.raises(SfumatoError, match="rounds is 0"):
        AdaptiveDefence(PARTITION, 0.7, 1.5, lively(PARTITION), rounds=0)
    with pytest.raises(SfumatoError, match="round is -1"):
        DEFENCE.protect(np.ones(48), -1, Streams(0).stream("noise"))
