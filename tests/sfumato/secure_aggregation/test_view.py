"""What the server sees tells nothing about the inputs but the survivors' sum.

Three ways: exactly, by counting all masks of a tiny modulus; exactly, on the protocol itself, by exhibiting other masks
under which other inputs of the same sum give the same bytes; and statistically. Seeds are fixed; each statistical test
names its false-alarm rate for a fresh seed."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, ks_2samp

from sfumato.secure_aggregation import Setting, aggregate, client, unmasking
from sfumato.secure_aggregation.masking import add_masks, expand, pair_mask_key
from sfumato.secure_aggregation.messages import Kind, decode
from tests.sfumato.secure_aggregation.exchange import SMALL, seeded

CLIENTS = 4
PAIRS = list(combinations(range(CLIENTS), 2))


def _views(
    inputs: dict[int, int], survivors: tuple[int, ...], bare: int | None = None
) -> Counter[tuple[int, ...]]:
    """How often each view arises over all masks modulo 2: the survivors' masked inputs, their own masks, and the masks
    of the silent clients. ``bare`` names a client whose masks with others are seen as well. Vectors have one entry for
    each choice of all masks."""
    drawn = np.array(list(product(range(2), repeat=len(PAIRS) + len(survivors))), np.uint64).T
    pair, own = dict(zip(PAIRS, drawn, strict=False)), dict(zip(survivors, drawn[len(PAIRS) :], strict=True))
    seen = []
    for one in survivors:
        others = [other for other in range(CLIENTS) if other != one]
        pairs = [(1 if other > one else -1, pair[min(one, other), max(one, other)]) for other in others]
        seen.append(add_masks(np.full_like(own[one], inputs[one]), own[one], pairs, 1))
    seen += list(own.values())
    seen += [mask for ends, mask in pair.items() if bare in ends or not set(ends).issubset(survivors)]
    return Counter(map(tuple, np.stack(seen, axis=1).tolist()))


@pytest.mark.parametrize("survivors", [(0, 1, 2, 3), (0, 1, 3), (1, 2)])
def test_inputs_of_equal_sum_give_each_view_equally_often(survivors: tuple[int, ...]) -> None:
    """Exact: all inputs and all masks modulo 2 of four clients, of whom the others fall silent after round 2."""
    views: dict[int, list[Counter[tuple[int, ...]]]] = {0: [], 1: []}
    for values in product(range(2), repeat=len(survivors)):
        views[sum(values) % 2].append(_views(dict(zip(survivors, values, strict=True)), survivors))
    for group in views.values():
        assert len(group) == 2 ** (len(survivors) - 1)
        assert all(view == group[0] for view in group)
    assert not views[0][0].keys() & views[1][0].keys()


def test_both_secrets_of_one_client_would_bare_its_input() -> None:
    """Why a client refuses to open both: views of equal sum then have nothing in common."""
    everybody = tuple(range(CLIENTS))
    one, other = {**dict.fromkeys(everybody, 0), 0: 1}, {**dict.fromkeys(everybody, 0), 1: 1}
    assert not _views(one, everybody, bare=0).keys() & _views(other, everybody, bare=0).keys()


def _flow(
    survivors: list[int], neighbours: dict[int, tuple[int, ...]], change: np.ndarray
) -> dict[tuple[int, int], np.ndarray]:
    """What to add to the masks of pairs of survivors, on a spanning tree, so that a change of sum zero is hidden."""
    parent: dict[int, int] = {survivors[0]: survivors[0]}
    order = [survivors[0]]
    for one in order:
        for other in neighbours[one]:
            if other in survivors and other not in parent:
                parent[other] = one
                order.append(other)
    below = {one: change[one].astype(np.int64).view(np.uint64).copy() for one in order}
    added = {}
    for one in reversed(order[1:]):
        up = parent[one]
        added[min(one, up), max(one, up)] = -below[one] if one < up else below[one]
        below[up] += below[one]
    return added


def _run(
    setting: Setting,
    vectors: np.ndarray,
    drop_outs: dict[int, int],
    added: dict[tuple[int, int], np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    """The protocol itself, the masks of some pairs shifted."""
    pair_of: dict[bytes, tuple[int, int]] = {}

    def named_key(shared: bytes, session: bytes, one: int, other: int) -> bytes:
        key = pair_mask_key(shared, session, one, other)
        pair_of[key] = (min(one, other), max(one, other))
        return key

    def shifted(key: bytes, length: int, bits: int) -> np.ndarray:
        mask = expand(key, length, bits)
        pair = pair_of.get(key)
        return mask if pair not in added else (mask + added[pair]) & np.uint64((1 << bits) - 1)

    with monkeypatch.context() as patch:
        for module in (client, unmasking):
            patch.setattr(module, "pair_mask_key", named_key)
            patch.setattr(module, "expand", shifted)
        return aggregate(vectors, setting, seeded(11), drop_outs, record=True)


def _neighbours(setting: Setting) -> dict[int, tuple[int, ...]]:
    """The graph that the seeded server draws, as its messages say."""
    view = aggregate(np.zeros((setting.clients, setting.length), int), setting, seeded(11), record=True).view
    assert view is not None
    found = {}
    for one, message in view.sent:
        read = decode(message, None)
        if read.kind == Kind.NEIGHBOURS:
            found[one] = tuple(
                int.from_bytes(read.body[start : start + 4], "little")
                for start in range(0, len(read.body), 68)
            )
    return found


SPARSE = Setting(clients=10, length=2, degree=6, threshold=4)
NEIGHBOURS = _neighbours(SPARSE)


@given(st.integers(0, 2**30), st.dictionaries(st.integers(0, 9), st.integers(0, 3), max_size=1))
@settings(max_examples=12, deadline=None)
def test_other_masks_give_the_same_bytes_for_any_inputs_of_the_same_sum(
    seed: int, drop_outs: dict[int, int]
) -> None:
    """The view of the whole protocol, byte for byte, and the opened secrets; the masks that were exchanged are among
    those whose keys the server never learns."""
    if 0 in drop_outs.values():
        drop_outs = {}  # the seeded graph is that of everybody
    rng = np.random.default_rng(seed)
    survivors = [one for one in range(10) if drop_outs.get(one, 4) >= 3]
    first = rng.integers(-1000, 1000, (10, 2))
    second = rng.integers(-1000, 1000, (10, 2))
    second[survivors[0]] += first[survivors].sum(axis=0) - second[survivors].sum(axis=0)
    added = _flow(survivors, NEIGHBOURS, second - first)
    patch = pytest.MonkeyPatch()
    one = _run(SPARSE, first, drop_outs, {}, patch)
    other = _run(SPARSE, second, drop_outs, added, patch)
    assert not np.array_equal(first[survivors], second[survivors])
    assert one.view == other.view
    assert np.array_equal(one.total, other.total)
    assert np.array_equal(one.total, second[survivors].sum(axis=0))
    assert one.view != _run(SPARSE, second, drop_outs, {}, patch).view
    hidden = set(one.view.opened.mask_keys)
    assert all(not hidden.intersection(pair) for pair in added)


def test_the_server_opens_one_secret_of_each_client_and_never_both() -> None:
    view = aggregate(np.ones((7, 2), int), Setting(7, 2, 6, 4), seeded(), {1: 2, 5: 3}, record=True).view
    assert view is not None
    assert view.opened is not None
    assert set(view.opened.seeds) == {0, 2, 3, 4, 5, 6}
    assert set(view.opened.mask_keys) == {1}


def _words(vectors: np.ndarray, setting: Setting, seed: int) -> np.ndarray:
    """(clients, d) masked inputs as the server receives them."""
    view = aggregate(vectors, setting, seeded(seed), record=True).view
    assert view is not None
    bodies = [
        decode(message, None).body
        for _, message in view.received
        if decode(message, None).kind == Kind.MASKED_INPUT
    ]
    return np.array([np.frombuffer(body, f"<u{setting.word_bytes}") for body in bodies])


@pytest.mark.parametrize("value", [0, 127, -128])
def test_masked_inputs_are_uniform_whatever_the_inputs(value: int) -> None:
    """Chi-square on 256 values, once over all clients and once for each of five; 18 tests in all at 1e-5 each,
    false-alarm rate below 2e-4."""
    setting = Setting(5, 20_000, 4, 3, 8)
    words = _words(np.full((5, 20_000), value), setting, seed=value + 200)
    assert chisquare(np.bincount(words.reshape(-1), minlength=256)).pvalue > 1e-5
    for row in words:
        assert chisquare(np.bincount(row, minlength=256)).pvalue > 1e-5


def test_masked_inputs_of_two_clients_are_unrelated() -> None:
    """Chi-square on all pairs of 16 values for each of ten pairs of clients, at 1e-5 each: false-alarm rate 1e-4."""
    words = _words(np.zeros((5, 20_000), int), Setting(5, 20_000, 4, 3, 4), seed=9).astype(int)
    for one, other in combinations(range(5), 2):
        assert chisquare(np.bincount(words[one] * 16 + words[other], minlength=256)).pvalue > 1e-5


@pytest.mark.slow
def test_two_sets_of_inputs_of_one_sum_give_views_of_one_distribution() -> None:
    """Kolmogorov and Smirnov's test on 200 fresh runs each, client by client, at 1e-5: false-alarm rate 5e-5. The masked
    words of one client differ by about 2^31 between the sets, so that without masks every p-value would be 0."""
    one = np.array([[1 << 30], [-(1 << 30)], [0], [5], [7]]) * np.array([1, 1, 0])
    other = np.array([[-(1 << 30)], [1 << 30], [0], [7], [5]]) * np.array([1, 1, 0])
    assert np.array_equal(one.sum(axis=0), other.sum(axis=0))
    samples = [
        np.stack([_words(vectors, SMALL, seed=start + run)[:, 0] for run in range(200)])
        for vectors, start in ((one, 0), (other, 1000))
    ]
    for place in range(5):
        assert ks_2samp(samples[0][:, place], samples[1][:, place]).pvalue > 1e-5


def test_the_length_of_every_message_depends_on_the_setting_alone() -> None:
    small = aggregate(np.zeros((5, 3), int), SMALL, seeded(1), {3: 2}).traffic
    large = aggregate(np.full((5, 3), (1 << 31) - 1), SMALL, seeded(2), {3: 2}).traffic
    for kind, sizes in small.uploaded.items():
        assert np.array_equal(sizes, large.uploaded[kind])
