"""A prepared population: one code of a finite domain per example, who holds it, and its npz file.

>>> rows = np.arange(4)
>>> people = Population(rows.astype(np.int32), np.array([3, 3, 7, 1], np.int16), np.array([5, 5, 9, 9], np.int32),
...                     np.array([0, 0, 4, 4], np.int16), domain=16)
>>> codes, domain = values_of(people, "labels_series")
>>> codes.tolist(), domain
([3, 3, 17, 11], 20)
>>> groups = client_groups(people)
>>> groups.identities.tolist(), groups.rows(1).tolist()
([5, 9], [2, 3])

A raw code says what an example is; which reference cell it belongs to is decided later, from public quantities. The
series tells two groups of people apart, between whom the distribution really drifts: `STAFF` and `STUDENTS` of NIST.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from sfumato.artifacts import PathLike
from sfumato.checks import is_integer, is_number
from sfumato.datasets.population_specs import PopulationSpec, get_population_spec
from sfumato.datasets.prepared import read_named, write_named
from sfumato.datasets.spec import public_permutation
from sfumato.errors import SfumatoError
from sfumato.rng import RandomStream

View = Literal["codes", "labels", "labels_series"]

STAFF: Final = 0
"""The series of NIST's employees, and of whoever else is the reference population."""
STUDENTS: Final = 4
"""The series of the high-school students, and of whoever else the reference drifts to."""
UNKNOWN: Final = -1
SERIES: Final = (UNKNOWN, STAFF, STUDENTS)
CLASSES: Final = 10
"""How many labels there are, 0..9, in every population."""
MAXIMUM_DOMAIN: Final = 1 << 30

_PARTS: Mapping[str, type[np.signedinteger[Any]]] = {
    "codes": np.int32,
    "labels": np.int16,
    "clients": np.int32,
    "series": np.int16,
}


@dataclass(frozen=True, eq=False)
class Population:
    """Examples of many clients; row i of each array belongs to example i.

    Attributes:
        codes: raw codes, int32 of shape (N,) in 0..domain-1.
        labels: classes, int16 of shape (N,) in 0..9.
        clients: identities of the clients that hold the examples, int32 of shape (N,), at least 0.
        series: int16 of shape (N,): `STAFF`, `STUDENTS`, or `UNKNOWN`.
        domain: how many values a raw code has.
        name: a name in `POPULATION_SPECS` for a data set, empty for a part or a mixture of one.
        options: what it was prepared with.

    Raises:
        SfumatoError: if an array has another type or shape, or a value lies outside of what is allowed. The sentence
            names the array and what is allowed but none of its values, which are private.
    """

    codes: NDArray[np.int32]
    labels: NDArray[np.int16]
    clients: NDArray[np.int32]
    series: NDArray[np.int16]
    domain: int
    name: str = ""
    options: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        """Check every array."""
        if not is_integer(self.domain) or not 1 <= self.domain <= MAXIMUM_DOMAIN:
            raise SfumatoError(
                f"domain is {self.domain!r}; allowed is an integer from 1 to {MAXIMUM_DOMAIN}."
            )
        shape = np.shape(self.codes)
        for part, dtype in _PARTS.items():
            values: NDArray[Any] = getattr(self, part)
            if values.dtype != dtype or values.ndim != 1 or values.shape != shape:
                raise SfumatoError(
                    f"{part} of a population have dtype {values.dtype} and shape {values.shape}; allowed is "
                    f"{np.dtype(dtype)} of one dimension and of the codes' shape {shape}."
                )
        if shape == (0,):
            raise SfumatoError("a population has 0 examples; allowed is at least 1.")
        _require_range("codes", self.codes, 0, self.domain - 1)
        _require_range("labels", self.labels, 0, CLASSES - 1)
        _require_range("clients", self.clients, 0, int(np.iinfo(np.int32).max))
        if not np.isin(self.series, SERIES).all():
            raise SfumatoError(f"series of a population hold other values; allowed are {SERIES}.")

    def __len__(self) -> int:
        """N, the number of examples; public under the relation "replace one example"."""
        return len(self.codes)

    @property
    def spec(self) -> PopulationSpec:
        """The public facts.

        Raises:
            SfumatoError: if this is no whole data set.
        """
        return get_population_spec(self.name)

    @property
    def title(self) -> str:
        """Its name in reports, which says when the clients are not real people."""
        partition = self.options.get("partition", "")
        suffix = {"writer": " by writer", "dirichlet": " of pseudo-clients"}.get(partition, "")
        return f"{self.spec.title}{suffix}"

    def select(self, rows: NDArray[Any]) -> Population:
        """The examples at these row numbers, or where this mask is true.

        Raises:
            SfumatoError: if no example is left.
        """
        return Population(
            self.codes[rows], self.labels[rows], self.clients[rows], self.series[rows], self.domain
        )

    def of_series(self, series: int) -> Population:
        """The examples of one series, `STAFF` or `STUDENTS`.

        Raises:
            SfumatoError: if there is none.
        """
        rows = np.flatnonzero(self.series == series)
        if not len(rows):
            raise SfumatoError(
                f"the population has no example of series {series!r}; allowed is one that it holds, and the "
                "pseudo-clients of the partition dirichlet have none."
            )
        return self.select(rows)


