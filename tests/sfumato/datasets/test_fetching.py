"""Fetching: verified files only, in the promised order, never half-written, one process at a time."""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from sfumato import artifacts
from sfumato.datasets import fetching
from sfumato.datasets.fetching import (
    Progress,
    RawFile,
    Source,
    SourceError,
    fetch_files,
    is_verified,
    verified_path,
)
from sfumato.errors import DataUnavailableError, SfumatoError

CONTENT = b"real content" * 1000


def raw_file(content: bytes = CONTENT, name: str = "rows", algorithm: str = "sha256") -> RawFile:
    digest = hashlib.new(algorithm, content).hexdigest()
    return RawFile(name, len(content), f"{algorithm}:{digest}", accepts_gzip=True)


def fake_source(content: bytes | None, calls: list[str], name: str = "fake", packed: bool = False) -> Source:
    """A source that gives this content for every file, or fails when it is None."""

    def get(work: Path, wanted: Sequence[RawFile], _progress: Progress | None) -> Mapping[str, Path]:
        calls.append(name)
        if content is None:
            raise SourceError("it is down")
        copies: dict[str, Path] = {}
        for file in wanted:
            copies[file.name] = work / f"{file.name}{'.gz' if packed else ''}"
            copies[file.name].write_bytes(gzip.compress(content) if packed else content)
        return copies

    return Source(f"the source {name}", get)


def left(folder: Path) -> list[str]:
    """What lies in the folder, the lock aside."""
    return sorted(entry.name for entry in folder.iterdir() if entry.name != ".lock")


@pytest.mark.parametrize("place", ["raw", "raw/demo", "user", "user/demo"])
@pytest.mark.parametrize("packed", [False, True])
def test_copies_in_folders_are_found_before_any_source_is_asked(
    tmp_path: Path, place: str, packed: bool
) -> None:
    folder = tmp_path / place
    folder.mkdir(parents=True)
    (folder / ("rows.gz" if packed else "rows")).write_bytes(gzip.compress(CONTENT) if packed else CONTENT)
    calls: list[str] = []
    fetch_files("demo", [raw_file()], tmp_path / "raw", [tmp_path / "user"], [fake_source(None, calls)])
    assert (tmp_path / "raw" / "demo" / "rows").read_bytes() == CONTENT
    assert calls == []


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_sources_are_asked_in_order_until_one_gives(tmp_path: Path, algorithm: str) -> None:
    calls: list[str] = []
    sources = [
        fake_source(None, calls, "first"),
        fake_source(CONTENT, calls, "second", packed=True),
        fake_source(CONTENT, calls, "third"),
    ]
    lines: list[str] = []
    fetch_files("demo", [raw_file(algorithm=algorithm)], tmp_path, [], sources, lines.append)
    assert calls == ["first", "second"]
    assert left(tmp_path / "demo") == ["rows"]
    assert lines == [
        "fetching rows from the source first",
        "the source first failed: it is down",
        "fetching rows from the source second",
    ]


def test_verified_files_are_not_fetched_again_and_need_no_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fetch_files("demo", [raw_file()], tmp_path, [], [fake_source(CONTENT, calls)])
    monkeypatch.setattr(fetching, "FileLock", None)
    fetch_files("demo", [raw_file()], tmp_path, [], [fake_source(CONTENT, calls)])
    assert calls == ["fake"]


