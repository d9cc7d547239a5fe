"""CSV with one spelling for every number.

>>> import tempfile
>>> path = Path(tempfile.mkdtemp()) / "x.csv"
>>> write_csv(path, ["step", "loss"], [[0, 0.5]])
>>> read_csv(path)
[{'step': '0', 'loss': '0.5'}]
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from sfumato.artifacts.files import PathLike, read_checked, write_text
from sfumato.artifacts.json_files import plain_value
from sfumato.errors import SfumatoError


def write_csv(path: PathLike, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table as CSV: a header line, floats in shortest exact form, None as an empty field.

    Args:
        path: the file to write.
        columns: the names of the columns.
        rows: one sequence per row, as long as ``columns``, of texts, finite numbers, booleans or None.

    Raises:
        SfumatoError: if a row has another length, or a value is NaN, infinite or of another type.
    """
    names = list(columns)
    if not names or len(set(names)) != len(names):
        raise SfumatoError(f"the columns are {names}; a table needs at least one, each name once.")
    lines = [names]
    for number, row in enumerate(rows):
        if len(row) != len(names):
            raise SfumatoError(f"row {number} has {len(row)} values; the table has {len(names)} columns.")
        lines.append(
            [_field(value, f"{name} in row {number}") for name, value in zip(names, row, strict=True)]
        )
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerows(lines)
    write_text(path, buffer.getvalue())


def _field(value: object, where: str) -> str:
    plain = plain_value(value, where)
    if plain is None:
        return ""
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, (dict, list)):
        raise SfumatoError(
            f"{where} is a {type(value).__name__}; tables hold texts, numbers, booleans and None."
        )
    return repr(plain) if isinstance(plain, float) else str(plain)


def read_csv(path: PathLike) -> list[dict[str, str]]:
    """The rows of a CSV file, each as column name -> text.

    Raises:
        SfumatoError: if the file is missing, empty, cut short or has a row of another length.
    """
    return read_checked(path, "CSV", _parse_csv)


def _parse_csv(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    if not text.endswith("\n"):
        raise ValueError("its last line is cut short")
    try:
        lines = list(csv.reader(text.splitlines(keepends=True), strict=True))
    except csv.Error as error:
        raise ValueError(str(error)) from error
    columns = lines[0]
    for number, line in enumerate(lines[1:], start=2):
        if len(line) != len(columns):
            raise ValueError(f"line {number} has {len(line)} of {len(columns)} fields")
    return [dict(zip(columns, line, strict=True)) for line in lines[1:]]