@dataclass(frozen=True, eq=False)
class ClientGroups:
    """Which examples each client holds.

    Attributes:
        identities: the distinct clients, int32 of shape (n,), ascending.
        order: row numbers of the population, int64 of shape (N,), client by client and ascending within each.
        starts: int64 of shape (n + 1,): client i holds ``order[starts[i] : starts[i + 1]]``.
    """

    identities: NDArray[np.int32]
    order: NDArray[np.int64]
    starts: NDArray[np.int64]

    def rows(self, client: int) -> NDArray[np.int64]:
        """The row numbers of the ``client``-th client, counted from 0 in the order of ``identities``."""
        return self.order[self.starts[client] : self.starts[client + 1]]

    def sizes(self) -> NDArray[np.int64]:
        """How many examples each client holds, shape (n,)."""
        return np.diff(self.starts)


def client_groups(population: Population) -> ClientGroups:
    """Which rows each client holds, in one sort."""
    order = np.argsort(population.clients, kind="stable").astype(np.int64)
    identities, first = np.unique(population.clients[order], return_index=True)
    return ClientGroups(identities, order, np.append(first, len(order)).astype(np.int64))


def values_of(population: Population, view: str) -> tuple[NDArray[np.int32], int]:
    """What is counted of each example.

    Args:
        population: the examples.
        view: ``codes``: the raw codes. ``labels``: the classes, 10 values. ``labels_series``: label + 10 for students
            and the label alone for staff, 20 values.

    Returns:
        int32 of shape (N,), and the number of values that the view has.

    Raises:
        SfumatoError: if there is no such view, or the series of an example is unknown where the view needs it.
    """
    if view not in get_args(View):
        raise SfumatoError(f"view is {view!r}; allowed are {', '.join(get_args(View))}.")
    if view == "codes":
        return population.codes, population.domain
    labels = population.labels.astype(np.int32)
    if view == "labels":
        return labels, CLASSES
    if (population.series == UNKNOWN).any():
        raise SfumatoError(
            "view is 'labels_series' and the series of some examples are unknown; allowed is a population whose "
            "series are known, such as that of data.population_partition writer."
        )
    return labels + np.int32(CLASSES) * (population.series == STUDENTS), 2 * CLASSES


def split_clients(population: Population, share: float) -> tuple[Population, Population]:
    """Two parts of a population without a client in common, parted by a fixed public permutation of the identities.

    Args:
        population: the examples.
        share: of the clients, rounded to a whole number of them, that go to the first part; between 0 and 1.

    Raises:
        SfumatoError: if the share is no number between 0 and 1, or leaves one part without a client.
    """
    if not is_number(share) or not 0.0 < share < 1.0:
        raise SfumatoError(f"share is {share!r}; allowed is a number between 0 and 1.")
    identities = np.unique(population.clients)
    count = round(share * len(identities))
    if not 0 < count < len(identities):
        raise SfumatoError(
            f"share is {share!r} of {len(identities)} clients; allowed is what leaves each part at least one."
        )
    chosen = identities[public_permutation("population", len(identities))[:count]]
    inside = np.isin(population.clients, chosen)
    return population.select(inside), population.select(~inside)


