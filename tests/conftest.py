from __future__ import annotations

from pathlib import Path

import pytest

from tests.flows import toy


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The toy repository, outside of git."""
    return toy.make_repository(tmp_path / "toy")


@pytest.fixture
def git_repository(tmp_path: Path) -> Path:
    """The toy repository, in git."""
    return toy.make_repository(tmp_path / "toy", git=True)


@pytest.fixture
def server() -> str:
    """Address of a Prefect server that all tests share."""
    return toy.shared_server()
