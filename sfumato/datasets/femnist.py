"""FEMNIST's digits as a population, from the JSON files that LEAF's scripts write and the user places.

>>> series_of("f0012_07"), series_of("f2345_01"), series_of("f3100_02")
(0, 4, -1)

LEAF offers no file to fetch: its scripts make ``all_data_<number>.json`` from NIST's Special Database 19, as much of it
as the user asks for. Each file is one object with the keys ``users``, ``num_samples`` and ``user_data``; a user's
``x`` are images of 784 numbers from 0 (ink) to 1 (paper), row by row, and ``y`` the classes, of which 0..9 are the
digits. Letters are left out. The images become codes by the same rule as MNIST's (`mnist_codes.block_codes`), but LEAF
neither centres a digit nor scales it to a common size, so the two data sets' codes have different distributions.

The user name ``f<writer>_<form>`` gives the series: writers up to 2099 are NIST's employees, 2100 to 2599 the
high-school students, as QMNIST's documentation says; the series of others is not known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from sfumato.datasets.fetching import RawFile, Source
from sfumato.datasets.mnist_codes import SIDE, block_codes
from sfumato.datasets.population import CLASSES, STAFF, STUDENTS, UNKNOWN, Population, check_declared
from sfumato.datasets.population_specs import CODE_DOMAIN
from sfumato.errors import DataUnavailableError, SfumatoError

NAME: Final = "femnist_population"
FILE_PATTERN: Final = "all_data*.json"
ALL_CLASSES: Final = 62
FIRST_STUDENT: Final = 2100
LAST_STUDENT: Final = 2599

_USER = re.compile(r"f(\d{4})_\d+")

UserDigits = tuple[NDArray[np.int32], NDArray[np.int16]]


def files(_options: Mapping[str, str]) -> tuple[RawFile, ...]:
    """No file with a known checksum: how much LEAF makes is the user's choice."""
    return ()


def sources(_options: Mapping[str, str]) -> tuple[Source, ...]:
    """No source but the user's own copy."""
    return ()


def prepare(raw_dir: Path, options: Mapping[str, str]) -> Population:
    """The digits of all files ``all_data*.json`` in ``raw_dir/femnist_population/``.

    A client is a user; users are numbered in the order of their names. A user in several files, as LEAF writes when it
    parts each user's samples into training and test files, is one client.

    Raises:
        DataUnavailableError: if there is no such file, or one cannot be read.
        SfumatoError: if a file is not of LEAF's layout, or no digit is in any.
    """
    folder = raw_dir / NAME
    paths = sorted(folder.glob(FILE_PATTERN))
    if not paths:
        raise DataUnavailableError(
            f"{NAME} needs LEAF's files {FILE_PATTERN}: put them into {folder}; they come from the scripts of "
            "https://github.com/TalwalkarLab/leaf (data/femnist, preprocess.sh -s niid), which offer no file to fetch."
        )
    found: dict[str, list[UserDigits]] = {}
    for path in paths:
        for user, digits in read_file(path).items():
            found.setdefault(user, []).append(digits)
    users = sorted(found)
    pieces = [(number, user, piece) for number, user in enumerate(users) for piece in found[user]]
    if not sum(len(codes) for _, _, (codes, _) in pieces):
        raise SfumatoError(f"the files {FILE_PATTERN} in {folder} hold no digit; at least one is needed.")
    lengths = [len(codes) for _, _, (codes, _) in pieces]
    return check_declared(
        Population(
            codes=np.concatenate([codes for _, _, (codes, _) in pieces]),
            labels=np.concatenate([labels for _, _, (_, labels) in pieces]),
            clients=np.repeat(np.array([number for number, _, _ in pieces], np.int32), lengths),
            series=np.repeat(np.array([series_of(user) for _, user, _ in pieces], np.int16), lengths),
            domain=CODE_DOMAIN,
            name=NAME,
            options=dict(options),
        )
    )