def mixture(
    first: Population, second: Population, share: float, examples: int, stream: RandomStream
) -> Population:
    """A population that has drifted from the first one towards the second: N examples drawn without replacement.

    Args:
        first: where (1 - share) N examples come from, such as staff that the reference does not hold.
        second: where share N examples, rounded to a whole number, come from, such as the students.
        share: from 0 to 1.
        examples: N, the same for every share, as "replace one example" needs it.
        stream: where the draws come from.

    Returns:
        the drawn examples with their labels, clients and series; those of the first population come first.

    Raises:
        SfumatoError: if the domains differ, a number is not allowed, or a population has too few examples.
    """
    if first.domain != second.domain:
        raise SfumatoError(f"the domains are {first.domain} and {second.domain}; allowed are equal ones.")
    if not is_number(share) or not 0.0 <= share <= 1.0:
        raise SfumatoError(f"share is {share!r}; allowed is a number from 0 to 1.")
    if not is_integer(examples) or examples < 1:
        raise SfumatoError(f"examples is {examples!r}; allowed is an integer of at least 1.")
    drifted = round(share * examples)
    parts: list[Population] = []
    for source, count in ((first, examples - drifted), (second, drifted)):
        if count > len(source):
            raise SfumatoError(
                f"a mixture of share {share!r} needs {count} examples of a population that has {len(source)}; "
                "allowed are as many as it has."
            )
        if count:
            parts.append(source.select(stream.permutation(len(source))[:count]))
    return joined(parts)


def joined(
    parts: Sequence[Population], name: str = "", options: Mapping[str, str] | None = None
) -> Population:
    """The examples of several populations, one after the other.

    Args:
        parts: at least one, of one domain; a client of the same identity in two parts is one client.
        name: of the data set that they make up, if they do.
        options: what it was prepared with.

    Raises:
        SfumatoError: if the domains differ.
    """
    domains = {part.domain for part in parts}
    if len(domains) != 1:
        raise SfumatoError(f"the domains are {sorted(domains)}; allowed is one that all populations share.")
    return Population(
        codes=np.concatenate([part.codes for part in parts]),
        labels=np.concatenate([part.labels for part in parts]),
        clients=np.concatenate([part.clients for part in parts]),
        series=np.concatenate([part.series for part in parts]),
        domain=domains.pop(),
        name=name,
        options=dict(options or {}),
    )


def check_declared(population: Population) -> Population:
    """The population itself, if it has the number of examples and the domain that its spec declares.

    Raises:
        SfumatoError: if either differs; the sentence names both values.
    """
    spec = population.spec
    if population.domain != spec.domain:
        raise SfumatoError(f"{spec.name} has the domain {population.domain}; declared is {spec.domain}.")
    if spec.examples is not None and len(population) != spec.examples:
        raise SfumatoError(f"{spec.name} has {len(population)} examples; declared are {spec.examples}.")
    return population


def save_population(path: PathLike, population: Population) -> None:
    """Write a prepared population as a byte-stable npz file.

    Raises:
        SfumatoError: if it is no whole data set of `POPULATION_SPECS`.
    """
    check_declared(population)
    arrays = {part: getattr(population, part) for part in _PARTS}
    arrays["domain"] = np.array(population.domain, np.int64)
    write_named(path, population.name, population.options, arrays)


def load_population(path: PathLike) -> Population:
    """Read a prepared population and hold it against its spec.

    Raises:
        SfumatoError: if the file is missing, damaged, not a prepared population, or differs from its spec.
    """
    content = read_named(path, {*_PARTS, "domain"})
    domain = content.arrays["domain"]
    if domain.shape != () or domain.dtype.kind not in "iu":
        raise SfumatoError(
            f"{Path(path)} has a domain of dtype {domain.dtype} and shape {domain.shape}; it is no prepared "
            "population, so delete it and rerun the step that makes it."
        )
    codes, labels, clients, series = (content.arrays[part] for part in _PARTS)
    population = Population(
        codes, labels, clients, series, int(domain), name=content.name, options=content.options
    )
    population.spec.resolve(population.options)
    return check_declared(population)


def _require_range(name: str, values: NDArray[Any], low: int, high: int) -> None:
    if values.min() < low or values.max() > high:
        raise SfumatoError(f"{name} of a population leave their range; allowed are {low} to {high}.")
