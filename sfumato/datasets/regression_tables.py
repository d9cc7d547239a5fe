"""The five tables that the statsmodels package carries, cleaned row by row, by public rules alone.

>>> features, label = clean_row("co2", {"date": "19910101", "co2": "355.0"})
>>> [round(value, 2) for value in features[:2]], round(label, 2)
([0.5, -0.5], 0.1)
>>> clean_row("co2", {"date": "19580510", "co2": ""}) is None
True

``clean_row`` is given one row and the public constants of `REGRESSION_SPECS`, so a cleaned value cannot depend
on another row. A feature that is missing or no finite number is the midpoint 0 of its bounds; a row whose label is
missing or no finite number is no client and is left out.

Only the files are used, statsmodels itself is neither installed nor imported.
"""

from __future__ import annotations

import csv
import datetime
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np

from sfumato.datasets.fetching import RawFile, Source, verified_path
from sfumato.datasets.mirrors import mirror_source
from sfumato.datasets.packages import pip_source
from sfumato.datasets.regression import RegressionData, Samples, split_samples
from sfumato.datasets.regression_specs import get_regression_spec
from sfumato.errors import SfumatoError

VERSION: Final = "0.15.0"
"""Of statsmodels, for the package and for the tag of its repository."""

FIRST_DAY: Final = datetime.date(1958, 1, 1)
END_DAY: Final = datetime.date(2002, 1, 1)
DAYS_PER_YEAR: Final = 365.2425


@dataclass(frozen=True)
class Table:
    """One raw file and how it is written.

    Attributes:
        file: the raw file.
        delimiter: what stands between two fields.
        quote: what stands around a name of the header.
        from_date: whether the features are functions of the column ``date`` instead of columns.
    """

    file: RawFile
    delimiter: str = ","
    quote: str = '"'
    from_date: bool = False


def _file(name: str, size: int, digest: str) -> RawFile:
    return RawFile(f"{name}.csv", size, f"sha256:{digest}")


TABLES: Mapping[str, Table] = MappingProxyType(
    {
        "co2": Table(
            _file("co2", 33_974, "16695fa2786e53414e5a6b54767a3fdf5de99cfbc68617f69d1362d92776a92f"),
            from_date=True,
        ),
        "fair": Table(
            _file("fair", 151_816, "fd5f3f094a34fc35ca346a14c359e046ed27843038d6921efcd50a7ab21f6af0")
        ),
        "modechoice": Table(
            _file("modechoice", 21_566, "d2d72c1db440f8ffce01f58ed39fc1145569ec1703970dac1636c154fc01fd8e"),
            delimiter=";",
        ),
        "randhie": Table(
            _file("randhie", 748_181, "9f6c87d05aef087a82cc4465310c8cd3f38327be6eafa43bd81fb98c4f3d088c")
        ),
        "anes96": Table(
            _file("anes96", 21_590, "c124d8556d6f8c4329b1fea61e3dc6891c5e663f15b7fe5791235963420ba896"),
            delimiter="\t",
            quote="'",
        ),
    }
)


def files(name: str, _options: Mapping[str, str]) -> tuple[RawFile, ...]:
    """The raw file of the data set of that name."""
    return (TABLES[name].file,)


def sources(name: str, _options: Mapping[str, str]) -> tuple[Source, ...]:
    """The sources of this file, in order: the package, then the package's own repository."""
    file = TABLES[name].file
    folder = (
        f"https://raw.githubusercontent.com/statsmodels/statsmodels/v{VERSION}/statsmodels/datasets/{name}"
    )
    return (
        pip_source(f"statsmodels=={VERSION}", {file.name: f"statsmodels/datasets/{name}/{file.name}"}),
        mirror_source(folder, {file.name: (file.name, file.checksum)}),
    )


def prepare(name: str, raw_dir: Path, _options: Mapping[str, str]) -> RegressionData:
    """The data set of the verified raw file.

    Raises:
        DataUnavailableError: if the file is missing or damaged.
    """
    text = verified_path(name, TABLES[name].file, raw_dir).read_text(encoding="utf-8")
    return split_samples(name, clean(name, read_rows(name, text)))


def read_rows(name: str, text: str) -> list[dict[str, str]]:
    """The rows of a table, column name -> text.

    Args:
        name: a name in `TABLES`.
        text: the content of its file.

    Raises:
        SfumatoError: if a column that is needed is missing, or a row has another number of fields than the header.
    """
    table, spec = TABLES[name], get_regression_spec(name)
    reader = csv.reader(io.StringIO(text), delimiter=table.delimiter, quotechar=table.quote)
    header = [field.strip() for field in next(reader, list[str]())]
    inputs = ("date",) if table.from_date else spec.feature_names
    lacking = [column for column in (*inputs, spec.label.name) if column not in header]
    if lacking:
        raise SfumatoError(
            f"{table.file.name} lacks the column {lacking[0]}; it holds {', '.join(header) or 'nothing'}."
        )
    rows: list[dict[str, str]] = []
    for number, fields in enumerate(reader):
        if len(fields) != len(header):
            raise SfumatoError(
                f"row {number} of {table.file.name} has {len(fields)} fields; its header has {len(header)}."
            )
        rows.append(dict(zip(header, fields, strict=True)))
    return rows


def clean(name: str, rows: Sequence[Mapping[str, str]]) -> Samples:
    """The samples of those raw rows that have a label, in their order; each row is cleaned on its own.

    Args:
        name: a name in `TABLES`.
        rows: column name -> text, as ``read_rows`` gives them.
    """
    kept = [cleaned for row in rows if (cleaned := clean_row(name, row)) is not None]
    width = len(get_regression_spec(name).features)
    x = np.array([features for features, _ in kept], dtype=np.float64).reshape(len(kept), width)
    return Samples(x, np.array([label for _, label in kept], dtype=np.float64))


def clean_row(name: str, row: Mapping[str, str]) -> tuple[list[float], float] | None:
    """The features and the label of one row, in [-1, 1]; None for a row without a label.

    Args:
        name: a name in `TABLES`.
        row: column name -> text.
    """
    spec = get_regression_spec(name)
    label = number(row[spec.label.name])
    if not math.isfinite(label):
        return None
    if TABLES[name].from_date:
        values = date_features(row["date"])
    else:
        values = {column: number(row[column]) for column in spec.feature_names}
    return [column.scale(values[column.name]) for column in spec.features], spec.label.scale(label)


def number(text: str) -> float:
    """The number that a field holds; NaN where it holds none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def date_features(text: str) -> dict[str, float]:
    """Trend, squared trend and two harmonics of the year, of a date written as ``19580329``.

    Returns:
        the features of ``co2`` by name; NaN where the text is no date.
    """
    try:
        days = (datetime.date(int(text[:4]), int(text[4:6]), int(text[6:])) - FIRST_DAY).days
    except (ValueError, OverflowError):
        return dict.fromkeys(get_regression_spec("co2").feature_names, math.nan)
    trend = 2.0 * days / (END_DAY - FIRST_DAY).days - 1.0
    angle = 2.0 * math.pi * days / DAYS_PER_YEAR
    harmonics = {
        f"{wave}_{order}": function(order * angle)
        for order in (1, 2)
        for wave, function in (("sine", math.sin), ("cosine", math.cos))
    }
    return {"trend": trend, "trend_squared": trend**2, **harmonics}
