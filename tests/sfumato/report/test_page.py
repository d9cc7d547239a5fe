from __future__ import annotations

import re
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from sfumato import artifacts
from sfumato.errors import SfumatoError
from sfumato.report import Study, between_markers, build, run_of, support_of
from sfumato.report.figure import spread
from sfumato.report.study import Statement

sys.path.insert(0, str(Path(__file__).parent))
import generated
from pages import ROOT, Page, assert_well_formed, run_step


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    generated.write_run(root, (ROOT / "params.yaml").read_text(encoding="utf-8"))
    generated.write_results(root)
    return root


@pytest.fixture(scope="module")
def page(tree: Path) -> str:
    done = run_step(tree, "report")
    assert done.returncode == 0, done.stderr
    return (tree / "report/index.html").read_text(encoding="utf-8")


def test_page_is_well_formed_with_unique_ids_and_every_reference_meets_one(page: str) -> None:
    assert_well_formed(page)


def test_page_reaches_no_network_and_runs_no_script(page: str) -> None:
    parsed = Page(page)
    assert all(link.startswith("#") for link in parsed.links)
    assert not {"script", "link", "img", "iframe", "object"} & set(parsed.tags)
    assert "@import" not in page
    assert "url(http" not in page
    assert "default-src 'none'" in page


def test_page_is_small_and_every_picture_has_a_name_and_a_description(page: str) -> None:
    parsed = Page(page)
    assert len(page.encode()) < 2_000_000
    assert len(parsed.svgs) >= 12
    for svg in parsed.svgs:
        labels = str(svg.get("aria-labelledby")).split()
        assert svg.get("role") == "img"
        assert len(labels) == 2
        assert set(labels) <= set(parsed.ids)


def test_pictures_follow_the_colours_of_the_page(page: str) -> None:
    drawings = "".join(re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL))
    assert set(re.findall(r"#[0-9a-f]{6}\b", drawings)) <= {"#000000", "#ffffff"}
    assert "prefers-color-scheme: dark" in page.replace(
        "prefers-color-scheme:dark", "prefers-color-scheme: dark"
    )


def test_page_says_everything_that_was_asked_of_it(page: str) -> None:
    for words in (
        "Limits first",
        "95 % interval",
        "paired over seeds",
        "ε claimed beside ε audited",
        "No lower bound crosses its claim",
        "Privacy statement of mnist-tp_topk-3",
        "Long runs",
        "On your own data",
        "FedPriKL",
        "settings compared on validation rows",
    ):
        assert words in page


def test_texts_of_statements_are_escaped(page: str) -> None:
    assert "&lt;b&gt;one row&lt;/b&gt; &amp; δ" in page


@pytest.mark.slow
def test_equal_inputs_give_equal_bytes_in_another_process(tree: Path, page: str) -> None:
    names = ("index.html", "claims.json", "summary.txt")
    before = [(tree / "report" / name).read_bytes() for name in names]
    assert run_step(tree, "report").returncode == 0
    assert [(tree / "report" / name).read_bytes() for name in names] == before


def test_page_holds_neither_paths_nor_dates_nor_the_clock(tree: Path, page: str) -> None:
    assert str(tree) not in page
    assert str(ROOT) not in page
    assert not re.search(r"\b20\d\d-\d\d-\d\d\b", page)


def test_step_writes_nothing_but_its_outputs_and_its_cache(tree: Path, page: str) -> None:
    found = {path.relative_to(tree).parts[0] for path in tree.rglob("*") if path.is_file()}
    assert found <= {"params.yaml", "data", "results", "report", ".runtime"}


def test_summary_is_aligned_and_says_where_to_look(tree: Path, page: str) -> None:
    lines = (tree / "report/summary.txt").read_text(encoding="utf-8").splitlines()
    head = next(line for line in lines if line.startswith("data "))
    rows = [line for line in lines if line.startswith("MNIST ")]
    assert len(rows) == 11
    assert all(row[head.index("test accuracy") - 1] == " " for row in rows)
    assert any("report/index.html" in line for line in lines)


def test_a_crossed_claim_is_shown_in_red(tmp_path: Path) -> None:
    run = run_of("quick", "topk", "base", [generated.audit_document("mnist", 3.4)])
    html = build(Study(run)).html
    assert 'class="crossed"' in html
    assert "the claimed ε is refuted" in html


def test_parts_that_are_missing_are_said_and_do_not_stop_the_page() -> None:
    full = [generated.train_document("mnist", (*generated.METHODS, "non_private"))]
    for documents in (
        [],
        full,
        [generated.attack_document("mnist")],
        [*full, generated.account_document("mnist")],
    ):
        html = build(Study(run_of("quick", "topk", "base", documents))).html
        assert Page(html).stack == []
        assert 'class="none"' in html
    single = run_of("quick", "topk", "base", [generated.train_document("mnist", seeds=[0])])
    assert "one seed: no interval" in build(Study(single)).html


def test_one_method_and_one_epsilon_are_enough() -> None:
    for methods in (["dense"], ["tp_topk"], ["non_private"]):
        document = generated.train_document("mnist", methods, ["3"], seeds=[0, 1])
        assert Page(build(Study(run_of("smoke", "topk", "base", [document]))).html).stack == []


@pytest.mark.slow
def test_records_of_another_grid_are_left_out(tree: Path, page: str) -> None:
    stray = generated.train_document("digits", ["dense"], ["7"])
    path = tree / "data/metrics/topk/train/digits-dense-7.json"
    artifacts.write_json(path, stray)
    try:
        assert run_step(tree, "report").returncode == 0
        assert (tree / "report/index.html").read_text(encoding="utf-8") == page
    finally:
        path.unlink()


