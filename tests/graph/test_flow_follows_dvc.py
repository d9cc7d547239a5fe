"""The flow has no order of its own: it is DVC's graph, and it runs what DVC would run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dvc.repo import Repo

from flows.errors import FlowError
from flows.graph import run_graph
from flows.pipeline import Pipeline, Plan
from tests.flows import toy


def edges_of_dvc(root: Path) -> set[tuple[str, str]]:
    graph: Any = Repo(str(root)).index.graph
    return {(one.name, other.name) for one, other in graph.edges}


def edges_of(plan: Plan) -> set[tuple[str, str]]:
    return {(node.name, need) for node in plan.nodes for need in node.needs}


@pytest.mark.parametrize("real", [False, True])
def test_plan_has_exactly_the_stages_and_edges_of_dvc(repository: Path, real: bool) -> None:
    root = toy.PROJECT if real else repository
    if not (root / "dvc.yaml").exists():
        pytest.skip("the project has no dvc.yaml yet")
    plan = Pipeline(root).plan()
    assert set(plan.names) == {stage.name for stage in Repo(str(root)).index.stages}
    assert len(plan.names) == len(set(plan.names))
    assert edges_of(plan) == edges_of_dvc(root)


def test_every_stage_comes_after_those_it_needs(repository: Path) -> None:
    seen: set[str] = set()
    for node in Pipeline(repository).plan().nodes:
        assert set(node.needs) <= seen
        seen.add(node.name)


def test_targets_bring_only_what_they_need(repository: Path) -> None:
    pipeline = Pipeline(repository)
    assert set(pipeline.plan(["topk-account"]).names) == {"prepare@a", "topk-train@a-1", "topk-account"}
    group = pipeline.plan(["topk-train"]).names
    assert len([name for name in group if name.startswith("topk-train@")]) == 4
    assert pipeline.plan(["data/other.txt"]).names == ("other-train",)
    assert pipeline.plan([]).names == ()


def test_unknown_target_is_one_sentence_that_names_what_is_allowed(repository: Path) -> None:
    with pytest.raises(
        FlowError, match=r"'topk-tain' is not in the graph; allowed are .*topk-train"
    ) as caught:
        Pipeline(repository).plan(["topk-tain"])
    assert "\n" not in str(caught.value)


def test_broken_graph_is_one_sentence(repository: Path) -> None:
    (repository / "dvc.yaml").write_text("stages: [\n")
    with pytest.raises(FlowError, match=r"dvc\.yaml") as caught:
        Pipeline(repository).plan()
    assert "\n" not in str(caught.value)


def test_edited_library_reruns_its_stages_and_no_other(
    undisturbed: Path, tmp_path: Path, server: str
) -> None:
    repository = toy.copied(undisturbed, tmp_path / "toy")
    first = {stage.name: stage.state for stage in run_graph(repository).stages}
    assert {name for name, state in first.items() if state == "ran"} == {
        "topk-train@a-3",
        "other-train",
        "report",
    }
    library = repository / "library" / "arithmetic.py"
    library.write_text(library.read_text().replace("+ seed", "- seed"))
    second = {stage.name: stage.state for stage in run_graph(repository).stages}
    assert {name for name, state in second.items() if state == "ran"} == {
        "topk-train@a-1",
        "topk-train@a-3",
        "topk-account",
        "report",
    }
    assert second["prepare@a"] == second["other-train"] == "cached"
    assert '"accuracy": 13.0' in (repository / "data/metrics/topk/train/a-dense-1.json").read_text()


def test_stage_that_went_back_comes_from_the_run_cache(
    undisturbed: Path, tmp_path: Path, server: str
) -> None:
    repository = toy.copied(undisturbed, tmp_path / "toy")
    (repository / "source.txt").write_text("7")
    run_graph(repository, ["prepare@a"])
    (repository / "source.txt").write_text("1 2 3")
    (stage,) = run_graph(repository, ["prepare@a"]).stages
    assert stage.state == "cached"
    assert (repository / "data/prepared/a.txt").read_text() == "7.0"
