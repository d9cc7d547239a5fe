"""Events reduced to what the accountants price: how often which (rate, multiplier) was released.

>>> from sfumato.mechanisms import subsampled_gaussian
>>> spent([subsampled_gaussian(0.01, 1.0, 300), subsampled_gaussian(0.01, 1.0, 700)]).releases
(Release(sampling_rate=0.01, noise_multiplier=1.0, count=1000),)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from dp_accounting import dp_event

from sfumato.errors import AccountingError

MAX_STEPS = 10**8


@dataclass(frozen=True, order=True)
class Release:
    """``count`` Gaussian releases over Poisson samples.

    Attributes:
        sampling_rate: in (0, 1]; 1 is a release of all records.
        noise_multiplier: sigma over the bound C on one record's contribution, above 0.
        count: number of releases.
    """

    sampling_rate: float
    noise_multiplier: float
    count: int


@dataclass(frozen=True)
class Spent:
    """A composition in canonical form, so that the order of events cannot matter.

    Attributes:
        releases: sorted; equal rate and multiplier are merged.
        zcdp_rho: total of the ZCDpEvents, which only the zCDP and RDP accountants can price.
        non_private: whether some event protects nothing.
    """

    releases: tuple[Release, ...]
    zcdp_rho: float
    non_private: bool

    @property
    def gaussian_only(self) -> bool:
        """Whether every release is of all records."""
        return all(release.sampling_rate == 1.0 for release in self.releases)

    @property
    def steps(self) -> int:
        """Number of releases."""
        return sum(release.count for release in self.releases)

    def mu(self, sensitivity: float) -> float:
        """Mu of the composed releases of all records, when one record moves the sum by sensitivity * C."""
        return sensitivity * math.sqrt(
            math.fsum(r.count / r.noise_multiplier**2 for r in self.releases if r.sampling_rate == 1.0)
        )


class _Collector:
    """Walks events and adds up counts."""

    def __init__(self) -> None:
        self.counts: dict[tuple[float, float], int] = {}
        self.rhos: list[float] = []
        self.non_private = False

    def add(self, event: object, count: int) -> None:
        """Add ``count`` times the event."""
        if isinstance(event, dp_event.NoOpDpEvent) or count == 0:
            return
        if isinstance(event, dp_event.NonPrivateDpEvent):
            self.non_private = True
        elif isinstance(event, dp_event.SelfComposedDpEvent):
            self.add(event.event, count * _count_of(event.count))
        elif isinstance(event, dp_event.ComposedDpEvent):
            for part in cast("Sequence[object]", event.events):
                self.add(part, count)
        elif isinstance(event, dp_event.GaussianDpEvent):
            self._release(1.0, float(event.noise_multiplier), count)
        elif isinstance(event, dp_event.ZCDpEvent) and event.xi == 0 and event.rho >= 0:
            self.rhos.append(count * float(event.rho))
        elif isinstance(event, dp_event.PoissonSampledDpEvent) and isinstance(
            event.event, dp_event.GaussianDpEvent
        ):
            self._release(float(event.sampling_probability), float(event.event.noise_multiplier), count)
        else:
            raise AccountingError(
                f"event {event!r} cannot be priced; allowed are Gaussian, Poisson-sampled Gaussian, "
                "zCDP (xi = 0), no-op and non-private events and their compositions."
            )

    def _release(self, rate: float, multiplier: float, count: int) -> None:
        if not 0.0 <= rate <= 1.0:
            raise AccountingError(f"sampling_rate is {rate!r}; allowed is a number from 0 to 1.")
        if not 0.0 <= multiplier < math.inf:
            raise AccountingError(
                f"noise_multiplier is {multiplier!r}; allowed is a finite number of at least 0."
            )
        if rate == 0:
            return
        if multiplier == 0:
            self.non_private = True
            return
        if not 1e-6 <= multiplier <= 1e9:
            raise AccountingError(f"noise_multiplier is {multiplier!r}; allowed is 0 or 1e-06 to 1e+09.")
        if rate < 1e-12:
            raise AccountingError(f"sampling_rate is {rate!r}; allowed is 0 or 1e-12 to 1.")
        self.counts[rate, multiplier] = self.counts.get((rate, multiplier), 0) + count


def _count_of(count: object) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise AccountingError(
            f"count of a self-composed event is {count!r}; allowed is an integer of at least 0."
        )
    return count


def spent(events: Iterable[dp_event.DpEvent] | dp_event.DpEvent) -> Spent:
    """The canonical form of a composition of events.

    Raises:
        AccountingError: if an event cannot be priced or there are more than ``MAX_STEPS`` of them.
    """
    collector = _Collector()
    for event in [events] if isinstance(events, dp_event.DpEvent) else events:
        collector.add(event, 1)
    total = sum(collector.counts.values())
    if total > MAX_STEPS:
        raise AccountingError(f"number of steps is {total}; allowed is at most {MAX_STEPS}.")
    releases = tuple(sorted(Release(q, s, count) for (q, s), count in collector.counts.items()))
    return Spent(releases, math.fsum(collector.rhos), collector.non_private)