def test_a_damaged_metrics_file_is_one_sentence_and_exit_2(tree: Path) -> None:
    path = tree / "data/metrics/topk/train/zz.json"
    path.write_text('{"system": "topk", ', encoding="utf-8")
    try:
        done = run_step(tree, "report")
    finally:
        path.unlink()
    assert done.returncode == 2
    assert "zz.json" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_profile_is_recognised_by_the_parameters_it_lays_over(tmp_path: Path) -> None:
    from tasks.report import _name_of

    (tmp_path / "profiles").mkdir()
    text = "params: {topk: {grid: {epsilons: [8]}}}\nvariants:\n  - name: base\n  - {name: r, params: {topk: {k: 2}}}\n"
    (tmp_path / "profiles/large.yaml").write_text(text, encoding="utf-8")
    assert _name_of(tmp_path, {"topk": {"grid": {"epsilons": [1]}, "k": 1}}) == ("quick", "base")
    assert _name_of(tmp_path, {"topk": {"grid": {"epsilons": [8]}, "k": 1}}) == ("large", "base")
    assert _name_of(tmp_path, {"topk": {"grid": {"epsilons": [8]}, "k": 2}}) == ("large", "r")


# ------------------------------------------------------------------------------------------------------ docs
def test_docs_refresh_the_readme_between_its_markers_and_nothing_else(tree: Path) -> None:
    start, end = "# Title\n\n<!-- results:begin -->\n", "<!-- results:end -->\n\nThe rest.\n"
    readme = tree / "README.md"
    readme.write_text(start + "former figures\n" + end, encoding="utf-8")
    timings = {"stages": {"topk-train@mnist-tp_topk-1": {"state": "ran", "last_run_seconds": 90.0}}}
    artifacts.write_json(tree / "report/timings.json", timings)
    names = ("README.md", "docs/claims.md", "docs/claims.json")
    try:
        assert run_step(tree, "docs").returncode == 0
        first = [(tree / name).read_bytes() for name in names]
        assert run_step(tree, "docs").returncode == 0
        assert [(tree / name).read_bytes() for name in names] == first
        text = readme.read_text(encoding="utf-8")
    finally:
        readme.unlink()
        (tree / "report/timings.json").unlink()
        for name in names[1:]:
            (tree / name).unlink(missing_ok=True)
    assert text.startswith(start)
    assert text.endswith(end)
    assert "| MNIST | TP-TopK | 1 | 92.6 ± 1.2 % | 0.507 | 1.20 % | – | 1.5 |" in text
    assert "former figures" not in text


def test_a_readme_without_markers_is_refused() -> None:
    for text in ("nothing", "<!-- results:end --><!-- results:begin -->", "<!-- results:begin -->"):
        with pytest.raises(SfumatoError, match="results:begin"):
            between_markers(text, "new")


# -------------------------------------------------------------------------------------------------- supports
def test_support_marks_exactly_the_active_weights_of_the_first_layer() -> None:
    layout = '[["bias", [3]], ["weight", [2, 2]], ["more", [4]]]'
    tensors = {"seed1/weight": np.ones((2, 2)), "seed1/support": np.array([2, 3, 6, 8])}
    found = support_of(("mnist", "tp_topk", "1", "1"), tensors, {"layout": layout})
    assert found is not None
    assert found.first_name == "weight"
    assert found.first_active.tolist() == [[True, False], [False, True]]
    assert support_of(("mnist", "tp_topk", "1", "2"), tensors, {"layout": layout}) is None


def test_labels_are_spread_apart_and_keep_their_order() -> None:
    places = [0.5, 0.52, 0.51, 0.9, 0.0]
    found = spread(places, 0.1)
    ordered = [found[i] for i in sorted(range(5), key=lambda i: places[i])]
    assert all(b - a >= 0.1 - 1e-6 for a, b in pairwise(ordered))


def test_equal_statements_of_seeds_are_shown_once() -> None:
    made = [Statement("mnist", "dense", "1", str(seed), "the same text", {}) for seed in range(3)]
    html = build(Study(run_of("quick", "topk", "base", []), statements=tuple(made))).html
    assert html.count("the same text") == 1
    assert "seeds 0, 1, 2" in html


def test_small_numbers_on_axes_keep_their_digits() -> None:
    document = generated.train_document("mnist")
    for method in document["values"]["mnist"].values():
        for seeds in method.values():
            for values in seeds.values():
                if "dropped_energy" in values:
                    values |= {
                        "dropped_energy": 0.0005,
                        "noise_energy_active": 0.0001,
                        "noise_energy_dense": 0.005,
                        "noise_energy_dense_budget": 0.004,
                    }
    html = build(Study(run_of("quick", "topk", "base", [document]))).html
    assert ">0.001</text>" in html


def test_panels_with_one_axis_show_every_curve() -> None:
    from sfumato.report.curve_charts import curves_chart

    rows = [
        {
            "dataset": "mnist",
            "method": "dense",
            "epsilon": epsilon,
            "seed": "0",
            "step": str(step),
            "phase": "dense",
            "gradient_norm": str(height),
        }
        for epsilon, height in (("1", 1.0), ("3", 9.0))
        for step in range(5)
    ]
    svg = curves_chart(rows, "mnist", "gradient_norm", "norm", "example")
    assert ">8</text>" in svg
