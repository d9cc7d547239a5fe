"""Artifacts on disk: JSON, npz, safetensors and CSV files, written atomically and byte-stable, never pickled.

>>> import tempfile
>>> path = Path(tempfile.mkdtemp()) / "metrics.json"
>>> write_json(path, {"b": 0.5, "a": [1, None]})
>>> read_json(path)
{'a': [1, None], 'b': 0.5}

Every writer fills a hidden temporary file ``.<name>.<pid>.tmp`` in the same folder, flushes it to the
disk and renames it, so a reader sees the old file or the new one and never a part. The same content
gives the same bytes: names are sorted, zip entries carry a fixed date, floats are written in their
shortest exact form.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import struct
import threading
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import SfumatoError

if TYPE_CHECKING:
    import torch

PathLike: TypeAlias = str | os.PathLike[str]
Array: TypeAlias = NDArray[Any]
T = TypeVar("T")

_ZIP_DATE = (1980, 1, 1, 0, 0, 0)
_ZIP64_BYTES = (1 << 31) - (1 << 20)
_SAFETENSORS_DTYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
}


# ---------------------------------------------------------------------------------------------- atomic files
@contextmanager
def atomic_file(path: PathLike) -> Generator[IO[bytes]]:
    """A writable binary file that becomes ``path`` when the block ends, and vanishes when it raises.

    Args:
        path: the final name; its folder is made when it is missing.

    Yields:
        the open temporary file, in the same folder.

    Raises:
        OSError: from the operating system, such as a full disk; the old file, if any, is untouched and
            no temporary file is left.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_stale_temporaries(target)
    temporary = target.with_name(_temporary_name(target.name))
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def remove_stale_temporaries(path: PathLike) -> None:
    """Remove the temporary files of ``path`` whose process has died; those of living processes stay."""
    target = Path(path)
    pattern = re.compile(re.escape(f".{target.name}.") + r"(\d+)(\.\d+)?\.tmp")
    for entry in os.scandir(target.parent):
        match = pattern.fullmatch(entry.name)
        if match and not _is_alive(int(match.group(1))):
            with suppress(OSError):
                os.unlink(entry.path)


