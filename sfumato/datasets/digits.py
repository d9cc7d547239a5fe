"""Digits: 1,797 grey images of handwritten digits, 8x8, which scikit-learn carries with it.

>>> data = prepare(Path("unused"), {})
>>> len(data.train), data.train.x.shape, int(data.train.x.max())
(1078, (1078, 1, 8, 8), 16)
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.datasets.dataset import Dataset, check_declared, split_rows
from sfumato.datasets.fetching import RawFile, Source
from sfumato.errors import DataUnavailableError


def files(_options: Mapping[str, str]) -> tuple[RawFile, ...]:
    """No raw file is needed."""
    return ()


def sources(_options: Mapping[str, str]) -> tuple[Source, ...]:
    """No source is needed."""
    return ()


def prepare(_raw_dir: Path, _options: Mapping[str, str]) -> Dataset:
    """The data set; images uint8 of shape (n, 1, 8, 8) with values 0..16, split by a public permutation.

    Raises:
        DataUnavailableError: if scikit-learn is not installed.
    """
    try:
        bundled = importlib.import_module("sklearn.datasets")
    except ImportError:
        raise DataUnavailableError("digits needs scikit-learn, which is not installed.") from None
    loaded: tuple[NDArray[Any], NDArray[Any]] = bundled.load_digits(return_X_y=True)
    images = loaded[0].astype(np.uint8).reshape(-1, 1, 8, 8)
    return check_declared(split_rows("digits", images, loaded[1].astype(np.int64), {}))
