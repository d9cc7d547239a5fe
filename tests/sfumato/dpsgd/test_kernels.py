"""The kernels' pieces, and what they give on processors with shorter registers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from sfumato.dpsgd import conv_kernels, kernels, linear_kernels
from sfumato.dpsgd.kernel_compiling import lanes_digest
from sfumato.dpsgd.kernel_layout import ConvShape

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(("count", "width"), [(1, 1), (16, 16), (17, 15), (40, 35), (5, 64)])
def test_transposed_rows_lie_in_lanes_with_zeros_beyond_the_last_example(count: int, width: int) -> None:
    rows = torch.randn(count, width, generator=torch.Generator().manual_seed(0))
    lanes = -(-count // 16) * 16
    out = torch.full((width, lanes), 7.0)
    bits = kernels.transposed(rows.numpy(), out.numpy())
    assert torch.equal(out[:, :count], rows.t())
    assert not out[:, count:].any()
    assert bits == int(rows.abs().max().numpy().view(np.int32))


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -1e30])
def test_the_bits_of_large_numbers_are_above_those_of_small_ones(value: float) -> None:
    rows = torch.tensor([[1.0, value], [2.0, 3.0]])
    bits = kernels.transposed(rows.numpy(), torch.empty(2, 16).numpy())
    assert bits > int(np.float32(1e6).view(np.int32))


def test_a_packed_band_holds_the_padded_rows_of_sixteen_examples() -> None:
    images = torch.randn(20, 5, 6, 19, generator=torch.Generator().manual_seed(1))
    shape = ConvShape((19, 5, 6), (4, 5, 6), (3, 3), padding=(1, 1, 1, 1))
    rows, columns = shape.read_rows(2), shape.read_columns
    out = torch.full((19 * rows * columns * 16,), 9.0)
    blocks, numbers = np.array([0, 16]), np.array([1, 1, rows, columns])
    kernels.pack(images.numpy(), blocks, np.array([16, 4, 3]), numbers, out.numpy())
    padded = torch.nn.functional.pad(images[16:].permute(3, 1, 2, 0), (0, 12, 1, 1, 1, 1))
    assert torch.equal(out.view(19, rows, columns, 16), padded[:, 3 : 3 + rows, :columns])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "features"), [("haswell", "+avx,+avx2,+fma,+bmi,+bmi2"), ("nocona", "")])
def test_kernels_for_shorter_registers_are_exact(name: str, features: str, tmp_path: Path) -> None:
    changed = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features, "NUMBA_CACHE_DIR": str(tmp_path)}
    test = "tests/sfumato/dpsgd/test_planned_exactness.py"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        test,
        "-k",
        "conv or linear or bands",
    ]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **changed}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.parametrize("module", [conv_kernels, linear_kernels])
def test_the_kernels_are_cached_for_the_lanes_that_they_were_written_for(module: ModuleType) -> None:
    """After a change of lanes.py, its digest in both files is to be changed too: that makes Numba compile anew."""
    assert lanes_digest() == module.LANES_DIGEST
