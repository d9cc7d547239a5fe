from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tasks import command, docs, prepare

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(ROOT / "params.yaml", tmp_path / "params.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


CALLS = {
    "prepare": lambda words: command.main("prepare", {"": prepare.prepare}, words),
    "warmup": lambda words: command.main("warmup", None, words),
    "train": lambda words: command.main("train", None, words),
    "attack": lambda words: command.main("attack", None, words),
    "account": lambda words: command.main("account", None, words),
    "shadow": lambda words: command.main("shadow", None, words),
}


@pytest.mark.parametrize(
    ("step", "words", "sentence"),
    [
        ("prepare", "--dataset imagenet", "--dataset is 'imagenet'; allowed are mnist"),
        ("prepare", "", "--dataset is missing"),
        ("prepare", "--dataset ../etc", "--dataset is '../etc'; allowed are letters"),
        ("warmup", "topk --dataset mnist --epsilon three", "--epsilon is 'three'; allowed is a number"),
        ("warmup", "topk --dataset mnist --epsilon 3", "mnist.npz is missing"),
        (
            "train",
            "topk --dataset mnist --method topk --epsilon 3",
            "--method is 'topk'; allowed are tp_topk",
        ),
        ("train", "topk --dataset mnist --epsilon 3", "--method is missing"),
        ("train", "topk --dataset mnist --method dense --epsilon -1", "epsilon"),
        (
            "attack",
            "topk --dataset mnist --epsilon 3 --attack gradient",
            "--attack is 'gradient'; allowed are loss",
        ),
        ("attack", "topk --dataset mnist --epsilon 3", "--attack is missing"),
        ("account", "topk --dataset mnist --epsilon 3", "mnist-tp_topk-3.json is missing"),
        ("shadow", "topk --dataset mnist --method dense --epsilon 3 --block x", "--block is 'x'; allowed is"),
        (
            "shadow",
            "topk --dataset mnist --method dense --epsilon 3 --block 0.5",
            "--block is '0.5'; allowed is",
        ),
        (
            "shadow",
            "topk --dataset mnist --method dense --epsilon 3 --block nan",
            "--block is 'nan'; allowed is",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_changes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], step: str, words: str, sentence: str
) -> None:
    before = _files(folder)
    assert CALLS[step](words.split()) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert "Traceback" not in error
    assert _files(folder) == before


def test_a_missing_parameter_file_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert CALLS["prepare"](["--dataset", "digits"]) == 2
    assert "params.yaml cannot be read" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_call: command.Call) -> None:
        raise OSError(28, "No space left on device", str(folder / "data" / "prepared" / "digits.npz"))

    before = _files(folder)
    assert command.main("prepare", {"": full}, ["--dataset", "digits"]) == 1
    error = capsys.readouterr().err
    assert "digits.npz" in error
    assert "No space left on device" in error
    assert str(folder) not in error
    assert _files(folder) == before


def test_a_corrupt_input_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "data" / "prepared" / "digits.npz"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"PK\x03\x04 not really")
    assert CALLS["warmup"](["topk", "--dataset", "digits", "--epsilon", "3"]) == 2
    assert "digits.npz" in capsys.readouterr().err


def test_documents_are_not_made_from_no_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(ROOT / "README.md", folder / "README.md")
    before = _files(folder)
    assert command.main("docs", {"": docs.docs}, []) == 2
    assert (
        "there is no finished run to document; needed is one, such as make run leaves."
        in capsys.readouterr().err
    )
    assert _files(folder) == before
