"""Generated populations of any size, whose distribution, and so whose divergence from the reference, is known exactly.

>>> from sfumato.rng import Streams
>>> law = zipf_law(domain=4, exponent=1.0, drift=0.5)
>>> law.reference.round(3).tolist(), law.current.round(3).tolist()
([0.48, 0.24, 0.16, 0.12], [0.3, 0.2, 0.2, 0.3])
>>> round(law.divergence, 4)
0.1237
>>> people = generate_population(law, 3, 5, Streams(0).stream("people"))
>>> len(people), people.clients.tolist()[::5]
(15, [0, 1, 2])

The population drifts from the reference law towards the same law with its cells in reverse order, so that what was rare
becomes common: P = (1 - drift) Pi + drift reverse(Pi). Both laws are positive everywhere, so KL(Pi || P) is finite for
every drift; at drift 0 it is 0. The label of an example is its code modulo 10.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.checks import is_integer, is_number
from sfumato.datasets.fetching import RawFile, Source
from sfumato.datasets.population import (
    CLASSES,
    MAXIMUM_DOMAIN,
    SERIES,
    STAFF,
    STUDENTS,
    UNKNOWN,
    Population,
    check_declared,
    joined,
)
from sfumato.datasets.population_partition import dirichlet_rows, draw_categories
from sfumato.datasets.population_specs import GENERATED_DOMAIN, get_population_spec
from sfumato.errors import SfumatoError
from sfumato.rng import RandomStream, Streams

NAME: Final = "generated_population"
EXPONENT: Final = 1.0
DRIFT: Final = 0.25
EXAMPLES_PER_CLIENT: Final = 50
PUBLIC_SEED: Final = 1
"""Of the data set ``generated_population``; it is public data, so its seed is public too."""
LARGEST_EXPONENT: Final = 10.0


@dataclass(frozen=True, eq=False)
class GeneratedLaw:
    """A public reference law and the law of the population, both known exactly.

    Attributes:
        reference: Pi, float64 of shape (domain,), positive, summing to 1.
        current: P, float64 of shape (domain,), positive, summing to 1.
    """

    reference: NDArray[np.float64]
    current: NDArray[np.float64]

    @property
    def divergence(self) -> float:
        """KL(Pi || P) in nats."""
        return math.fsum(self.reference * np.log(self.reference / self.current))


def zipf_law(domain: int, exponent: float = EXPONENT, drift: float = DRIFT) -> GeneratedLaw:
    """The law whose reference mass of cell x is proportional to (x + 1)^-exponent.

    Args:
        domain: how many cells.
        exponent: from 0, the uniform law, to 10.
        drift: share of the reversed law in the population's, from 0 to 1.

    Raises:
        SfumatoError: if a number is outside of what is allowed.
    """
    _require_count("domain", domain)
    if not is_number(exponent) or not 0.0 <= exponent <= LARGEST_EXPONENT:
        raise SfumatoError(f"exponent is {exponent!r}; allowed is a number from 0 to {LARGEST_EXPONENT:g}.")
    return drifted_law(np.arange(1, domain + 1, dtype=np.float64) ** -float(exponent), drift)


def dirichlet_law(domain: int, concentration: float, drift: float, stream: RandomStream) -> GeneratedLaw:
    """The law whose reference is one draw from the symmetric Dirichlet distribution.

    Args:
        domain: how many cells.
        concentration: the parameter of every cell, at least 0.1; small ones give uneven laws.
        drift: share of the reversed law in the population's, from 0 to 1.
        stream: where the draw comes from.

    Raises:
        SfumatoError: if a number is outside of what is allowed.
    """
    _require_count("domain", domain)
    return drifted_law(dirichlet_rows(1, domain, concentration, stream)[0], drift)


def drifted_law(weights: NDArray[np.float64], drift: float) -> GeneratedLaw:
    """The law of a reference proportional to the weights, drifted towards its own reverse.

    Args:
        weights: positive, float64 of shape (domain,).
        drift: from 0 to 1.

    Raises:
        SfumatoError: if a weight is not positive and finite, or the drift is outside of what is allowed.
    """
    if weights.ndim != 1 or not weights.size or not bool(((weights > 0) & np.isfinite(weights)).all()):
        raise SfumatoError("weights of a generated law are not all positive and finite; that is needed.")
    if not is_number(drift) or not 0.0 <= drift <= 1.0:
        raise SfumatoError(f"drift is {drift!r}; allowed is a number from 0 to 1.")
    reference = weights / math.fsum(weights)
    return GeneratedLaw(reference, (1.0 - drift) * reference + drift * reference[::-1])


def generate_population(
    law: GeneratedLaw,
    clients: int,
    examples_per_client: int | NDArray[Any],
    stream: RandomStream,
    *,
    current: bool = True,
    series: int = UNKNOWN,
    first_client: int = 0,
) -> Population:
    """Independent examples of the law, held by clients of given sizes.

    Args:
        law: the reference law and the population's.
        clients: how many.
        examples_per_client: of all, or integers of shape (clients,) of at least 1.
        stream: where the draws come from.
        current: draw from P; else from the reference Pi.
        series: of every example, `STAFF`, `STUDENTS` or `UNKNOWN`.
        first_client: the identity of the first client; the others follow.

    Returns:
        the population, client by client; its domain is that of the law.

    Raises:
        SfumatoError: if a number is outside of what is allowed.
    """
    _require_count("clients", clients)
    if not is_integer(first_client) or not 0 <= first_client <= np.iinfo(np.int32).max - clients:
        raise SfumatoError(
            f"first_client is {first_client!r}; allowed is an integer from 0 that leaves room."
        )
    if series not in SERIES:
        raise SfumatoError(f"series is {series!r}; allowed are {SERIES}.")
    sizes = _sizes(clients, examples_per_client)
    total = int(sizes.sum())
    codes = draw_categories(law.current if current else law.reference, total, stream).astype(np.int32)
    identities = np.arange(first_client, first_client + clients, dtype=np.int32)
    return Population(
        codes=codes,
        labels=(codes % CLASSES).astype(np.int16),
        clients=np.repeat(identities, sizes),
        series=np.full(total, series, np.int16),
        domain=len(law.reference),
    )


def files(_options: Mapping[str, str]) -> tuple[RawFile, ...]:
    """No raw file is needed."""
    return ()


def sources(_options: Mapping[str, str]) -> tuple[Source, ...]:
    """No source is needed."""
    return ()


def prepare(_raw_dir: Path, options: Mapping[str, str]) -> Population:
    """The data set ``generated_population``, the same for everyone: `public_law`, 2,000 clients with 50 examples each.

    The first half of the clients follow the reference law and are of the series `STAFF`, the others follow the drifted
    law and are of the series `STUDENTS`.
    """
    half = (get_population_spec(NAME).examples or 0) // EXAMPLES_PER_CLIENT // 2
    law, streams = public_law(), Streams(PUBLIC_SEED)
    parts = [
        generate_population(
            law,
            half,
            EXAMPLES_PER_CLIENT,
            streams.stream("generated_population", series),
            current=series == STUDENTS,
            series=series,
            first_client=first,
        )
        for series, first in ((STAFF, 0), (STUDENTS, half))
    ]
    return check_declared(joined(parts, NAME, options))


def public_law() -> GeneratedLaw:
    """The law of the data set: 1,024 cells, Zipf's law with exponent 1, a drift of 1/4."""
    return zipf_law(GENERATED_DOMAIN, EXPONENT, DRIFT)


def _sizes(clients: int, examples_per_client: int | NDArray[Any]) -> NDArray[np.int64]:
    """How many examples each client holds."""
    if is_integer(examples_per_client):
        sizes = np.full(clients, examples_per_client, np.int64)
    else:
        given = np.asarray(examples_per_client)
        if given.shape != (clients,) or given.dtype.kind not in "iu":
            raise SfumatoError(
                f"examples_per_client has dtype {given.dtype} and shape {given.shape}; allowed is an integer, or "
                f"integers of shape ({clients},)."
            )
        sizes = given.astype(np.int64)
    if sizes.min() < 1:
        raise SfumatoError(f"examples_per_client is {int(sizes.min())}; allowed is an integer of at least 1.")
    return sizes


def _require_count(name: str, value: int) -> None:
    if not is_integer(value) or not 1 <= value <= MAXIMUM_DOMAIN:
        raise SfumatoError(f"{name} is {value!r}; allowed is an integer from 1 to {MAXIMUM_DOMAIN}.")
