"""References are the least-squares fits that they claim to be, and errors are means over free cells."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sfumato.errors import SfumatoError
from sfumato.radiomap.federated import all_pairs
from sfumato.radiomap.maps import MapSet
from sfumato.radiomap.references import MeanMap, PathLoss, predictions, reference_mse, validation_mse
from sfumato.radiomap.unet import build
from sfumato.rng import Streams
from tests.sfumato.radiomap.learning import TINY, some_maps

MAPS = some_maps(count=5, size=8, per_map=2, blocks=1)
PAIRS = all_pairs(MAPS)


def _free() -> np.ndarray:
    return MAPS.masks(PAIRS)[:, 0]


def test_the_mean_map_is_the_mean_over_those_maps_where_a_cell_is_free() -> None:
    found = MeanMap.fit(MAPS, PAIRS).values
    truth, free = MAPS.targets(PAIRS)[:, 0].astype(np.float64), _free()
    for row, column in np.ndindex(8, 8):
        here = truth[free[:, row, column], row, column]
        assert found[row, column] == pytest.approx(here.mean() if len(here) else truth[free].mean())


@given(row=st.integers(0, 7), column=st.integers(0, 7), shift=st.floats(-0.2, 0.2))
def test_no_other_mean_map_fits_the_training_maps_better(row: int, column: int, shift: float) -> None:
    best = MeanMap.fit(MAPS, PAIRS)
    values = best.values.copy()
    values[row, column] += shift
    assert reference_mse(MeanMap(values), MAPS, PAIRS) >= reference_mse(best, MAPS, PAIRS) - 1e-15


@given(intercept=st.floats(-0.1, 0.1), slope=st.floats(-0.1, 0.1))
def test_no_other_line_in_log_distance_fits_the_training_maps_better(intercept: float, slope: float) -> None:
    best = PathLoss.fit(MAPS, PAIRS)
    other = PathLoss(best.intercept + intercept, best.slope + slope)
    assert reference_mse(other, MAPS, PAIRS) >= reference_mse(best, MAPS, PAIRS) - 1e-15


def test_path_loss_finds_the_line_that_made_the_maps() -> None:
    rows, columns = np.indices((8, 8))
    distance = 5.0 * np.maximum(np.hypot(rows - 2, columns - 3), 0.5)
    radio = (0.8 - 0.25 * np.log10(distance)).astype(np.float32)[None, None]
    maps = MapSet(
        np.zeros((1, 8, 8), np.float32),
        np.array([[[2, 3]]], np.int16),
        radio,
        np.zeros(1, np.int16),
        ("plain",),
        np.zeros((1, 2), np.float32),
        5.0,
    )
    found = PathLoss.fit(maps, all_pairs(maps))
    assert (found.intercept, found.slope) == pytest.approx((0.8, -0.25), abs=1e-5)
    assert reference_mse(found, maps, all_pairs(maps)) < 1e-10


def test_cells_of_one_distance_determine_no_line() -> None:
    with pytest.raises(SfumatoError, match="equally far"):
        PathLoss.fit_values(np.full(3, 8.0), np.arange(3.0))


def test_a_mean_map_of_another_size_predicts_nothing() -> None:
    with pytest.raises(SfumatoError, match="allowed are 4"):
        MeanMap(np.zeros((4, 4))).predict(MAPS, PAIRS)


class _Constant(nn.Module):
    def __init__(self, first: float, second: float) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.tensor([first, second]))

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        empty = torch.zeros_like(inputs[:, :1])
        return empty + self.values[0], empty + self.values[1]


def test_a_networks_error_is_the_mean_square_over_free_cells_of_its_second_map() -> None:
    truth = MAPS.targets(PAIRS)[:, 0].astype(np.float64)[_free()]
    model = _Constant(0.25, 0.5)
    assert validation_mse(model, MAPS) == pytest.approx(float(np.mean((truth - 0.5) ** 2)))
    assert validation_mse(model, MAPS, stage="first") == pytest.approx(float(np.mean((truth - 0.25) ** 2)))
    one = MAPS.targets(PAIRS[:1])[:, 0].astype(np.float64)[_free()[:1]]
    assert validation_mse(model, MAPS, PAIRS[:1]) == pytest.approx(float(np.mean((one - 0.5) ** 2)))


def test_a_network_that_predicts_no_number_has_no_finite_error() -> None:
    assert not np.isfinite(validation_mse(_Constant(0.0, float("nan")), MAPS))


def test_predictions_do_not_depend_on_how_they_are_batched() -> None:
    model = build(TINY, Streams(0).stream("init"))
    many = np.repeat(PAIRS, 4, axis=0)
    together = predictions(model, MAPS, many)
    assert together.shape == (40, 8, 8)
    for place in (0, 17, 39):
        assert np.allclose(together[place], predictions(model, MAPS, many[place : place + 1])[0], atol=1e-6)
