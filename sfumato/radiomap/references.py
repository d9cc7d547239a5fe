"""Radio maps without a network, by the mean map or by distance alone; and how a network is measured.

>>> import numpy as np
>>> distance = np.array([8.0, 80.0, 800.0])
>>> found = PathLoss.fit_values(distance, 0.9 - 0.3 * np.log10(distance))
>>> round(found.intercept, 6), round(found.slope, 6)
(0.9, -0.3)

All errors are mean squares over free cells in encoded units; `sfumato.radiomap.encoding.decibels` puts them in dB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sfumato.errors import SfumatoError
from sfumato.radiomap.client import checked_pairs
from sfumato.radiomap.maps import MapSet

_BATCH = 32


class Reference(Protocol):
    """Predicts radio maps from something simple."""

    def predict(self, maps: MapSet, pairs: NDArray[np.integer]) -> NDArray[np.float64]:
        """(b, s, s) encoded path gain."""
        ...


@dataclass(frozen=True, eq=False)
class MeanMap:
    """The mean of the training maps, cell by cell: the best prediction that looks at neither buildings nor transmitter.

    Attributes:
        values: (s, s) float64; a cell that was never free has the mean over all others.
    """

    values: NDArray[np.float64]

    @classmethod
    def fit(cls, maps: MapSet, pairs: NDArray[np.integer]) -> MeanMap:
        """Average the named maps over those where a cell is free.

        Args:
            maps: the training maps.
            pairs: (b, 2), which of them.

        Raises:
            SfumatoError: if the pairs do not fit.
        """
        chosen = checked_pairs(maps, pairs)
        masks, targets = _free(maps, chosen), _truth(maps, chosen)
        counts, sums = masks.sum(axis=0), (targets * masks).sum(axis=0)
        values = sums / np.maximum(counts, 1)
        values[counts == 0] = float(sums.sum() / counts.sum())
        return cls(values)

    def predict(self, maps: MapSet, pairs: NDArray[np.integer]) -> NDArray[np.float64]:
        """(b, s, s): the same map for every pair.

        Raises:
            SfumatoError: if the maps are of another size.
        """
        if maps.size != len(self.values):
            raise SfumatoError(
                f"the maps have {maps.size} cells along a side; allowed are {len(self.values)}."
            )
        return np.repeat(self.values[None], len(pairs), axis=0)


@dataclass(frozen=True)
class PathLoss:
    """Encoded gain = intercept + slope log10(distance / 1 m), fitted by least squares over free cells.

    Attributes:
        intercept: encoded gain at one metre.
        slope: per decade of distance.
    """

    intercept: float
    slope: float

    @classmethod
    def fit(cls, maps: MapSet, pairs: NDArray[np.integer]) -> PathLoss:
        """Fit on the free cells of the named maps.

        Args:
            maps: the training maps.
            pairs: (b, 2), which of them.

        Raises:
            SfumatoError: if the pairs do not fit, or all free cells are equally far.
        """
        chosen = checked_pairs(maps, pairs)
        masks = _free(maps, chosen)
        return cls.fit_values(_distances(maps, chosen)[masks], _truth(maps, chosen)[masks])

    @classmethod
    def fit_values(cls, distances: NDArray[np.float64], gains: NDArray[np.float64]) -> PathLoss:
        """Fit on given cells.

        Args:
            distances: (m,) metres, above 0.
            gains: (m,) encoded.

        Raises:
            SfumatoError: if all distances are the same.
        """
        decades = np.log10(distances)
        centred = decades - decades.mean()
        spread = float(centred @ centred)
        if decades.max() == decades.min():
            raise SfumatoError(
                "all cells are equally far from their transmitter; allowed are at least two distances."
            )
        slope = float(centred @ gains) / spread
        return cls(float(gains.mean() - slope * decades.mean()), slope)

    def predict(self, maps: MapSet, pairs: NDArray[np.integer]) -> NDArray[np.float64]:
        """(b, s, s): a function of the distance to the pair's transmitter."""
        return self.intercept + self.slope * np.log10(_distances(maps, checked_pairs(maps, pairs)))


def _distances(maps: MapSet, pairs: NDArray[np.int64]) -> NDArray[np.float64]:
    """(b, s, s) metres from each cell's centre to the transmitter's, half a cell for that cell itself."""
    centres = maps.transmitters[pairs[:, 0], pairs[:, 1]].astype(np.float64)
    rows, columns = np.indices((maps.size, maps.size)).astype(np.float64)
    cells = np.hypot(rows - centres[:, 0, None, None], columns - centres[:, 1, None, None])
    return np.maximum(cells, 0.5) * maps.cell


def _free(maps: MapSet, pairs: NDArray[np.int64]) -> NDArray[np.bool_]:
    return maps.masks(pairs)[:, 0]


def _truth(maps: MapSet, pairs: NDArray[np.int64]) -> NDArray[np.float64]:
    return maps.targets(pairs)[:, 0].astype(np.float64)


def reference_mse(reference: Reference, maps: MapSet, pairs: NDArray[np.integer]) -> float:
    """The mean squared error of a reference over all free cells of the named maps, in squared encoded units.

    Raises:
        SfumatoError: if the pairs do not fit.
    """
    chosen = checked_pairs(maps, pairs)
    masks = _free(maps, chosen)
    errors = (reference.predict(maps, chosen) - _truth(maps, chosen))[masks]
    return float(np.mean(errors**2))


def predictions(
    model: nn.Module,
    maps: MapSet,
    pairs: NDArray[np.integer],
    stage: Literal["first", "second"] = "second",
) -> NDArray[np.float32]:
    """The maps that a network predicts.

    Args:
        model: as it is.
        maps: whose buildings and transmitters it sees.
        pairs: (b, 2), which of them.
        stage: whose output.

    Returns:
        (b, s, s) float32, encoded path gain, on buildings as well.

    Raises:
        SfumatoError: if the pairs do not fit.
    """
    chosen = checked_pairs(maps, pairs)
    place, parts = ("first", "second").index(stage), list[NDArray[np.float32]]()
    with torch.inference_mode():
        for start in range(0, len(chosen), _BATCH):
            outputs = model(torch.from_numpy(maps.inputs(chosen[start : start + _BATCH])))
            parts.append(outputs[place][:, 0].numpy())
    return np.concatenate(parts)


def validation_mse(
    model: nn.Module,
    maps: MapSet,
    pairs: NDArray[np.integer] | None = None,
    stage: Literal["first", "second"] = "second",
) -> float:
    """The mean squared error of a network over all free cells of the named maps, in squared encoded units.

    Args:
        model: as it is.
        maps: held-out ones.
        pairs: (b, 2), which of them; None is every map with every transmitter.
        stage: whose output is measured.

    Returns:
        The mean over cells; not finite where a prediction is not.

    Raises:
        SfumatoError: if the pairs do not fit.
    """
    every = np.indices((maps.count, maps.per_map)).reshape(2, -1).T
    chosen = checked_pairs(maps, every if pairs is None else pairs)
    masks = _free(maps, chosen)
    with np.errstate(over="ignore", invalid="ignore"):
        errors = (predictions(model, maps, chosen, stage).astype(np.float64) - _truth(maps, chosen))[masks]
        return float(np.mean(errors**2))
