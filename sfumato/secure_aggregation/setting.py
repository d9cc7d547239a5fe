"""What everybody agrees on before an aggregation, and how many neighbours and shares that takes.

>>> setting = Setting.recommended(clients=500, length=10)
>>> setting.degree, setting.threshold, setting.survivors
(62, 32, 425)
>>> Setting.recommended(clients=4, length=10).degree
3

The graph is Bell, Bonawitz, Gascon, Lepoint and Raykova's (2020, "Secure single-server aggregation with
(poly)logarithmic overhead", Section 3): the clients in random order on a circle, each joined to the ``degree / 2``
next ones on either side. Its conditions are computed with exact hypergeometric tails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import hypergeom

from sfumato.checks import is_integer, is_number
from sfumato.errors import SfumatoError

MAX_CLIENTS = 1 << 20
MAX_LENGTH = 1 << 24
MAX_DEGREE = 65_520
"""One less than the prime field that secrets are shared over has elements."""


class AggregationAbortedError(SfumatoError):
    """Too few clients are left for the sum to be had; nothing but which clients are left was learnt."""


def _require_count(name: str, value: object, low: int, high: int) -> None:
    if not is_integer(value) or not low <= int(value) <= high:  # type: ignore[call-overload]
        raise SfumatoError(f"{name} is {value!r}; allowed is an integer from {low} to {high}.")


def _require_share(name: str, value: object) -> None:
    if not is_number(value) or not 0.0 <= value < 1.0:  # type: ignore[operator]
        raise SfumatoError(f"{name} is {value!r}; allowed is a number from 0 to below 1.")


@dataclass(frozen=True)
class Setting:
    """The public agreement of one aggregation.

    Attributes:
        clients: how many are invited; identities are 0 to ``clients - 1``.
        length: d, integers per client.
        degree: k, neighbours per client: even, or ``clients - 1`` for everybody.
        threshold: t, how many neighbours give back a client's secret. More than half of the degree: then
            survivors are connected, and honest neighbours who answer once can never give back both secrets of a client.
        modulus_bits: b; vectors add up modulo 2^b, so the sum must lie within [-2^(b-1), 2^(b-1)).
        survivors: the least number of inputs that a sum may be of; below, the server stops before it asks for shares.

    Raises:
        SfumatoError: if a field is outside of what is allowed.
    """

    clients: int
    length: int
    degree: int
    threshold: int
    modulus_bits: int = 32
    survivors: int = 2

    def __post_init__(self) -> None:
        """Check the fields and that they agree."""
        _require_count("clients", self.clients, 2, MAX_CLIENTS)
        _require_count("length", self.length, 1, MAX_LENGTH)
        _require_count("degree", self.degree, 1, min(self.clients - 1, MAX_DEGREE))
        if self.degree % 2 and self.degree != self.clients - 1:
            raise SfumatoError(
                f"degree is {self.degree} for {self.clients} clients; allowed is an even number, or {self.clients - 1}."
            )
        _require_count("threshold", self.threshold, self.degree // 2 + 1, self.degree)
        _require_count("modulus_bits", self.modulus_bits, 1, 64)
        _require_count("survivors", self.survivors, 2, self.clients)

    @property
    def word_bytes(self) -> int:
        """Bytes that one masked integer takes in a message."""
        return (self.modulus_bits + 7) // 8

    @classmethod
    def recommended(
        cls,
        clients: int,
        length: int,
        modulus_bits: int = 32,
        corrupted_share: float = 0.1,
        drop_out_share: float = 0.15,
        security_bits: int = 40,
        correctness_bits: int = 30,
    ) -> Setting:
        """The sparsest graph that is safe and robust, after Bell et al. (2020, Section 3).

        With c corrupted clients and at most d drop-outs, both chosen without knowledge of the graph's randomness:

        - except with probability 2^-security_bits, every honest client has fewer than t corrupted neighbours, and the
          honest survivors are connected, so that the server learns no sum of fewer of them;
        - except with probability 2^-correctness_bits, every client has t neighbours left, so that the sum is had.

        Survivors who follow each other on the circle are joined unless degree / 2 consecutive places between them are
        empty, and a circle falls apart only if that happens twice. The probability is thus at most n (n - 1) / 2 times
        that of ``degree`` given places being empty.

        Args:
            clients: n, how many are invited.
            length: integers per client.
            modulus_bits: b, see ``modulus_bits_for``.
            corrupted_share: the clients that may collude with the server, c = ceil(share n).
            drop_out_share: the clients that may fall silent, d = ceil(share n); ``survivors`` is n - d.
            security_bits: sigma.
            correctness_bits: eta.

        Raises:
            SfumatoError: if a value is outside of what is allowed, or no graph of that many clients will do.
        """
        _require_count("clients", clients, 2, MAX_CLIENTS)
        _require_share("corrupted_share", corrupted_share)
        _require_share("drop_out_share", drop_out_share)
        _require_count("security_bits", security_bits, 1, 256)
        _require_count("correctness_bits", correctness_bits, 1, 256)
        corrupted, dropped = _part(corrupted_share, clients), _part(drop_out_share, clients)
        for degree in range(2, min(clients - 1, MAX_DEGREE + 1), 2):
            if _log2_disconnected(clients, corrupted + dropped, degree) > -security_bits - 1:
                continue
            # The graph is drawn among those who sent keys. Corrupted ones do, so the fewer others, the more they are.
            low = _least_threshold(clients - dropped, corrupted, degree, security_bits + 1)
            if low <= degree and _log2_too_few_left(clients, dropped, degree, low) <= -correctness_bits:
                return cls(clients, length, degree, low, modulus_bits, max(2, clients - dropped))
        return cls._complete(clients, length, modulus_bits, corrupted, dropped)

    @classmethod
    def _complete(cls, clients: int, length: int, modulus_bits: int, corrupted: int, dropped: int) -> Setting:
        degree = clients - 1
        low, high = max(corrupted + 1, degree // 2 + 1), degree - dropped
        if low > high or clients - corrupted - dropped < 2:
            raise SfumatoError(
                f"{corrupted} corrupted clients and {dropped} drop-outs of {clients} leave no safe threshold; allowed are "
                "smaller shares or more clients."
            )
        # What there is to spare goes to both sides alike.
        return cls(clients, length, degree, (low + high + 1) // 2, modulus_bits, max(2, clients - dropped))


def modulus_bits_for(clients: int, bound: int) -> int:
    """The smallest b for which no sum of that many integers wraps around: clients * bound < 2^(b-1).

    Args:
        clients: how many vectors are added.
        bound: the largest absolute value of an entry, at least 1.

    Raises:
        SfumatoError: if an argument is no positive integer, or more than 64 bits would be needed.
    """
    for name, value in (("clients", clients), ("bound", bound)):
        if not is_integer(value) or value < 1:
            raise SfumatoError(f"{name} is {value!r}; allowed is an integer of at least 1.")
    bits = (int(clients) * int(bound)).bit_length() + 1
    if bits > 64:
        raise SfumatoError(f"the sum needs a modulus of {bits} bits; allowed are up to 64.")
    return bits


def _part(share: float, clients: int) -> int:
    # What lies this little above an integer got there by rounding.
    return math.ceil(share * clients - 1e-9)


def _log2_at_least(marked: int, others: int, degree: int, least: int) -> float:
    """Log2 of P[at least ``least`` of ``degree`` distinct others, drawn at random, are marked]."""
    high = min(marked, degree)
    if least > high:
        return -math.inf
    counts = np.arange(max(least, 0), high + 1)
    logarithms = np.asarray(hypergeom.logpmf(counts, others, marked, degree), np.float64)
    largest = float(logarithms.max())
    return (largest + math.log(float(np.exp(logarithms - largest).sum()))) / math.log(2.0)


def _log2_disconnected(clients: int, empty: int, degree: int) -> float:
    """Log2 of the bound on the chance that two runs of degree / 2 places are empty."""
    if empty < degree:
        return -math.inf
    places = np.arange(degree)
    pairs = math.log2(clients) + math.log2(clients - 1) - 1.0
    return pairs + float(np.sum(np.log2(empty - places) - np.log2(clients - places)))


def _least_threshold(clients: int, corrupted: int, degree: int, bits: int) -> int:
    """The least t above half of the degree that, for all clients at once, corrupted neighbours stay below.

    Among so few clients that all are neighbours, that is every corrupted one; above ``degree`` if none will do.
    """
    low, high = degree // 2 + 1, degree + 1
    neighbours = min(degree, clients - 1)
    while low < high:
        middle = (low + high) // 2
        if math.log2(clients) + _log2_at_least(corrupted, clients - 1, neighbours, middle) <= -bits:
            high = middle
        else:
            low = middle + 1
    return low


def _log2_too_few_left(clients: int, dropped: int, degree: int, threshold: int) -> float:
    """Log2 of the bound on the chance that some client has fewer than ``threshold`` neighbours left."""
    return math.log2(clients) + _log2_at_least(dropped, clients - 1, degree, degree - threshold + 1)
