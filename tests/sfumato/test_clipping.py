"""Clipped vectors are bounded, keep their direction, and never carry a NaN."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sfumato.clipping import clip_factors, clip_to_norm
from sfumato.errors import SfumatoError

ANY_FLOAT32 = st.floats(width=32, allow_nan=True, allow_infinity=True)
MATRICES = hnp.arrays(np.float32, st.tuples(st.integers(0, 5), st.integers(0, 6)), elements=ANY_FLOAT32)
CLIP_NORMS = st.floats(min_value=1e-30, max_value=1e30)


@settings(deadline=None, max_examples=200)
@given(MATRICES, CLIP_NORMS)
def test_clipped_rows_are_bounded_by_clip_norm_and_finite(vectors: np.ndarray, clip_norm: float) -> None:
    clipped = clip_to_norm(vectors, clip_norm)
    assert clipped.shape == vectors.shape
    assert clipped.dtype == vectors.dtype
    assert np.isfinite(clipped).all()
    assert (np.linalg.norm(clipped.astype(np.float64), axis=1) <= clip_norm).all()


@settings(deadline=None, max_examples=200)
@given(MATRICES, CLIP_NORMS)
def test_short_rows_are_left_alone_and_long_ones_keep_their_direction(
    vectors: np.ndarray, clip_norm: float
) -> None:
    clipped = clip_to_norm(vectors, clip_norm)
    for row, found in zip(vectors.astype(np.float64), clipped.astype(np.float64), strict=True):
        norm = np.linalg.norm(row)
        if not np.isfinite(norm):
            assert (found == 0).all()
        elif norm <= clip_norm:
            assert (found == row).all()
        else:
            # float32 rounds entries below 1e-38 coarsely, hence the absolute part
            assert np.allclose(found, row * (clip_norm / norm), rtol=2e-6, atol=1e-44)


@settings(deadline=None, max_examples=50)
@given(MATRICES, st.integers(0, 4), CLIP_NORMS)
def test_a_row_cannot_depend_on_another_row(vectors: np.ndarray, row: int, clip_norm: float) -> None:
    if row < len(vectors):
        assert np.array_equal(
            clip_to_norm(vectors, clip_norm)[row], clip_to_norm(vectors[row : row + 1], clip_norm)[0]
        )


def test_tensors_and_arrays_of_both_dtypes_agree() -> None:
    values = np.random.Generator(np.random.Philox(1)).standard_normal((4, 9)) * 3
    for dtype in (np.float32, np.float64):
        array = values.astype(dtype)
        tensor = torch.from_numpy(array.copy())
        assert np.array_equal(clip_to_norm(array, 1.5), clip_to_norm(tensor, 1.5).numpy())
        assert np.array_equal(array, values.astype(dtype)), "the argument was changed"


def test_read_only_arrays_are_accepted() -> None:
    array = np.ones((2, 2), np.float32)
    array.flags.writeable = False
    assert clip_to_norm(array, 1.0).shape == (2, 2)


@pytest.mark.parametrize(
    "clip_norm", [0, 0.0, -1.0, float("inf"), float("nan"), 1e-31, 1e31, True, "1", None, [1.0]]
)
def test_impossible_clip_norm_is_refused_in_one_sentence(clip_norm: float) -> None:
    with pytest.raises(
        SfumatoError, match=r"^clip_norm is .*; allowed is a number between 1e-30 and 1e\+30\.$"
    ):
        clip_to_norm(np.ones((1, 1)), clip_norm)


def test_wrong_vectors_are_refused() -> None:
    with pytest.raises(SfumatoError, match="dtype int64"):
        clip_to_norm(np.ones((1, 1), np.int64), 1.0)  # type: ignore[type-var]
    with pytest.raises(SfumatoError, match=r"shape \(3,\)"):
        clip_to_norm(torch.ones(3), 1.0)
    with pytest.raises(SfumatoError, match="float16"):
        clip_to_norm(torch.ones(3, 1, dtype=torch.float16), 1.0)


def test_factors_never_pass_one_and_are_zero_for_broken_rows() -> None:
    norms = torch.tensor([0.0, 0.5, 1.0, 4.0, float("inf"), float("nan")], dtype=torch.float64)
    assert clip_factors(norms, 1.0).tolist() == [1.0, 1.0, 1.0, 0.25, 0.0, 0.0]
