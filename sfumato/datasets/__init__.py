"""Data sets: what is public about them, how they are fetched and verified, and how they are loaded.

>>> sorted(SPECS)
['cifar10', 'digits', 'fashion_mnist', 'mnist', 'thyroid']
>>> data = prepare("digits", "unused")
>>> data.inputs("train").shape
(1078, 1, 8, 8)
>>> sorted(REGRESSION_SPECS)
['anes96', 'co2', 'fair', 'generated', 'modechoice', 'randhie']
>>> prepare("generated", "unused").train.x.shape
(50000, 8)
>>> sorted(POPULATION_SPECS)
['femnist_population', 'generated_population', 'mnist_population']

``fetch`` puts verified raw files into a folder, ``prepare`` turns them into a `Dataset` or, for a name in
`REGRESSION_SPECS`, into `RegressionData`, or, for one in `POPULATION_SPECS`, into a `Population`; ``save`` and ``load``
keep that in one npz file. What is read depends on
the arguments alone, never on what happens to be present.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias, overload

from sfumato.artifacts import read_npz
from sfumato.datasets import (
    cifar10,
    digits,
    fashion_mnist,
    femnist,
    generated,
    generated_population,
    mnist,
    mnist_codes,
    regression_tables,
    thyroid,
)
from sfumato.datasets import dataset as classification
from sfumato.datasets.dataset import SPLITS, Dataset, Examples
from sfumato.datasets.fetching import Progress, RawFile, Source, fetch_files
from sfumato.datasets.population import (
    ClientGroups,
    Population,
    client_groups,
    load_population,
    mixture,
    save_population,
    split_clients,
    values_of,
)
from sfumato.datasets.population_specs import (
    POPULATION_SPECS,
    PopulationName,
    PopulationSpec,
    get_population_spec,
)
from sfumato.datasets.regression import RegressionData, Samples, load_regression, save_regression
from sfumato.datasets.regression_columns import Column, RegressionSpec
from sfumato.datasets.regression_specs import REGRESSION_SPECS, get_regression_spec
from sfumato.datasets.spec import SPECS, DatasetSpec, get_spec
from sfumato.errors import DataUnavailableError, SfumatoError

__all__ = [
    "POPULATION_SPECS",
    "REGRESSION_SPECS",
    "SPECS",
    "SPLITS",
    "ClientGroups",
    "Column",
    "Dataset",
    "DatasetSpec",
    "Examples",
    "Population",
    "PopulationName",
    "PopulationSpec",
    "Progress",
    "RegressionData",
    "RegressionSpec",
    "Samples",
    "client_groups",
    "fetch",
    "get_population_spec",
    "get_regression_spec",
    "get_spec",
    "load",
    "mixture",
    "prepare",
    "save",
    "split_clients",
    "values_of",
]

PathLike: TypeAlias = str | os.PathLike[str]
Options: TypeAlias = Mapping[str, str]
Prepared: TypeAlias = Dataset | RegressionData | Population


@dataclass(frozen=True)
class _Loader:
    """The functions of one data set's module, and the data sets whose raw files it reads too."""

    files: Callable[[Options], tuple[RawFile, ...]]
    sources: Callable[[Options], tuple[Source, ...]]
    prepare: Callable[[Path, Options], Prepared]
    hint: Callable[[Options, list[Path]], str] | None = None
    placed: Callable[[Options, list[Path]], tuple[Source, ...]] | None = None
    needs: tuple[str, ...] = ()


_LOADERS: Mapping[str, _Loader] = {
    "mnist": _Loader(mnist.files, mnist.sources, mnist.prepare),
    "fashion_mnist": _Loader(fashion_mnist.files, fashion_mnist.sources, fashion_mnist.prepare),
    "cifar10": _Loader(cifar10.files, cifar10.sources, cifar10.prepare, cifar10.hint),
    "thyroid": _Loader(thyroid.files, thyroid.sources, thyroid.prepare),
    "digits": _Loader(digits.files, digits.sources, digits.prepare),
    "generated": _Loader(generated.files, generated.sources, generated.prepare),
    "mnist_population": _Loader(
        mnist_codes.files,
        mnist_codes.sources,
        mnist_codes.prepare,
        placed=mnist_codes.placed,
        needs=("mnist",),
    ),
    "femnist_population": _Loader(femnist.files, femnist.sources, femnist.prepare),
    "generated_population": _Loader(
        generated_population.files, generated_population.sources, generated_population.prepare
    ),
    **{
        name: _Loader(
            partial(regression_tables.files, name),
            partial(regression_tables.sources, name),
            partial(regression_tables.prepare, name),
        )
        for name in regression_tables.TABLES
    },
}


