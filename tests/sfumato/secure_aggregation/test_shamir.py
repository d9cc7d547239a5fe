"""Shares: any threshold of them give the secret back, fewer tell nothing; held to a library kept by others."""

from __future__ import annotations

import os
from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest
import shamirs
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import SfumatoError
from sfumato.secure_aggregation import shamir
from sfumato.secure_aggregation.shamir import PRIME, combine, draw, secret_words, share, words_secret
from tests.sfumato.secure_aggregation.exchange import seeded

SECRETS = st.binary(min_size=32, max_size=32)


@given(SECRETS)
def test_a_secret_is_its_words(secret: bytes) -> None:
    words = secret_words(secret)
    assert words.shape == (18,)
    assert int(words.max()) < 1 << 15
    assert words_secret(words) == secret
    assert sum(int(word) << (15 * place) for place, word in enumerate(words)) == int.from_bytes(
        secret, "little"
    )


@pytest.mark.parametrize(("place", "word"), [(0, 1 << 15), (17, 2), (17, 65_520)])
def test_words_of_no_secret_are_told_apart(place: int, word: int) -> None:
    words = np.zeros(18, np.uint16)
    words[place] = word
    assert words_secret(words) is None


@given(SECRETS, st.integers(1, 12), st.data())
@settings(max_examples=25, deadline=None)
def test_any_threshold_of_the_shares_give_the_secret_back(
    secret: bytes, holders: int, data: st.DataObject
) -> None:
    threshold = data.draw(st.integers(1, holders))
    chosen = data.draw(st.permutations(range(holders)))[:threshold]
    shares = share(secret_words(secret), holders, threshold, os.urandom)
    points = np.array([chosen]) + 1
    assert words_secret(combine(points, shares[points - 1])[0]) == secret


@given(st.lists(st.integers(0, PRIME - 1), min_size=1, max_size=4), st.integers(1, 40), st.data())
@settings(max_examples=25, deadline=None)
def test_the_kept_library_puts_our_shares_together(
    words: list[int], holders: int, data: st.DataObject
) -> None:
    threshold = data.draw(st.integers(1, holders))
    chosen = data.draw(st.permutations(range(holders)))[:threshold]
    ours = share(np.array(words), holders, threshold, os.urandom)
    for place, word in enumerate(words):
        theirs = [shamirs.share(one + 1, int(ours[one, place]), PRIME) for one in chosen]
        assert shamirs.interpolate(theirs, threshold=threshold) == word


@given(st.integers(0, PRIME - 1), st.integers(2, 40), st.data())
@settings(max_examples=25, deadline=None)
def test_we_put_the_shares_of_the_kept_library_together(word: int, holders: int, data: st.DataObject) -> None:
    threshold = data.draw(st.integers(1, holders))
    theirs = shamirs.shares(word, quantity=holders, modulus=PRIME, threshold=threshold)
    chosen = data.draw(st.permutations(theirs))[:threshold]
    points = np.array([[one.index for one in chosen]])
    values = np.array([[[one.value] for one in chosen]])
    assert combine(points, values).tolist() == [[word]]


def test_owners_with_different_holders_are_combined_at_once() -> None:
    words = np.arange(4 * 18).reshape(4, 18)
    entropy = seeded(2)
    shares = np.stack([share(row, 9, 4, entropy) for row in words])
    points = np.array([[1, 2, 3, 4], [9, 7, 2, 5], [6, 7, 8, 9], [3, 1, 9, 4]])
    chosen = np.take_along_axis(shares, points[:, :, None] - 1, axis=1)
    assert np.array_equal(combine(points, chosen), words)


def test_a_large_threshold_stays_exact() -> None:
    words = np.array([PRIME - 1, 0, 12_345])
    shares = share(words, 1500, 1499, seeded(4))
    points = np.arange(2, 1501)[None]
    assert combine(points, shares[points - 1]).tolist() == [words.tolist()]


@pytest.mark.parametrize("threshold", [2, 3])
def test_fewer_shares_than_the_threshold_are_uniform_whatever_the_secret(
    monkeypatch: pytest.MonkeyPatch, threshold: int
) -> None:
    """Exactly, over the field of 5 elements: all polynomials, all sets of threshold - 1 holders, all secrets."""
    monkeypatch.setattr(shamir, "PRIME", 5)
    shamir._powers.cache_clear()
    for holders in combinations(range(4), threshold - 1):
        seen = []
        for secret in range(5):
            counted: Counter[tuple[int, ...]] = Counter()
            for drawn in product(range(5), repeat=threshold - 1):
                entropy_words = np.array(drawn, "<u2").tobytes()
                shares = share(
                    np.array([secret]), 4, threshold, lambda count, words=entropy_words: words[:count]
                )
                counted[tuple(int(shares[one, 0]) for one in holders)] += 1
            seen.append(counted)
        assert all(counted == seen[0] for counted in seen)
        assert set(seen[0].values()) == {1}
        assert len(seen[0]) == 5 ** (threshold - 1)
    shamir._powers.cache_clear()


def test_numbers_outside_of_the_field_are_drawn_again() -> None:
    given_words = iter([[PRIME, 7, PRIME + 14], [8, PRIME - 1]])
    drawn = shamir._uniform(3, lambda count: np.array(next(given_words), "<u2").tobytes()[:count])
    assert drawn.tolist() == [7, 8, PRIME - 1]


def test_a_source_that_gives_too_little_is_refused() -> None:
    with pytest.raises(SfumatoError, match="gave 3 bytes; allowed are the 4"):
        draw(lambda count: bytes(count - 1), 4)
