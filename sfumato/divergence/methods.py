"""Every way of estimating that is compared, by name.

>>> get_method("per_batch").trust, get_method("non_private").private
('central', False)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from sfumato.errors import SfumatoError

Trust = Literal["none", "central", "distributed", "local"]


@dataclass(frozen=True)
class Method:
    """One line of the comparison.

    Attributes:
        name: as in parameters and records.
        trust: ``central`` where one party sees sums without noise, ``distributed`` where clients share the noise,
            ``local`` where each adds all of it, ``none`` without noise.
        drawn: whether public points are drawn; otherwise every cell is asked.
    """

    name: str
    trust: Trust
    drawn: bool = True

    @property
    def private(self) -> bool:
        """Whether it has an epsilon."""
        return self.trust != "none"


_ALL = (
    Method("non_private", "none"),
    Method("trusted_aggregator", "central"),
    Method("all_cells", "central", drawn=False),
    Method("per_batch", "central"),
    Method("distributed", "distributed"),
    Method("local_mix", "local"),
    Method("local_clip", "local"),
    Method("histogram", "central", drawn=False),
)
METHODS: Mapping[str, Method] = MappingProxyType({method.name: method for method in _ALL})


def get_method(name: str) -> Method:
    """The method of that name.

    Raises:
        SfumatoError: if there is none.
    """
    if name not in METHODS:
        raise SfumatoError(f"method is {name!r}; allowed are {', '.join(METHODS)}.")
    return METHODS[name]
