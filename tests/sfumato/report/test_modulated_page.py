from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from sfumato import artifacts
from sfumato.records import MeanInterval
from sfumato.report import Study, build, run_of
from sfumato.report.modulated_charts import error_chart
from sfumato.report.modulated_page import error_cells
from sfumato.report.modulated_tables import ErrorRow, error_rows, twin_rows
from sfumato.report.study import ALL_SEEDS, Statement

sys.path.insert(0, str(Path(__file__).parent))
import generated
import generated_modulated
from pages import ROOT, Page, assert_well_formed, run_step, written

EMPTY = run_of("quick", "topk", "base", [])


def section(html: str) -> str:
    found = re.search(r'<section id="modulated">.*?</section>', html, flags=re.DOTALL)
    assert found
    return found[0]


def page_of(*documents: dict[str, object]) -> str:
    return build(Study(EMPTY, further=(generated_modulated.run_with(*documents),))).html


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    (root / "params.yaml").write_text((ROOT / "params.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    document = generated.train_document("mnist", ["dense"])
    artifacts.write_json(root / "data/metrics/topk/train/mnist.json", document)
    artifacts.write_text(root / "data/statements/topk/mnist-1/dense-0.txt", "Privacy statement of mnist.\n")
    generated_modulated.write_run(root)
    return root


@pytest.fixture(scope="module")
def page(tree: Path) -> str:
    return written(tree)


def test_page_with_both_systems_is_well_formed_self_contained_and_without_fixed_colours(page: str) -> None:
    assert_well_formed(page)


def test_section_says_what_a_reader_needs_to_know(page: str) -> None:
    text = " ".join(section(page).split())
    for words in (
        "together with its label in the clear",
        "<i>local</i> (ε, δ)-differential privacy",
        "noise-dominated",
        "What the modulation contributes",
        "Noise σ of one message",
        "guessing the mean for everybody",
        "No lower bound crosses its claim",
        "fits with an interval",
        "a fit on the private data that no ε above pays for",
        "statements, one per data set, method and ε",
        "medium · rounds 5",
        "Central (AdaSSP)",
    ):
        assert words in text


def test_statements_of_both_systems_stay_apart_and_are_escaped(page: str) -> None:
    own = section(page)
    assert "Modulated statement of co2 at 5: &lt;i&gt;labels&lt;/i&gt;" in own
    assert "all seeds" in own
    assert "Modulated statement" not in page.replace(own, "")
    assert "Privacy statement of mnist" not in own
    assert "Privacy statement of mnist" in page


def test_the_other_systems_runs_do_not_enter_the_first_ones_tables(page: str) -> None:
    assert "CO₂" not in page[: page.index('<section id="modulated">')]


@pytest.mark.slow
def test_equal_inputs_give_equal_bytes_and_records_outside_of_the_grid_change_none(
    tree: Path, page: str
) -> None:
    names = ("index.html", "claims.json", "summary.txt")
    before = [(tree / "report" / name).read_bytes() for name in names]
    stray = generated_modulated.train_document(datasets=["anes96"], epsilons=["7"])
    path = tree / "data/metrics/modulated/train/anes96.json"
    artifacts.write_json(path, stray)
    try:
        assert run_step(tree, "report").returncode == 0
    finally:
        path.unlink()
    assert [(tree / "report" / name).read_bytes() for name in names] == before


def test_summary_has_a_second_aligned_table(tree: Path, page: str) -> None:
    lines = (tree / "report/summary.txt").read_text(encoding="utf-8").splitlines()
    head = next(line for line in lines if "central (AdaSSP)" in line)
    rows = [line for line in lines if line.startswith(("CO₂ ", "Fair "))]
    assert len(rows) == 4
    assert [row.split()[1] for row in rows] == ["1*", "5", "1*", "5"]
    assert all(row[head.index("one-shot") - 1] == " " for row in rows)
    assert any(line.startswith("MNIST ") for line in lines)


# --------------------------------------------------------------------------------------------- missing parts
def test_page_renders_without_the_modulated_system() -> None:
    for study in (Study(EMPTY), Study(EMPTY, further=(run_of("quick", "modulated", "base", []),))):
        html = build(study).html
        assert Page(html).stack == []
        assert "No fit of the modulated system is finished yet" in section(html)
        assert "Modulated" not in build(study).summary


@pytest.mark.slow
def test_parts_that_are_missing_are_said_and_do_not_stop_the_page() -> None:
    train = generated_modulated.train_document
    for documents in (
        [train(seeds=[0])],
        [train({"iterative": 0.5})],
        [train({})],
        [train(dominated=True, covered=[None])],
        [generated_modulated.attack_document()],
        [generated_modulated.audit_document()],
        [generated_modulated.account_document()],
    ):
        assert Page(page_of(*documents)).stack == []
    bare = section(page_of(train({"iterative": 0.5})))
    for words in ("no twins to compare", "No reconstruction attack", "was not audited", "no one-shot fits"):
        assert words in bare


def test_one_epsilon_and_one_data_set_are_enough_for_every_chart() -> None:
    document = generated_modulated.train_document(datasets=["co2"], epsilons=["5"])
    assert Page(page_of(document)).stack == []


@pytest.mark.parametrize("labels", ["public", "private"])
def test_section_says_how_labels_are_treated(labels: str) -> None:
    study = Study(EMPTY, settings={"modulated_labels": labels})
    text = " ".join(section(build(study).html).split())
    assert ("Labels are not protected at all" in text) is (labels == "public")
    assert ("for its features and label" in text) is (labels == "private")


def test_attacks_on_private_labels_have_a_table_and_public_ones_none() -> None:
    """Of the run on show and of a committed one; the maximum-likelihood attacker is the linear one there."""
    train = generated_modulated.train_document()
    shown = section(page_of(train, generated_modulated.attack_document(label_ratio=1.01)))
    assert "Attacks on the private label: 24" in " ".join(shown.split())
    assert "Attacks on the private label" not in section(
        page_of(train, generated_modulated.attack_document())
    )
    long = generated_modulated.run_with(
        train,
        generated_modulated.attack_document(label_ratio=0.8),
        profile="medium",
        variant="labels_private",
    )
    html = section(build(Study(EMPTY, results=(long,))).html)
    assert "Attacks on the private label: 24" in " ".join(html.split())
    assert 'class="crossed"' in html


# ------------------------------------------------------------------------------------------------- warnings
@pytest.mark.slow
def test_a_crossed_audit_and_an_error_below_its_floor_are_shown_in_red() -> None:
    train = generated_modulated.train_document()
    calm = section(
        page_of(train, generated_modulated.audit_document(), generated_modulated.attack_document())
    )
    assert 'class="crossed"' not in calm
    audited = section(page_of(train, generated_modulated.audit_document(5.5)))
    assert "the claimed ε is refuted" in audited
    assert audited.count('class="crossed"') == 1
    beaten = section(page_of(train, generated_modulated.attack_document({"exact_posterior_mean": 0.5})))
    assert beaten.count('class="crossed"') == 8


def test_worthless_errors_are_never_the_best_and_dominated_ones_are_starred() -> None:
    errors = {"one_shot": 1.5, "iterative": 1.2, "ada_ssp": 0.1}
    run = generated_modulated.run_with(generated_modulated.train_document(errors, ["co2"], ["1"], seeds=[0]))
    cells = {line["method"].name: line["cells"][0] for line in error_cells(error_rows(run))}
    assert cells["one_shot"]["tone"] == cells["iterative"]["tone"] == "worthless"
    assert cells["one_shot"]["text"].endswith("*")
    assert cells["ada_ssp"]["tone"] == ""
    assert cells["mean"] == {"text": "1", "tone": ""}


def test_the_best_is_the_smallest_local_error() -> None:
    errors = {"one_shot": 0.5, "iterative": 0.3, "ada_ssp": 0.1}
    run = generated_modulated.run_with(generated_modulated.train_document(errors, ["co2"], ["1"], seeds=[0]))
    tones = {line["method"].name: line["cells"][0]["tone"] for line in error_cells(error_rows(run))}
    assert tones == {"one_shot": "", "iterative": "best", "ada_ssp": "", "least_squares": "", "mean": ""}


def test_a_dominated_cell_is_marked_in_its_panel() -> None:
    def rows(dominated: bool) -> list[ErrorRow]:
        return [ErrorRow("co2", "one_shot", e, MeanInterval(0.5, 0.1, 4), dominated, 0.0) for e in ("1", "5")]

    assert ">noise-dominated</text>" in error_chart(rows(True), "a")
    assert ">noise-dominated</text>" not in error_chart(rows(False), "a")


def test_twins_are_read_only_where_both_have_the_seeds() -> None:
    run = generated_modulated.run_with(generated_modulated.train_document({"one_shot_descent": 0.5}))
    assert twin_rows(run) == []
    pairs = {(row.method, row.twin) for row in twin_rows(generated_modulated.full_run())}
    assert pairs == {("one_shot_descent", "no_modulation"), ("other_frequency", "one_shot_descent")}


def test_current_run_takes_the_place_of_a_committed_one_of_its_name() -> None:
    old, new = generated_modulated.run_with(), generated_modulated.full_run()
    runs = Study(EMPTY, results=(old,), further=(new,)).runs
    assert [run for run in runs if run.system == "modulated"] == [new]


def test_statements_of_another_system_are_not_shown_in_the_section() -> None:
    made = Statement("co2", "one_shot", "5", ALL_SEEDS, "its own words", {}, "modulated")
    html = build(Study(EMPTY, statements=(made,))).html
    assert html.count("its own words") == 1
    assert "its own words" in section(html)


# ----------------------------------------------------------------------------------------------------- docs
@pytest.mark.parametrize("marked", [True, False])
def test_docs_write_the_second_table_only_between_its_own_markers(
    tree: Path, page: str, marked: bool
) -> None:
    begin, end = "<!-- modulated:begin -->", "<!-- modulated:end -->"
    place = f"{begin}\nformer\n{end}\n" if marked else "no place\n"
    readme = tree / "README.md"
    readme.write_text(f"<!-- results:begin -->\n<!-- results:end -->\n{place}rest\n", encoding="utf-8")
    timings = {"stages": {"topk-train@mnist-tp_topk-1": {"state": "ran", "last_run_seconds": 90.0}}}
    artifacts.write_json(tree / "report/timings.json", timings)
    try:
        done = run_step(tree, "docs")
        assert done.returncode == 0, done.stderr
        text = readme.read_text(encoding="utf-8")
    finally:
        readme.unlink()
        (tree / "report/timings.json").unlink()
        for name in ("claims.md", "claims.json"):
            (tree / "docs" / name).unlink(missing_ok=True)
    assert text.endswith("rest\n")
    assert ("| CO₂ | 1* |" in text) is marked
    assert "former" not in text
    assert ("no place" in text) is not marked
