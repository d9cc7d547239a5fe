"""Arrays and tensors on disk, byte-stable and never pickled: npz and safetensors.

>>> import tempfile
>>> path = Path(tempfile.mkdtemp()) / "x.npz"
>>> write_npz(path, {"x": np.arange(3)})
>>> read_npz(path)["x"].tolist()
[0, 1, 2]
"""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from sfumato.artifacts.files import PathLike, atomic_file, read_checked
from sfumato.errors import SfumatoError

if TYPE_CHECKING:
    import torch

Array: TypeAlias = NDArray[Any]

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
    return read_checked(path, "npz", _parse_npz)


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
    return read_checked(path, "safetensors", _parse_tensors)


def read_metadata(path: PathLike) -> dict[str, str]:
    """The metadata texts of a safetensors file; empty if it has none.

    Raises:
        SfumatoError: if the file is missing, cut short or not of this format.
    """
    return read_checked(path, "safetensors", _parse_metadata)


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