def series_of(user: str) -> int:
    """The series of a user by the writer's number in the name; `UNKNOWN` where the name has none."""
    match = _USER.fullmatch(user)
    if match is None:
        return UNKNOWN
    writer = int(match.group(1))
    if writer < FIRST_STUDENT:
        return STAFF
    return STUDENTS if writer <= LAST_STUDENT else UNKNOWN


def read_file(path: Path) -> dict[str, UserDigits]:
    """The digits of one of LEAF's files.

    Returns:
        user -> codes, int32 of shape (n,), and labels, int16 of shape (n,); n may be 0.

    Raises:
        DataUnavailableError: if the file cannot be read.
        SfumatoError: if it is not of LEAF's layout; the sentence names the file and the user.
    """
    try:
        content = cast("object", json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise DataUnavailableError(
            f"{path} cannot be read as JSON ({type(error).__name__}); make it with LEAF's scripts again."
        ) from None
    users, sizes, data = _parts(content, path)
    if len(set(users)) < len(users) or set(users) != set(data):
        raise SfumatoError(f"users and user_data of {path} differ; each user is allowed once, in both.")
    return {
        user: _digits(data[user], size, f"user {user!r} of {path}")
        for user, size in zip(users, sizes, strict=True)
    }


def _parts(content: object, path: Path) -> tuple[list[str], list[int], Mapping[str, object]]:
    """The three parts of a file, of the right types and lengths."""
    parts = _mapping(content)
    users, sizes, data = parts.get("users"), parts.get("num_samples"), parts.get("user_data")
    if not isinstance(users, list) or not isinstance(sizes, list) or not isinstance(data, dict):
        raise SfumatoError(f"{path} is not of LEAF's layout; needed are users, num_samples and user_data.")
    names, counts = cast("list[object]", users), cast("list[object]", sizes)
    if (
        len(names) != len(counts)
        or not all(isinstance(name, str) for name in names)
        or not all(isinstance(count, int) for count in counts)
    ):
        raise SfumatoError(
            f"users and num_samples of {path} do not fit; needed are one name and one number each."
        )
    return cast("list[str]", names), cast("list[int]", counts), cast("Mapping[str, object]", data)


def _mapping(value: object) -> Mapping[str, object]:
    """A JSON object's content; empty for any other value."""
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _digits(entry: object, size: int, where: str) -> UserDigits:
    """Codes and labels of one user's digits."""
    fields = _mapping(entry)
    labels = _array(fields.get("y"), f"y of {where}")
    images = _array(fields.get("x"), f"x of {where}")
    if size == 0 and images.size == 0 and labels.size == 0:
        return np.zeros(0, np.int32), np.zeros(0, np.int16)
    if images.shape != (size, SIDE * SIDE) or labels.shape != (size,):
        raise SfumatoError(
            f"{where} has images of shape {images.shape} and labels of shape {labels.shape}; needed are "
            f"({size}, {SIDE * SIDE}) and ({size},), as num_samples says."
        )
    if not bool(((images >= 0.0) & (images <= 1.0)).all()):
        raise SfumatoError(f"x of {where} has numbers outside of 0 (ink) to 1 (paper).")
    if not bool(np.isin(labels, np.arange(ALL_CLASSES)).all()):
        raise SfumatoError(f"y of {where} has other classes than the integers 0 to {ALL_CLASSES - 1}.")
    digits = labels < CLASSES
    ink = np.uint8(255) - np.rint(255.0 * images[digits]).astype(np.uint8)
    return block_codes(ink.reshape(-1, SIDE, SIDE)), labels[digits].astype(np.int16)


def _array(values: object, where: str) -> NDArray[np.float64]:
    try:
        return np.asarray(cast("Sequence[Any]", values), np.float64)
    except (TypeError, ValueError):
        raise SfumatoError(f"{where} is no list of equally many numbers each.") from None
