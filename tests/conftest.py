"""One thread of arithmetic per worker, as the steps have it; and the toy repository that the flows' tests share."""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = (
        "1"  # before numpy or torch loads: two threads on two busy cores are many times slower
    )

from pathlib import Path

import pytest
from hypothesis import settings

from flows.graph import run_graph
from tests.flows import toy

# The quick set gives one answer for one state of the code; `make test-all` looks for new examples.
settings.register_profile("fixed", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile("fixed")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The toy repository, outside of git."""
    return toy.make_repository(tmp_path / "toy")


@pytest.fixture
def git_repository(tmp_path: Path) -> Path:
    """The toy repository, in git."""
    return toy.make_repository(tmp_path / "toy", git=True)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toy of one data set after a run that nothing disturbed; tests copy it (``toy.copied``) and compare with it."""
    toy.shared_server()
    root = toy.make_repository(tmp_path_factory.mktemp("undisturbed") / "toy")
    toy.set_params(root, datasets="[a]")
    run_graph(root, ["topk-account"])
    return root


@pytest.fixture
def server() -> str:
    """Address of a Prefect server that all tests share."""
    return toy.shared_server()
