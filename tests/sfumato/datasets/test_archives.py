"""Archives: only asked-for members leave them, to paths that the caller chose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sfumato.datasets.archives import extract_tar, extract_zip
from sfumato.datasets.fetching import SourceError

Maker = Callable[..., Path]
UNSAFE = ["../evil", "/evil", "a/../../evil", "C:/evil", "a\\..\\evil"]


def test_tar_member_goes_to_the_chosen_path_and_nothing_else_does(tmp_path: Path, make_tar: Maker) -> None:
    archive = make_tar(tmp_path / "a.tgz", {"./data/rows": b"rows", "data/other": b"other"})
    extract_tar(archive, {"data/rows": tmp_path / "out"}, 4)
    assert (tmp_path / "out").read_bytes() == b"rows"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.tgz", "out"]


@pytest.mark.parametrize("name", UNSAFE)
def test_archives_with_unsafe_names_are_refused(
    tmp_path: Path, make_tar: Maker, make_zip: Maker, name: str
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    tar = make_tar(inner / "a.tgz", {name: b"evil", "rows": b"rows"})
    package = make_zip(inner / "a.zip", {name.replace("\\", "/"): b"evil", "rows": b"rows"})
    for extract, archive in ((extract_tar, tar), (extract_zip, package)):
        with pytest.raises(SourceError, match="unsafe name"):
            extract(archive, {"rows": inner / "out"}, 100)
    assert not (tmp_path / "evil").exists()
    assert not (inner / "out").exists()


def test_link_in_place_of_a_file_is_refused(tmp_path: Path, make_tar: Maker) -> None:
    archive = make_tar(tmp_path / "a.tgz", {}, {"rows": "/etc/passwd"})
    with pytest.raises(SourceError, match=r"rows in a\.tgz is not a file"):
        extract_tar(archive, {"rows": tmp_path / "out"}, 1 << 20)


def test_oversized_missing_and_damaged_members_are_refused(
    tmp_path: Path, make_tar: Maker, make_zip: Maker
) -> None:
    tar = make_tar(tmp_path / "a.tgz", {"rows": bytes(1000)})
    package = make_zip(tmp_path / "a.zip", {"rows": bytes(1000)})
    for extract, archive in ((extract_tar, tar), (extract_zip, package)):
        with pytest.raises(SourceError, match="at most 999 bytes"):
            extract(archive, {"rows": tmp_path / "out"}, 999)
        with pytest.raises(SourceError, match="lacks labels"):
            extract(archive, {"labels": tmp_path / "out"}, 1000)
        archive.write_bytes(archive.read_bytes()[:40])
        with pytest.raises(SourceError, match="is damaged"):
            extract(archive, {"rows": tmp_path / "out"}, 1000)
