"""The benchmark of the engines measures steps that do the same, and prints what it promises; the page is right."""

from __future__ import annotations

import doctest
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.engine import CONTENDERS, IMPORTS, build_case, in_a_process_of_its_own, peak_mb, prepared
from sfumato.dpsgd import ParameterLayout

PAGE = Path(__file__).resolve().parents[1] / "docs/engine.md"
PROMISED = {
    "model",
    "engine",
    "support",
    "active_ratio",
    "seconds",
    "ratio_tuned_nonprivate",
    "speedup_opacus",
    "speedup_opacus_tuned",
    "peak_mb",
}


def test_the_example_on_the_page_runs() -> None:
    assert doctest.testfile(str(PAGE), module_relative=False).failed == 0


def test_the_page_names_constants_of_the_planner_that_exist() -> None:
    named = re.findall(r"`(\w+)\.([A-Z_]+)`", PAGE.read_text())
    assert len(named) >= 6
    for module, constant in named:
        assert hasattr(importlib.import_module(f"sfumato.dpsgd.{module}"), constant), (module, constant)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mlp", "cnn28"])
def test_without_noise_all_private_engines_take_the_same_steps(model: str) -> None:
    found = dict[tuple[str, str, float], torch.Tensor]()
    start = torch.zeros(0)
    for engine, support, ratio in CONTENDERS:
        case = build_case(model, 37, support, ratio, noise_multiplier=0.0)
        layout = ParameterLayout.of(case.model)
        start, step = layout.flatten(case.model), prepared(engine, case)
        step()
        step()
        found[(engine, support, ratio)] = layout.flatten(case.model)
    for (engine, support, ratio), weights in found.items():
        base = ("nonprivate_tuned" if engine.startswith("nonprivate") else "opacus", "full", 1.0)
        if support != "full":
            base = ("planned", support, ratio)
        # two steps with gradients of norm 1 at most and a rate of 0.01 move less than 0.05
        assert float((weights - found[base]).norm()) < 1e-5
        assert 1e-4 < float((weights - start).norm()) < 0.05 or engine.startswith("nonprivate")


@pytest.mark.slow
def test_the_engine_benchmark_prints_a_row_for_each_engine_and_support() -> None:
    words = ["--json", "--models", "mlp", "--batch", "16", "--rounds", "1", "--without-memory"]
    command = [sys.executable, "-m", "benchmarks.engine", *words]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = json.loads(printed)
    assert all(set(row) == PROMISED for row in rows)
    assert [(row["engine"], row["support"]) for row in rows] == [c[:2] for c in CONTENDERS]
    assert all(row["peak_mb"] is None for row in rows)
    for row in rows:
        assert 0 < row["active_ratio"] <= 1
        assert min(row["seconds"], row["ratio_tuned_nonprivate"], row["speedup_opacus"]) > 0
        assert (row["ratio_tuned_nonprivate"] == 1) == (row["engine"] == "nonprivate_tuned")


@pytest.mark.slow
def test_peaks_are_of_processes_that_import_no_more_than_their_engine(tmp_path: Path) -> None:
    alone = {name: in_a_process_of_its_own("--peak-of", f"imports,{name}") for name in IMPORTS}
    assert alone["torch"] < min(alone["planned"], alone["opacus"])
    case = build_case("mlp", 16, "full", 1.0)
    found = {engine: peak_mb(engine, case) for engine in ("planned_torch", "planned")}
    assert alone["torch"] < found["planned_torch"]
    assert alone["planned"] < found["planned"]
    program = (
        "import sys, torch; from benchmarks.engine import Case, prepared\n"
        "case = Case(torch.nn.Linear(2, 2), torch.zeros(1, 2), torch.tensor([0]), torch.arange(6))\n"
        "prepared('planned', case)(); print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    command = [sys.executable, "-c", program]
    imported = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert "numba" in imported
    assert not {"opacus", "dp_accounting"} & set(imported)
