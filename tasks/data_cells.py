"""Where a cell's data lies and which data set it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast, get_args

from sfumato.datasets.population_specs import PopulationName
from sfumato.errors import SfumatoError
from sfumato.params import DatasetName, RegressionName
from sfumato.params.radiomap import MapSource
from tasks.command import Call, required

RELEASE = "release"
"""The label of the one unseeded fit of release mode."""


def dataset_name(call: Call) -> DatasetName:
    """The cell's data set, checked."""
    name = required(call.options, "dataset")
    if name not in get_args(DatasetName):
        raise SfumatoError(f"--dataset is {name!r}; allowed are {', '.join(get_args(DatasetName))}.")
    return cast("DatasetName", name)


def regression_name(call: Call) -> RegressionName:
    """The cell's regression data set, checked."""
    name = required(call.options, "dataset")
    if name not in get_args(RegressionName):
        raise SfumatoError(f"--dataset is {name!r}; allowed are {', '.join(get_args(RegressionName))}.")
    return cast("RegressionName", name)


def population_name(call: Call) -> PopulationName:
    """The cell's population, checked."""
    name = required(call.options, "dataset")
    if name not in get_args(PopulationName):
        raise SfumatoError(f"--dataset is {name!r}; allowed are {', '.join(get_args(PopulationName))}.")
    return cast("PopulationName", name)


def any_name(call: Call) -> str:
    """The cell's data set, of any kind, checked."""
    kinds = (DatasetName, RegressionName, PopulationName, MapSource)
    name, allowed = required(call.options, "dataset"), [each for kind in kinds for each in get_args(kind)]
    if name not in allowed:
        raise SfumatoError(f"--dataset is {name!r}; allowed are {', '.join(allowed)}.")
    return name


def prepared_path(call: Call) -> Path:
    """The prepared file of the cell's data set."""
    return call.root / "data" / "prepared" / f"{any_name(call)}.npz"


def search_dirs(call: Call) -> tuple[Path, ...]:
    """The folders to look for raw files in: the parameters' and SFUMATO_DATA's."""
    named = [Path(folder) for folder in call.params.data.search_dirs]
    extra = os.environ.get("SFUMATO_DATA")
    return tuple((call.root / folder).resolve() for folder in [*named, *([Path(extra)] if extra else [])])
