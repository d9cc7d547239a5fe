"""Artifacts are atomic, byte-stable, free of pickle, and refuse what they cannot hold."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato import artifacts
from sfumato.artifacts import (
    read_csv,
    read_json,
    read_metadata,
    read_npz,
    read_tensors,
    write_bytes,
    write_csv,
    write_json,
    write_npz,
    write_tensors,
    write_text,
)
from sfumato.errors import SfumatoError

ARRAYS = {
    "b": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a": np.array([True, False]),
    "s": np.array("text"),
}
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


# ------------------------------------------------------------------------------------------------ atomicity
WRITERS = {
    "json": lambda path: write_json(path, {"new": 1}),
    "npz": lambda path: write_npz(path, {"new": np.zeros(100_000)}),
    "safetensors": lambda path: write_tensors(path, {"new": np.zeros(100_000)}),
    "csv": lambda path: write_csv(path, ["new"], [[1]]),
    "text": lambda path: write_text(path, "new"),
}


def full_disk(*_args: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_full_disk_leaves_the_old_file_and_no_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, call: str
) -> None:
    path = tmp_path / "artifact"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, call, full_disk)
    with pytest.raises(OSError, match="No space left"):
        WRITERS[kind](path)
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["artifact"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
@pytest.mark.parametrize("kind", WRITERS)
def test_failing_write_leaves_the_old_file_and_no_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = tmp_path / "artifact"
    path.write_bytes(b"old")
    temporary = tmp_path / f".artifact.{os.getpid()}.tmp"
    temporary.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        WRITERS[kind](path)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["artifact"]


def test_exception_in_the_block_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with artifacts.atomic_file(tmp_path / "artifact") as file:
            file.write(b"half")
            assert names(tmp_path) == [f".artifact.{os.getpid()}.tmp"]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert names(tmp_path) == []


def test_missing_folders_are_made(tmp_path: Path) -> None:
    write_bytes(tmp_path / "a" / "b" / "file", b"x")
    assert (tmp_path / "a" / "b" / "file").read_bytes() == b"x"


def test_temporary_of_a_killed_process_is_no_output_and_is_swept_by_the_next_write(tmp_path: Path) -> None:
    code = (
        "import sys, time; from sfumato.artifacts import atomic_file\n"
        "with atomic_file(sys.argv[1]) as file:\n"
        "    file.write(b'half'); file.flush(); print('ready', flush=True); time.sleep(60)\n"
    )
    path = tmp_path / "artifact"
    root = Path(artifacts.__file__).parents[2]
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], cwd=root, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert names(tmp_path) == [f".artifact.{process.pid}.tmp"]
    with pytest.raises(SfumatoError, match="artifact is missing"):
        read_json(path)
    write_json(path, 1)
    assert names(tmp_path) == ["artifact"]


def test_temporary_of_a_living_process_stays(tmp_path: Path) -> None:
    living = tmp_path / f".artifact.{os.getppid()}.tmp"
    other = tmp_path / ".other.999999999.tmp"
    living.write_text("half")
    other.write_text("half")
    write_json(tmp_path / "artifact", 1)
    assert names(tmp_path) == sorted([living.name, other.name, "artifact"])


def test_threads_writing_one_file_never_show_a_part(tmp_path: Path) -> None:
    path = tmp_path / "artifact"
    contents = [bytes([letter]) * 200_000 for letter in b"abcd"]
    write_bytes(path, contents[0])
    threads = [
        threading.Thread(target=lambda c=c: [write_bytes(path, c) for _ in range(5)]) for c in contents
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert path.read_bytes() in contents
        time.sleep(0.001)
    assert names(tmp_path) == ["artifact"]


# ------------------------------------------------------------------------------------------------------ JSON
def test_json_has_sorted_keys_one_space_and_a_newline(tmp_path: Path) -> None:
    write_json(tmp_path / "f", {"b": (1, 2.5), "a": {"ü": None}})
    expected = '{\n "a": {\n  "ü": null\n },\n "b": [\n  1,\n  2.5\n ]\n}\n'
    assert (tmp_path / "f").read_text(encoding="utf-8") == expected


@given(value=JSON_VALUES)
def test_json_comes_back_equal_and_with_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, value: object
) -> None:
    path = tmp_path_factory.getbasetemp() / "round.json"
    write_json(path, value)
    first = path.read_bytes()
    assert read_json(path) == value
    write_json(path, read_json(path))
    assert path.read_bytes() == first


def test_json_takes_numpy_scalars(tmp_path: Path) -> None:
    write_json(tmp_path / "f", [np.float32(0.5), np.int64(3), np.bool_(True), np.str_("x")])
    assert read_json(tmp_path / "f") == [0.5, 3, True, "x"]


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({"a": {"loss": [1.0, math.nan]}}, r"a\.loss\[1\] is nan"),
        ({"epsilon": math.inf}, "epsilon is inf"),
        ({"epsilon": np.float32("-inf")}, "epsilon is -inf"),
        (math.nan, "the value is nan"),
        ({"a": {1: 2}}, "a has the key 1"),
        ({"a": np.zeros(2)}, "a is a ndarray"),
        ({"a": {1, 2}}, "a is a set"),
    ],
)
def test_json_refuses_and_names_the_key(tmp_path: Path, value: object, named: str) -> None:
    (tmp_path / "f").write_text("old")
    with pytest.raises(SfumatoError, match=named):
        write_json(tmp_path / "f", value)
    assert (tmp_path / "f").read_text() == "old"
    assert names(tmp_path) == ["f"]


@pytest.mark.parametrize(
    "text", ["", '{"a": 1', '{"a": NaN}', "[Infinity]", '{"a": 1, "a": 2}', "\udcff", "[" * 9999]
)
def test_damaged_json_is_one_sentence_with_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "f.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(SfumatoError, match=r"f\.json is not a readable JSON file .*rerun the step") as caught:
        read_json(path)
    assert "\n" not in str(caught.value)


# ------------------------------------------------------------------------------------------------------- npz
def test_npz_comes_back_with_types_and_shapes(tmp_path: Path) -> None:
    arrays = {**ARRAYS, "empty": np.zeros((0, 3), np.uint8), "scalar": np.float64(2.5)}
    write_npz(tmp_path / "f.npz", arrays)
    back = read_npz(tmp_path / "f.npz")
    assert set(back) == set(arrays)
    for name, array in back.items():
        np.testing.assert_array_equal(array, arrays[name])
        assert array.dtype == np.asarray(arrays[name]).dtype
        assert array.shape == np.shape(arrays[name])
    with np.load(tmp_path / "f.npz", allow_pickle=False) as numpy_reader:
        np.testing.assert_array_equal(numpy_reader["b"], ARRAYS["b"])


def test_npz_bytes_depend_on_the_content_alone(tmp_path: Path) -> None:
    write_npz(tmp_path / "one.npz", ARRAYS)
    swapped = dict(reversed(list(ARRAYS.items())))
    swapped["b"] = np.asfortranarray(ARRAYS["b"]).astype(">f4")
    write_npz(tmp_path / "two.npz", swapped)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.npz") as archive:
        assert [info.date_time for info in archive.infolist()] == [(1980, 1, 1, 0, 0, 0)] * 3
        assert archive.namelist() == ["a.npy", "b.npy", "s.npy"]


def test_npz_and_tensor_bytes_are_pinned(tmp_path: Path) -> None:
    """A change here changes every checksum in dvc.lock."""
    write_npz(tmp_path / "f.npz", {"x": np.arange(4, dtype=np.int64)})
    write_tensors(tmp_path / "f.st", {"x": np.arange(4, dtype=np.int64)}, {"k": "v"})
    digests = [hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()[:16] for name in ("f.npz", "f.st")]
    assert digests == ["29824e00aab38218", "6918c6bcd29ad3c8"]


def test_npz_refuses_objects_when_writing_and_reading(tmp_path: Path) -> None:
    with pytest.raises(SfumatoError, match="'x' holds Python objects"):
        write_npz(tmp_path / "f.npz", {"x": np.array([{}], dtype=object)})
    np.savez(tmp_path / "g.npz", x=np.array([{}], dtype=object))
    with pytest.raises(SfumatoError, match=r"g\.npz is not a readable npz"):
        read_npz(tmp_path / "g.npz")


@pytest.mark.parametrize("kind", ["npz", "safetensors", "csv"])
def test_every_truncation_is_one_sentence_with_the_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"f.{kind}"
    write, read = {
        "npz": (lambda: write_npz(path, {"x": np.arange(40.0)}), read_npz),
        "safetensors": (lambda: write_tensors(path, {"x": np.arange(40.0)}, {"a": "b"}), read_tensors),
        "csv": (lambda: write_csv(path, ["x", "y"], [[1, "a\nb"], [2, "c"]]), read_csv),
    }[kind]
    write()
    content = path.read_bytes()
    for length in range(len(content) - 1):
        path.write_bytes(content[:length])
        if kind == "csv" and content[:length].endswith(b"\n") and length in (4, 12):
            continue  # whole lines: a shorter table, which a table cannot tell
        with pytest.raises(SfumatoError, match=rf"f\.{kind} is not a readable"):
            read(path)


def test_flipped_byte_in_npz_data_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    write_npz(path, {"x": np.arange(4000.0)})
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(SfumatoError, match="CRC"):
        read_npz(path)


# ----------------------------------------------------------------------------------------------- safetensors
def test_tensors_come_back_and_the_public_reader_agrees(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.numpy import load_file

    tensors = {
        "weight": torch.arange(6, dtype=torch.float32, requires_grad=True).reshape(2, 3).T,
        "mask": np.array([True, False]),
        "scalar": np.array(3, dtype=np.int64),
        "empty": np.zeros((0, 2), np.float64),
    }
    path = tmp_path / "f.safetensors"
    write_tensors(path, tensors, {"seed": "0", "method": "dense"})
    back, public = read_tensors(path), load_file(path)
    assert set(back) == set(public) == set(tensors)
    np.testing.assert_array_equal(back["weight"], np.arange(6.0).reshape(2, 3).T)
    for name in tensors:
        np.testing.assert_array_equal(back[name], public[name])
        assert back[name].flags.writeable
    assert read_metadata(path) == {"method": "dense", "seed": "0"}


def test_tensor_bytes_do_not_depend_on_order(tmp_path: Path) -> None:
    tensors = {name: np.arange(5.0) for name in "cab"}
    metadata = {name: name for name in "zyxwvutsrq"}
    write_tensors(tmp_path / "one", tensors, metadata)
    write_tensors(tmp_path / "two", dict(sorted(tensors.items())), dict(sorted(metadata.items())))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([1j]), np.array([None])])
def test_tensors_refuse_other_types(tmp_path: Path, array: np.ndarray) -> None:
    with pytest.raises(SfumatoError, match="'x'"):
        write_tensors(tmp_path / "f", {"x": array})
    assert names(tmp_path) == []


def test_tensors_refuse_metadata_that_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(SfumatoError, match="'seed' is 0"):
        write_tensors(tmp_path / "f", {"x": np.zeros(1)}, {"seed": 0})  # type: ignore[dict-item]


# ------------------------------------------------------------------------------------------------------- CSV
def test_csv_comes_back_as_text_with_exact_floats(tmp_path: Path) -> None:
    rows = [["a,b", 0.1 + 0.2, True, None], ['"q"\nline', np.float32(0.5), 3, ""]]
    write_csv(tmp_path / "f.csv", ["w", "x", "y", "z"], rows)
    back = read_csv(tmp_path / "f.csv")
    assert back[0] == {"w": "a,b", "x": "0.30000000000000004", "y": "true", "z": ""}
    assert back[1] == {"w": '"q"\nline', "x": "0.5", "y": "3", "z": ""}


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([[1.0, 2.0], [1.0, math.nan]], "y in row 1 is nan"),
        ([[1.0]], "row 0 has 1 values"),
        ([[1.0, [2.0]]], "y in row 0 is a list"),
    ],
)
def test_csv_refuses_and_names_the_place(tmp_path: Path, rows: list[list[object]], named: str) -> None:
    with pytest.raises(SfumatoError, match=named):
        write_csv(tmp_path / "f.csv", ["x", "y"], rows)
    assert names(tmp_path) == []


def test_json_file_is_valid_for_other_readers(tmp_path: Path) -> None:
    write_json(tmp_path / "f", {"a": [1e-300, -0.0, 10**20]})
    assert json.loads((tmp_path / "f").read_text()) == {"a": [1e-300, -0.0, 10**20]}