@pytest.mark.parametrize("damage", [b"", CONTENT[:-1], b"X" + CONTENT[1:], CONTENT + b"more"])
def test_damaged_raw_file_is_replaced(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "rows").write_bytes(damage)
    with pytest.raises(
        DataUnavailableError, match="rows has another checksum than expected; fetch demo first"
    ):
        verified_path("demo", raw_file(), tmp_path)
    fetch_files("demo", [raw_file()], tmp_path, [], [fake_source(CONTENT, [])])
    assert verified_path("demo", raw_file(), tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize(
    "damage", [b"wrong", gzip.compress(CONTENT)[:-9], b"X" + CONTENT[1:]], ids=["short", "cut", "changed"]
)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_wrong_content_is_never_installed(tmp_path: Path, damage: bytes, ending: str) -> None:
    user = tmp_path / "user"
    user.mkdir()
    (user / f"rows{ending}").write_bytes(damage)
    with pytest.raises(DataUnavailableError) as caught:
        fetch_files("demo", [raw_file()], tmp_path / "raw", [user], [fake_source(damage, [])])
    assert left(tmp_path / "raw" / "demo") == []
    assert f"rows{ending}" in str(caught.value)
    assert str(user) in str(caught.value)


def test_unpacking_stops_at_the_declared_size(tmp_path: Path) -> None:
    """A small archive that unpacks to 64 MiB does not fill the disk or the memory."""
    bomb = tmp_path / "rows.gz"
    bomb.write_bytes(gzip.compress(bytes(64 << 20)))
    written = 0
    for chunk in fetching._content_chunks(bomb, raw_file()):
        written += len(chunk)
    assert written == len(CONTENT) + 1


def test_failure_is_one_sentence_with_files_place_origin_and_reasons(tmp_path: Path) -> None:
    files = [raw_file(), raw_file(b"other", "labels")]
    sources = [fake_source(None, [], "npm"), fake_source(None, [], "web")]
    with pytest.raises(DataUnavailableError) as caught:
        fetch_files("demo", files, tmp_path, [], sources)
    assert str(caught.value) == (
        f"demo needs rows, labels (or with .gz): put them into {tmp_path / 'demo'} or a folder of "
        "data.search_dirs; they come from the source npm (it is down) or the source web (it is down)."
    )


def test_files_that_came_are_kept_when_others_fail(tmp_path: Path) -> None:
    files = [raw_file(), raw_file(b"other", "labels")]
    with pytest.raises(DataUnavailableError, match="demo needs labels"):
        fetch_files("demo", files, tmp_path, [], [fake_source(CONTENT, [])])
    assert left(tmp_path / "demo") == ["rows"]


def test_full_disk_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataUnavailableError, match=r"No space left on device.*make room"):
        fetch_files("demo", [raw_file()], tmp_path, [], [fake_source(CONTENT, [])])
    assert left(tmp_path / "demo") == []


def test_raw_folder_that_is_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "raw").write_text("in the way")
    with pytest.raises(DataUnavailableError, match="demo cannot be put into"):
        fetch_files("demo", [raw_file()], tmp_path / "raw", [], [fake_source(CONTENT, [])])


def test_two_at_once_fetch_once(tmp_path: Path) -> None:
    calls: list[str] = []
    quick = fake_source(CONTENT, calls)

    def slowly(work: Path, wanted: Sequence[RawFile], progress: Progress | None) -> Mapping[str, Path]:
        time.sleep(0.3)
        return quick.get(work, wanted, progress)

    failures: list[Exception] = []

    def fetch() -> None:
        try:
            fetch_files("demo", [raw_file()], tmp_path, [], [Source("slow", slowly)])
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=fetch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert calls == ["fake"]
    assert left(tmp_path / "demo") == ["rows"]


def test_waiting_for_another_fetch_ends_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "_LOCK_SECONDS", 0.1)
    (tmp_path / "demo").mkdir()
    with (
        fetching.FileLock(tmp_path / "demo" / ".lock"),
        pytest.raises(DataUnavailableError, match="being fetched by another process"),
    ):
        fetch_files("demo", [raw_file()], tmp_path, [], [fake_source(CONTENT, [])])


def test_after_kill_9_the_next_fetch_completes_and_cleans_up(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from sfumato.datasets.fetching import *\n"
        "def get(work, wanted, progress):\n"
        "    (work / 'rows').write_bytes(b'half'); print('ready', flush=True); time.sleep(60)\n"
        "file = RawFile('rows', 4, 'md5:0')\n"
        "fetch_files('demo', [file], Path(sys.argv[1]), [], [Source('slow', get)])\n"
    )
    root = Path(artifacts.__file__).parents[2]
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=root, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert any(name.startswith(".fetch-") for name in left(tmp_path / "demo"))
    fetch_files("demo", [raw_file()], tmp_path, [], [fake_source(CONTENT, [])])
    assert left(tmp_path / "demo") == ["rows"]


def test_missing_file_is_not_verified(tmp_path: Path) -> None:
    assert not is_verified(tmp_path / "rows", raw_file())
    with pytest.raises(SfumatoError, match="rows is missing"):
        verified_path("demo", raw_file(), tmp_path)
