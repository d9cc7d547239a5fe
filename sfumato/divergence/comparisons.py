"""What is compared: pairs of a public reference and a private population, made from a prepared data set.

>>> from sfumato.datasets.generated_population import generate_population, zipf_law
>>> from sfumato.rng import Streams
>>> data = generate_population(zipf_law(8), 40, 50, Streams(0).stream("data"), series=0)
>>> pairs = compare(data, "labels", CompareSetting(0.05, (0.0, 0.5), "labels", 200), Streams(0))
>>> [pair.name for pair in pairs], pairs[0].examples
(['0', '0.5'], 200)

References are public by decree: half of the clients, or all images of one digit, play the public data of a deployment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.datasets.population import (
    CLASSES,
    STAFF,
    STUDENTS,
    UNKNOWN,
    Population,
    View,
    mixture,
    split_clients,
    values_of,
)
from sfumato.divergence.counting import Counts, cell_counts, code_counts
from sfumato.divergence.evaluation import exact_divergence
from sfumato.divergence.plan import Vector
from sfumato.divergence.reference import Reference
from sfumato.errors import SfumatoError
from sfumato.rng import Streams

Drift = Literal["labels", "series"]
DRIFTED_LABEL = CLASSES // 2
"""Under a drift of labels the population moves towards the labels from here on."""


@dataclass(frozen=True)
class CompareSetting:
    """Public numbers of the comparisons.

    Attributes:
        minimum_probability: pi_min of every reference.
        shares: of the drifted group in the population, one pair each.
        drift: towards the students (``series``) or towards the larger labels (``labels``).
        examples: N of each mixed population.
    """

    minimum_probability: float
    shares: tuple[float, ...]
    drift: Drift
    examples: int


@dataclass(frozen=True, eq=False)
class Pair:
    """One public reference and one private population.

    Attributes:
        name: of the pair, such as ``3-8`` or the share of drift.
        reference: Pi.
        values: (N,) int32, the raw code of every example.
        clients: (N,) int64, which client holds it, 0 to clients - 1.
        counts: (cells,) int64, of the population over the reference's cells.
    """

    name: str
    reference: Reference
    values: NDArray[np.int32]
    clients: NDArray[np.int64]
    counts: Counts

    @classmethod
    def of(cls, name: str, reference: Reference, values: NDArray[np.int32], clients: NDArray[Any]) -> Pair:
        """The pair, with clients numbered from 0."""
        _identities, numbers = np.unique(clients, return_inverse=True)
        return cls(name, reference, values, numbers.astype(np.int64), cell_counts(values, reference))

    @property
    def examples(self) -> int:
        """N, public."""
        return len(self.values)

    @property
    def client_count(self) -> int:
        """How many clients hold the examples."""
        return int(self.clients.max()) + 1

    @property
    def probabilities(self) -> Vector:
        """P over the cells, without privacy."""
        return self.counts / self.counts.sum()

    def divergence(self, smoothing: float = 0.0) -> float:
        """KL(Pi || (1 - s) P + s Pi) over the cells; without smoothing s infinite where P misses a cell."""
        smoothed = (1.0 - smoothing) * self.probabilities + smoothing * self.reference.probabilities
        return exact_divergence(self.reference, smoothed)

    def group_counts(self, groups: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """(count, cells) counts of groups of clients.

        Args:
            groups: (clients,) the group of each client.
            count: how many groups.
        """
        cells = self.reference.cells
        flat = groups[self.clients] * cells + self.reference.cell_of[self.values]
        return np.bincount(flat, minlength=count * cells).reshape(count, cells).astype(np.int64)


def compare(population: Population, comparison: str, setting: CompareSetting, streams: Streams) -> list[Pair]:
    """The pairs of one comparison.

    Args:
        population: the whole data set.
        comparison: ``digits``: the codes of one digit against those of another, all ordered pairs. Else a view of the
            data, ``codes``, ``labels`` or ``labels_series``: half of the clients against a drifting population of the
            other half.
        setting: public numbers.
        streams: which examples a mixture takes.

    Raises:
        SfumatoError: if the data have no such groups, or too few examples.
    """
    if comparison == "digits":
        return digit_pairs(population, setting.minimum_probability)
    return drift_pairs(population, comparison, setting, streams)  # type: ignore[arg-type]


def digit_pairs(population: Population, minimum_probability: float) -> list[Pair]:
    """Every ordered pair of digits on the view ``codes``: the first one is the reference."""
    groups = [population.labels == label for label in range(CLASSES)]
    codes = [population.codes[group] for group in groups]
    present = [label for label in range(CLASSES) if len(codes[label]) > 1]
    references = {
        label: Reference.from_counts(code_counts(codes[label], population.domain), minimum_probability)
        for label in present
    }
    return [
        Pair.of(f"{first}-{second}", references[first], codes[second], population.clients[groups[second]])
        for first in present
        for second in present
        if first != second
    ]


def drift_pairs(population: Population, view: View, setting: CompareSetting, streams: Streams) -> list[Pair]:
    """A reference of half of the clients, and the others' population at each share of drift."""
    kept, populations = drift_populations(population, view, setting, streams)
    values, domain = values_of(kept, view)
    reference = Reference.from_counts(code_counts(values, domain), setting.minimum_probability)
    return [
        Pair.of(f"{share:g}", reference, values_of(mixed, view)[0], mixed.clients)
        for share, mixed in zip(setting.shares, populations, strict=True)
    ]


def drift_populations(
    population: Population, view: View, setting: CompareSetting, streams: Streams
) -> tuple[Population, list[Population]]:
    """(the public half, the private populations at each share); no example is in one of them twice.

    Args:
        population: the whole data set.
        view: of the comparison.
        setting: public numbers.
        streams: which examples a mixture takes.

    Raises:
        SfumatoError: if the series are needed and not known, or there are too few examples.
    """
    base, drifted = drift_groups(population, view, setting.drift)
    kept, current = split_clients(base, 0.5)
    if drifted is None:  # those towards whom it drifts are among the others, so the two parts share no client
        current, others = split_clients(current, 0.5)
        drifted = others.select(_drifting(others, setting.drift))
    mixed = [
        mixture(current, drifted, share, setting.examples, streams.stream("mixture", number))
        for number, share in enumerate(setting.shares)
    ]
    return kept, mixed


def _drifting(population: Population, drift: Drift) -> NDArray[np.bool_]:
    """Which examples the population drifts towards."""
    return population.labels >= DRIFTED_LABEL if drift == "labels" else population.series == STUDENTS


def drift_groups(population: Population, view: View, drift: Drift) -> tuple[Population, Population | None]:
    """(those whom the reference describes, those whom the population drifts towards; None if they are among the first).

    Raises:
        SfumatoError: if the drift is one of series and the series are not known.
    """
    if drift == "labels":
        return population, None
    if bool((population.series == UNKNOWN).any()):
        raise SfumatoError(
            "drift is 'series' and the series of some examples are unknown; allowed is 'labels', or data whose series "
            "are known, such as those of data.population_partition writer."
        )
    if view == "labels_series":
        return population, None
    return population.of_series(STAFF), population.of_series(STUDENTS)
