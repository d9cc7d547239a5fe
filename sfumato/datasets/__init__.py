"""Data sets: what is public about them, how they are fetched and verified, and how they are loaded.

>>> sorted(SPECS)
['cifar10', 'digits', 'fashion_mnist', 'mnist', 'thyroid']
>>> data = prepare("digits", "unused")
>>> data.inputs("train").shape
(1078, 1, 8, 8)

``fetch`` puts verified raw files into a folder, ``prepare`` turns them into a `Dataset`, ``save`` and
``load`` keep that in one npz file. What is read depends on the arguments alone, never on what happens to be
present.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from sfumato.datasets import cifar10, digits, fashion_mnist, mnist, thyroid
from sfumato.datasets.dataset import SPLITS, Dataset, Examples, load, save
from sfumato.datasets.fetching import Progress, RawFile, Source, fetch_files
from sfumato.datasets.spec import SPECS, DatasetSpec, get_spec
from sfumato.errors import DataUnavailableError

__all__ = [
    "SPECS",
    "SPLITS",
    "Dataset",
    "DatasetSpec",
    "Examples",
    "Progress",
    "fetch",
    "get_spec",
    "load",
    "prepare",
    "save",
]

PathLike: TypeAlias = str | os.PathLike[str]
Options: TypeAlias = Mapping[str, str]


@dataclass(frozen=True)
class _Loader:
    """The functions of one data set's module."""

    files: Callable[[Options], tuple[RawFile, ...]]
    sources: Callable[[Options], tuple[Source, ...]]
    prepare: Callable[[Path, Options], Dataset]
    hint: Callable[[Options, list[Path]], str] | None = None


_LOADERS: Mapping[str, _Loader] = {
    "mnist": _Loader(mnist.files, mnist.sources, mnist.prepare),
    "fashion_mnist": _Loader(fashion_mnist.files, fashion_mnist.sources, fashion_mnist.prepare),
    "cifar10": _Loader(cifar10.files, cifar10.sources, cifar10.prepare, cifar10.hint),
    "thyroid": _Loader(thyroid.files, thyroid.sources, thyroid.prepare),
    "digits": _Loader(digits.files, digits.sources, digits.prepare),
}


def fetch(
    name: str,
    raw_dir: PathLike,
    search_dirs: Sequence[PathLike] = (),
    progress: Progress | None = None,
    **options: str,
) -> None:
    """Make sure that the raw files of a data set lie, verified, in ``raw_dir/<name>/``.

    Looked for in this order: that folder, ``raw_dir`` and the ``search_dirs`` (and their sub-folder of the
    data set's name), packages through their ordinary clients, official mirrors.

    Args:
        name: a name in `SPECS`.
        raw_dir: the folder of raw files.
        search_dirs: folders that may hold copies.
        progress: called with a line for each source that is tried; with it, downloads draw a bar on a
            terminal.
        options: options of the data set that decide which files it needs, such as ``source="jpeg"``.

    Raises:
        SfumatoError: if the name or an option is unknown.
        DataUnavailableError: if a file cannot be had; one sentence says which, where to put it, where it
            comes from and what was tried.
    """
    resolved = get_spec(name).resolve(options)
    loader = _LOADERS[name]
    try:
        fetch_files(name, loader.files(resolved), raw_dir, search_dirs, loader.sources(resolved), progress)
    except DataUnavailableError as error:
        roots = [Path(raw_dir), *(Path(folder) for folder in search_dirs)]
        folders = [folder for root in roots for folder in (root, root / name)]
        hint = loader.hint(resolved, folders) if loader.hint else ""
        if not hint:
            raise
        raise DataUnavailableError(f"{str(error).removesuffix('.')}; {hint}") from None


def prepare(name: str, raw_dir: PathLike, **options: str) -> Dataset:
    """The data set of the fetched raw files.

    Args:
        name: a name in `SPECS`.
        raw_dir: the folder of raw files, as filled by `fetch`.
        options: options of the data set, such as ``target="hyperthyroid"``; defaults are in its spec.

    Returns:
        the three splits, with exactly the declared public sizes.

    Raises:
        SfumatoError: if the name or an option is unknown, or the content differs from the spec.
        DataUnavailableError: if a raw file is missing or damaged.
    """
    resolved = get_spec(name).resolve(options)
    return _LOADERS[name].prepare(Path(raw_dir), resolved)