def _temporary_name(name: str) -> str:
    """``.name.<pid>.tmp``, with the thread's number added outside of the main thread."""
    thread = threading.current_thread()
    suffix = "" if thread is threading.main_thread() else f".{thread.native_id}"
    return f".{name}.{os.getpid()}{suffix}.tmp"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _sync_folder(folder: Path) -> None:
    """Flush a rename to the disk, where folders can be opened at all."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_bytes(path: PathLike, content: bytes) -> None:
    """Write bytes atomically; see `atomic_file` for what a failure leaves."""
    with atomic_file(path) as file:
        file.write(content)


def write_text(path: PathLike, text: str) -> None:
    """Write text atomically as UTF-8, newlines as given."""
    write_bytes(path, text.encode("utf-8"))


def _read(path: PathLike, kind: str, reader: Callable[[Path], T]) -> T:
    """Run a reader and turn every way in which a file can be bad into one sentence."""
    source = Path(path)
    try:
        return reader(source)
    except FileNotFoundError:
        raise SfumatoError(f"{source} is missing; run the step that makes it.") from None
    except MemoryError:
        raise SfumatoError(f"{source} does not fit into memory or is damaged; make it anew.") from None
    except (OSError, ValueError, KeyError, EOFError, TypeError, struct.error, zlib.error) as error:
        raise _damaged(source, kind, error) from error
    except (zipfile.BadZipFile, NotImplementedError, RecursionError) as error:
        raise _damaged(source, kind, error) from error


def _damaged(source: Path, kind: str, error: BaseException) -> SfumatoError:
    reason = (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__
    return SfumatoError(
        f"{source} is not a readable {kind} file ({reason}); delete it and rerun the step that makes it."
    )


# ------------------------------------------------------------------------------------------------------ JSON
def write_json(path: PathLike, obj: object) -> None:
    """Write an object as JSON: sorted keys, indent 1, UTF-8, a newline at the end.

    Args:
        path: the file to write.
        obj: nested mappings with text keys, sequences, texts, numbers (numpy scalars too), booleans, None.

    Raises:
        SfumatoError: if a number is NaN or infinite, a key is not a string, or a value has no JSON form;
            the sentence names the key path.
    """
    plain = _plain(obj, "")
    text = json.dumps(plain, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


def _plain(value: object, where: str) -> object:
    """The value in plain Python types, checked; ``where`` is its key path."""
    if isinstance(value, np.generic):
        value = cast("object", value.item())
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SfumatoError(
                f"{where or 'the value'} is {value}; JSON files hold finite numbers, or null beside a reason."
            )
        return float(value)
    if isinstance(value, Mapping):
        return _plain_mapping(cast("Mapping[object, object]", value), where)
    if isinstance(value, (list, tuple)):
        items = cast("Sequence[object]", value)
        return [_plain(item, f"{where}[{index}]") for index, item in enumerate(items)]
    raise SfumatoError(
        f"{where or 'the value'} is a {type(value).__name__}; JSON files hold mappings, lists, "
        "texts, numbers, booleans and null."
    )


def _plain_mapping(value: Mapping[object, object], where: str) -> dict[str, object]:
    result: dict[str, object] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise SfumatoError(
                f"{where or 'the top level'} has the key {key!r}; keys of JSON files are texts."
            )
        result[str(key)] = _plain(item, f"{where}.{key}" if where else key)
    return result


def read_json(path: PathLike) -> Any:
    """The content of a JSON file.

    Raises:
        SfumatoError: if the file is missing, cut short, holds NaN or infinity, or repeats a key.
    """
    return _read(path, "JSON", _parse_json)


def _parse_json(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)


def _refuse_constant(text: str) -> float:
    raise ValueError(f"it holds {text}")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        repeated = next(key for index, (key, _) in enumerate(pairs) if key in dict(pairs[:index]))
        raise ValueError(f"it repeats the key {repeated!r}")
    return result


# ------------------------------------------------------------------------------------------------------- npz
def write_npz(path: PathLike, arrays: Mapping[str, Array]) -> None:
    """Write named arrays as an uncompressed npz file whose bytes depend on the content alone.

    Args:
        path: the file to write.
        arrays: name -> array of numbers, booleans or fixed-length texts, any shape.

    Raises:
        SfumatoError: if an array holds Python objects, which only pickle could store.
    """
    prepared = {name: _stable_array(name, arrays[name]) for name in sorted(arrays)}
    with atomic_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in prepared.items():
            info = zipfile.ZipInfo(f"{name}.npy", _ZIP_DATE)
            info.create_system = 3
            with archive.open(info, "w", force_zip64=array.nbytes >= _ZIP64_BYTES) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


def _stable_array(name: str, array: Array) -> Array:
    """The array in C order and little-endian, or an error that names it."""
    if not isinstance(cast(object, array), np.ndarray):
        array = np.asarray(array)
    if array.dtype.hasobject:
        raise SfumatoError(
            f"the array {name!r} holds Python objects; npz files hold numbers, booleans and texts."
        )
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def read_npz(path: PathLike) -> dict[str, Array]:
    """All arrays of an npz file, by name.

    Raises:
        SfumatoError: if the file is missing, cut short, fails its checksums or would need pickle.
    """
    return _read(path, "npz", _parse_npz)


def _parse_npz(path: Path) -> dict[str, Array]:
    result: dict[str, Array] = {}
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if not info.filename.endswith(".npy"):
                raise ValueError(f"it holds {info.filename!r}, which is no array")
            with archive.open(info) as entry:
                array = np.lib.format.read_array(entry, allow_pickle=False)
                if entry.read(1):
                    raise ValueError(f"{info.filename!r} is longer than its array")
            result[info.filename.removesuffix(".npy")] = array
    return result


# ----------------------------------------------------------------------------------------------- safetensors
def write_tensors(
    path: PathLike, tensors: Mapping[str, Array | torch.Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write named tensors as a safetensors file whose bytes depend on the content alone.

    Args:
        path: the file to write.
        tensors: name -> numpy array or torch tensor of a plain number type or bool.
        metadata: texts kept in the file's header.

    Raises:
        SfumatoError: if a tensor's type has no place in the format or a metadata value is not a text.
    """
    header: dict[str, object] = {}
    arrays: list[Array] = []
    for key, value in (metadata or {}).items():
        if not isinstance(cast(object, value), str):
            raise SfumatoError(f"the metadata {key!r} is {value!r}; safetensors metadata are texts.")
    if metadata:
        header["__metadata__"] = dict(sorted(metadata.items()))
    offset = 0
    for name in sorted(tensors):
        array = _stable_array(name, _as_array(tensors[name]))
        if name == "__metadata__" or array.dtype.name not in _SAFETENSORS_DTYPES:
            allowed = ", ".join(_SAFETENSORS_DTYPES)
            raise SfumatoError(f"the tensor {name!r} has the type {array.dtype.name}; allowed are {allowed}.")
        header[name] = {
            "dtype": _SAFETENSORS_DTYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
        arrays.append(array)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=True).encode("ascii")
    text += b" " * (-len(text) % 8)
    with atomic_file(path) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in arrays:
            file.write(array.tobytes())


def _as_array(tensor: Array | torch.Tensor) -> Array:
    """A numpy view of a tensor, without importing torch for it."""
    if isinstance(tensor, np.ndarray):
        return tensor
    if hasattr(tensor, "detach"):
        return tensor.detach().cpu().contiguous().numpy()
    return np.asarray(tensor)


def read_tensors(path: PathLike) -> dict[str, Array]:
    """All tensors of a safetensors file as writable numpy arrays, by name.

    Raises:
        SfumatoError: if the file is missing, cut short or not of this format.
    """
    return _read(path, "safetensors", _parse_tensors)


def read_metadata(path: PathLike) -> dict[str, str]:
    """The metadata texts of a safetensors file; empty if it has none.

    Raises:
        SfumatoError: if the file is missing, cut short or not of this format.
    """
    return _read(path, "safetensors", _parse_metadata)


def _parse_tensors(path: Path) -> dict[str, Array]:
    from safetensors import SafetensorError
    from safetensors import numpy as format_reader

    load: Callable[[Path], dict[str, Array]] = vars(format_reader)["load_file"]
    try:
        return {name: np.array(array) for name, array in sorted(load(path).items())}
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def _parse_metadata(path: Path) -> dict[str, str]:
    _parse_tensors(path)
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = cast("dict[str, dict[str, str]]", json.loads(file.read(length)))
    return dict(sorted(header.get("__metadata__", {}).items()))


# ------------------------------------------------------------------------------------------------------- CSV
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
    plain = _plain(value, where)
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
    return _read(path, "CSV", _parse_csv)


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
