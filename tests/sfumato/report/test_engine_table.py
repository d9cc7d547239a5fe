"""The engine's figures on the page are the benchmark's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sfumato.errors import SfumatoError
from sfumato.report.engine_table import engine_cells, engine_markdown, engine_rows, engine_section

ROW: dict[str, Any] = {
    "model": "cnn32",
    "engine": "planned",
    "support": "random",
    "active_ratio": 0.05,
    "seconds": 0.8,
    "ratio_tuned_nonprivate": 0.8,
    "speedup_opacus": 5.0,
    "speedup_opacus_tuned": 3.0,
    "peak_mb": None,
}


def test_a_private_step_that_is_cheaper_than_plain_sgd_has_no_share_of_privacy() -> None:
    row = engine_rows([ROW])[0]
    assert row.privacy_share == pytest.approx(-0.25)
    assert engine_cells(row) == [
        "CIFAR-10 network", "planned", "random, 5%", "1.25", "none", "0.80", "5.00", "3.00", "–"
    ]  # fmt: skip
    assert engine_cells(replace(row, ratio=1.25))[4] == "20%"
    assert engine_cells(replace(row, engine="nonprivate_tuned"))[4] == "–"


def test_the_page_shows_plain_sgd_and_the_planned_engine_alone() -> None:
    names = ["planned", "opacus", "nonprivate_tuned", "functional", "imports"]
    rows = engine_rows([{**ROW, "engine": name} for name in names])
    assert len(rows) == 4
    assert [cells[1] for cells in engine_section(rows)["rows"]] == ["planned", "no privacy, tuned"]
    assert len(engine_markdown(rows).splitlines()) == 6
    assert engine_section([])["rows"] == []


@pytest.mark.parametrize("document", [{}, 3, None, [3], [{"model": "cnn32"}], [{**ROW, "seconds": "soon"}]])
def test_what_is_no_benchmark_is_one_sentence(document: Any) -> None:
    with pytest.raises(SfumatoError, match=r"benchmarks\.engine prints") as caught:
        engine_rows(document)
    assert "\n" not in str(caught.value)
