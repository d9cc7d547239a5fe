"""What a flow needs around it is checked before anything is started or written."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows import graph, mirror, reproduce, topk, workspace
from flows.environment import check_root
from flows.timings import TIMINGS, last_seconds
from sfumato.artifacts import write_text


@pytest.mark.parametrize("module", [graph, mirror, reproduce, topk, workspace])
@pytest.mark.parametrize("kind", ["missing", "file", "empty"])
def test_a_wrong_root_is_one_sentence_and_makes_nothing(
    module: object, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / kind
    if kind == "file":
        root.write_text("x")
    elif kind == "empty":
        root.mkdir()
    before = sorted(tmp_path.rglob("*"))
    assert module.main(["--root", str(root)]) == 2  # type: ignore[attr-defined]
    error = capsys.readouterr().err
    assert error == f"--root is {str(root)!r}; allowed is a folder that holds a dvc.yaml.\n"
    assert sorted(tmp_path.rglob("*")) == before


def test_a_root_is_resolved(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository)
    assert check_root(Path()) == repository.resolve()


def test_an_api_that_does_not_answer_is_one_sentence(repository: Path) -> None:
    from tests.flows import toy

    status, said = toy.finish(toy.start("topk", repository, url="http://127.0.0.1:9/api"))
    assert status == 2
    assert "PREFECT_API_URL is 'http://127.0.0.1:9/api', and no Prefect API answers there" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("entry", ['{"last_run_seconds": "x"}', '"x"', "3", '{"last_run_seconds": null}'])
def test_damaged_timings_count_as_none(entry: str, tmp_path: Path) -> None:
    write_text(tmp_path / TIMINGS, f'{{"stages": {{"a": {entry}, "b": {{"last_run_seconds": 2.5}}}}}}')
    assert last_seconds(tmp_path) == {"b": 2.5}
