"""What uploads cost: exact Gaussian prices of promises, and what a small epsilon would take.

>>> import numpy as np
>>> from sfumato.radiomap.defences import clip_only, uniform
>>> from sfumato.radiomap.partition import partition_of
>>> partition = partition_of(10_000, {"transmitter": np.arange(10)}, sensitive={"transmitter"})
>>> defence = uniform(partition, nu=3.0, clip_norm=1.0)
>>> round(defence.promise.mu, 2), round(price(defence, uploads=1, delta=1e-5).epsilon)
(66.67, 2506)
>>> round(nu_for_epsilon(defence, nu=3.0, epsilon=10.0, delta=1e-5, uploads=1), 1)
100.0
>>> price(clip_only(partition, 1.0), uploads=1, delta=1e-5)
Traceback (most recent call last):
    ...
sfumato.errors.SfumatoError: clip_only adds no noise to the group 'transmitter', which is sent as it is, so no epsilon \
holds; allowed is noise on every group.

The relation is replace: one upload, or all uploads of a client, by any others. An upload's mu is that of its promise;
T of them compose to sqrt(T) mu exactly where all have that noise, and to no more where some have more (Section 3.5 of
docs/papers.md). Epsilons in the thousands are what models of this size cost at the noise that they endure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from dp_accounting import dp_event

from sfumato import accounting
from sfumato.accounting.gaussian import MAX_MU
from sfumato.checks import is_integer
from sfumato.errors import SfumatoError
from sfumato.mechanisms import gaussian_event
from sfumato.radiomap.defences import Defence, GuaranteedDefence, Promise

# What a privacy statement can hold, and what the exact Gaussian price can be computed for.
MAX_EPSILON: Final = 1e6


@dataclass(frozen=True)
class Price:
    """What a number of uploads of one client cost together, for replacing all of them.

    Attributes:
        mu: of their composition.
        epsilon: the exact Gaussian one; infinite where mu is above 1e6 and nothing can be computed.
        zcdp: by zCDP with the optimal conversion, likewise.
        rho: the zCDP parameter, mu^2 / 2.
        delta: of both.
        uploads: how many.
    """

    mu: float
    epsilon: float
    zcdp: float
    rho: float
    delta: float
    uploads: int


def promise_of(defence: Defence) -> Promise:
    """The promise of a defence that makes one.

    Raises:
        SfumatoError: if it makes none, with the reason.
    """
    promise: Promise | None = getattr(defence, "promise", None)
    if promise is None:
        raise SfumatoError(
            f"{defence.name} computes its noise levels from the upload that they protect, so no epsilon holds; allowed is "
            "noise that depends on public values and past releases alone."
        )
    return promise


def why_no_epsilon(defence: Defence) -> str:
    """The sentence that says why a defence promises nothing, empty if it promises something."""
    try:
        promise_of(defence)
    except SfumatoError as refusal:
        return str(refusal)
    return ""


def upload_event(defence: Defence) -> dp_event.DpEvent:
    """What one upload costs, to be recorded when it is made and priced under ``replace_one``.

    A DpEvent's multiplier is sigma over the bound on one contribution, half of the sensitivity: 2 / mu. A defence
    without a promise records an event that protects nothing, and every accountant answers infinity.
    """
    if why_no_epsilon(defence):
        return dp_event.NonPrivateDpEvent()
    return gaussian_event(2.0 / promise_of(defence).mu)


def price(defence: GuaranteedDefence, uploads: int, delta: float) -> Price:
    """The exact price of that many uploads of one client.

    Args:
        defence: one with a promise; the others are refused with the reason.
        uploads: how many, at least 1: 1 where the unit of privacy is one upload.
        delta: in (0, 1).

    Raises:
        SfumatoError: if the defence promises nothing or a number is out of its range.
    """
    return price_of_mu(promise_of(defence).mu * math.sqrt(_checked_uploads(uploads)), uploads, delta)


def price_of_mu(mu: float, uploads: int, delta: float) -> Price:
    """The price of a composition of known mu.

    Raises:
        AccountingError: if delta is not in (0, 1).
    """
    rho = mu * mu / 2.0
    if not mu <= MAX_MU:
        return Price(mu, math.inf, math.inf, rho, delta, uploads)
    return Price(
        mu, accounting.gaussian_epsilon(mu, delta), accounting.zcdp_epsilon(rho, delta), rho, delta, uploads
    )


def nu_for_epsilon(
    defence: GuaranteedDefence, nu: float, epsilon: float, delta: float, uploads: int
) -> float:
    """The nu at which the same defence would cost that epsilon: mu is inversely proportional to nu.

    Args:
        defence: one with a promise, made with ``nu``.
        nu: what it was made with, above 0.
        epsilon: the target, such as 10.
        delta: in (0, 1).
        uploads: of one client, at least 1.

    Raises:
        SfumatoError: if the defence promises nothing or a number is out of its range.
    """
    if not 0.0 < nu < math.inf:
        raise SfumatoError(f"nu is {nu!r}; allowed is a finite number above 0.")
    per_upload = accounting.gaussian_mu(epsilon, delta) / math.sqrt(_checked_uploads(uploads))
    return nu * promise_of(defence).mu / per_upload


def _checked_uploads(uploads: int) -> int:
    if not is_integer(uploads) or uploads < 1:
        raise SfumatoError(f"uploads is {uploads!r}; allowed is an integer of at least 1.")
    return uploads