_KINDS: Mapping[str, Mapping[str, DatasetSpec | RegressionSpec | PopulationSpec]] = {
    "classification": SPECS,
    "regression": REGRESSION_SPECS,
    "population": POPULATION_SPECS,
}


def _resolve(name: str, options: Options) -> dict[str, str]:
    """The options of any kind of data set, with defaults filled in."""
    for specs in _KINDS.values():
        if name in specs:
            return specs[name].resolve(options)
    names = [name for specs in _KINDS.values() for name in specs]
    raise SfumatoError(f"there is no data set {name!r}; allowed are {', '.join(names)}.")


def fetch(
    name: str,
    raw_dir: PathLike,
    search_dirs: Sequence[PathLike] = (),
    progress: Progress | None = None,
    **options: str,
) -> None:
    """Make sure that the raw files of a data set lie, verified, in ``raw_dir/<name>/``.

    A data set that is made of another one's files, as ``mnist_population`` of ``mnist``'s, has those fetched too, into
    the other one's folder. Looked for in this order: that folder, ``raw_dir`` and the ``search_dirs`` (and their sub-folder of the
    data set's name), packages through their ordinary clients, official mirrors.

    Args:
        name: a name in `SPECS`, `REGRESSION_SPECS` or `POPULATION_SPECS`.
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
    resolved = _resolve(name, options)
    loader = _LOADERS[name]
    for needed in loader.needs:
        fetch(needed, raw_dir, search_dirs, progress)
    roots = [Path(raw_dir), *(Path(folder) for folder in search_dirs)]
    folders = [folder for root in roots for folder in (root, root / name)]
    placed = loader.placed(resolved, folders) if loader.placed else ()
    sources = (*placed, *loader.sources(resolved))
    try:
        fetch_files(name, loader.files(resolved), raw_dir, search_dirs, sources, progress)
    except DataUnavailableError as error:
        hint = loader.hint(resolved, folders) if loader.hint else ""
        if not hint:
            raise
        raise DataUnavailableError(f"{str(error).removesuffix('.')}; {hint}") from None


def prepare(name: str, raw_dir: PathLike, **options: str) -> Prepared:
    """The data set of the fetched raw files.

    Args:
        name: a name in `SPECS`, `REGRESSION_SPECS` or `POPULATION_SPECS`.
        raw_dir: the folder of raw files, as filled by `fetch`.
        options: options of the data set, such as ``target="hyperthyroid"``; defaults are in its spec.

    Returns:
        the three splits, or the population, with exactly the declared public sizes.

    Raises:
        SfumatoError: if the name or an option is unknown, or the content differs from the spec.
        DataUnavailableError: if a raw file is missing or damaged.
    """
    resolved = _resolve(name, options)
    return _LOADERS[name].prepare(Path(raw_dir), resolved)


def save(path: PathLike, data: Prepared) -> None:
    """Write a prepared data set as one byte-stable npz file.

    Images are uint8, regression samples float64, a population's arrays int16 and int32.
    """
    if isinstance(data, RegressionData):
        save_regression(path, data)
    elif isinstance(data, Population):
        save_population(path, data)
    else:
        classification.save(path, data)


@overload
def load(path: PathLike) -> Dataset: ...


@overload
def load(path: PathLike, kind: type[Dataset]) -> Dataset: ...


@overload
def load(path: PathLike, kind: type[RegressionData]) -> RegressionData: ...


@overload
def load(path: PathLike, kind: type[Population]) -> Population: ...


def load(path: PathLike, kind: type[Dataset] | type[RegressionData] | type[Population] = Dataset) -> Prepared:
    """Read a prepared data set and hold it against the declared public sizes, shapes and bounds.

    Args:
        path: a file that ``save`` wrote.
        kind: what the caller can work with; a file of another kind is refused.

    Raises:
        SfumatoError: if the file is missing, damaged, not a prepared data set, of another kind, or differs from
            its spec.
    """
    reader, needed = {
        Dataset: (classification.load, "classification"),
        RegressionData: (load_regression, "regression"),
        Population: (load_population, "population"),
    }[kind]
    try:
        return reader(path)
    except SfumatoError:
        _refuse_other_kind(path, needed)
        raise


def _refuse_other_kind(path: PathLike, needed: str) -> None:
    """One sentence for a file that is sound but holds another kind; silent about every other fault."""
    try:
        name = str(read_npz(path).get("name"))
    except SfumatoError:
        return
    for kind, specs in _KINDS.items():
        if kind != needed and name in specs:
            raise SfumatoError(
                f"{Path(path)} holds the {kind} data set {name}; a {needed} one is needed."
            ) from None
