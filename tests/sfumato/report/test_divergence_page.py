from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from sfumato import artifacts
from sfumato.report import Study, build, run_of
from sfumato.report.divergence_charts import bias_chart, error_chart, pair_chart, study_chart
from sfumato.report.divergence_page import error_tables
from sfumato.report.divergence_tables import estimate_rows
from sfumato.report.study import ALL_SEEDS, Statement
from sfumato.report.vocabulary import DIVERGENCE_METHODS

sys.path.insert(0, str(Path(__file__).parent))
import generated
import generated_divergence
import generated_modulated
from pages import ROOT, Page, assert_well_formed, run_step, written

EMPTY = run_of("quick", "topk", "base", [])


def section(html: str) -> str:
    found = re.search(r'<section id="divergence">.*?</section>', html, flags=re.DOTALL)
    assert found
    return found[0]


def words(html: str) -> str:
    return " ".join(section(html).split())


def page_of(*documents: dict[str, object]) -> str:
    return build(Study(EMPTY, further=(generated_divergence.run_with(*documents),))).html


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    (root / "params.yaml").write_text((ROOT / "params.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    document = generated.train_document("mnist", ["dense"])
    artifacts.write_json(root / "data/metrics/topk/train/mnist.json", document)
    generated_modulated.write_run(root)
    generated_divergence.write_run(root)
    return root


@pytest.fixture(scope="module")
def page(tree: Path) -> str:
    return written(tree)


def test_page_with_three_systems_is_well_formed_self_contained_and_without_fixed_colours(page: str) -> None:
    assert_well_formed(page)
    assert len(page.encode()) < 2_000_000


def test_every_picture_of_the_section_has_a_name_and_a_description(page: str) -> None:
    parsed = Page(section(page))
    assert len(parsed.svgs) >= 7
    for svg in parsed.svgs:
        labels = str(svg.get("aria-labelledby")).split()
        assert svg.get("role") == "img"
        assert set(labels) <= set(parsed.ids)


def test_section_says_what_a_reader_needs_to_know(page: str) -> None:
    text = words(page)
    for part in (
        "how far is the population from it",
        "Mean absolute error in nats",
        "weight λ of the control variate",
        "answering 0",
        "Noise on the counts does not",
        "Share of the 95 % intervals that hold the target",
        "below 1 KB",
        "4,321",
        "No lower bound crosses its claim",
        "the population begins to drift",
        "the year’s budget",
        "false alarms per year of checks",
        "statements, one per data set, method and ε",
        "medium · points 3",
        "3 of them with an infinite plain divergence",
        "0.01 of the reference mixed in",
    ):
        assert part in text


def test_statements_of_this_system_are_in_its_section_only_and_escaped(page: str) -> None:
    own = section(page)
    assert "Divergence statement of all cells at 1: &lt;i&gt;N is public&lt;/i&gt;." in own
    assert "Divergence statement" not in page.replace(own, "")


def test_the_records_stay_out_of_the_other_systems_parts(page: str) -> None:
    before = page[: page.index('<section id="divergence">')]
    assert "Trusted aggregator" not in before[before.index("<main>") :]
    assert 'href="#divergence"' in before


@pytest.mark.slow
def test_equal_inputs_give_equal_bytes_and_records_outside_of_the_grid_change_none(
    tree: Path, page: str
) -> None:
    names = ("index.html", "claims.json", "summary.txt")
    before = [(tree / "report" / name).read_bytes() for name in names]
    folder = tree / "data/metrics/divergence"
    other = generated_divergence.train_document(datasets=["femnist_population"])
    strays = {folder / "train/femnist_population.json": other}
    for path, document in strays.items():
        artifacts.write_json(path, document)
    try:
        assert run_step(tree, "report").returncode == 0
    finally:
        for path in strays:
            path.unlink()
    assert [(tree / "report" / name).read_bytes() for name in names] == before


def test_summary_has_an_aligned_table_of_this_system(tree: Path, page: str) -> None:
    lines = (tree / "report/summary.txt").read_text(encoding="utf-8").splitlines()
    head = next(line for line in lines if "distributed noise" in line)
    rows = [line for line in lines if line.startswith("MNIST digits ")]
    assert len(rows) == 6
    assert all(row[head.index("trusted aggregator") - 1] == " " for row in rows)
    assert all("0.205 ± 0.01" in row and "0.9 ± 0.01" in row for row in rows)


# --------------------------------------------------------------------------------------------- missing parts
def test_a_study_without_this_system_has_no_section() -> None:
    html = build(Study(EMPTY)).html
    assert 'id="divergence"' not in html
    assert 'href="#divergence"' not in html


def test_a_system_without_records_says_so() -> None:
    html = build(Study(EMPTY, further=(generated_divergence.run_with(),))).html
    assert "No estimate of the divergence system is finished yet" in section(html)


@pytest.mark.slow
def test_parts_that_are_missing_are_said_and_do_not_stop_the_page() -> None:
    train = generated_divergence.train_document
    timeline, monitor = generated_divergence.timeline_documents()
    for documents in (
        [train(half=None)],
        [train({}, studies={}, pairs={})],
        [train(covered=None)],
        [generated_divergence.payload_document()],
        [generated_divergence.audit_document()],
        [generated_divergence.account_document()],
        [timeline],
        [monitor],
        [timeline, monitor],
        list(generated_divergence.timeline_documents(())),
    ):
        assert Page(page_of(*documents)).stack == []
    bare = words(page_of(train(studies={}, pairs={}, covered=None)))
    for part in (
        "varied no setting",
        "no errors of single pairs",
        "computed no confidence intervals",
        "No protocol run was measured",
        "not audited",
        "No population was watched",
    ):
        assert part in bare


def test_one_epsilon_one_pair_and_one_value_are_enough_for_every_chart() -> None:
    document = generated_divergence.train_document(
        epsilons=["1"], comparisons=["digits"], studies={"points": {10.0: 0.2}}, pairs={"0-1": (0.5, 0.1)}
    )
    rows = estimate_rows(generated_divergence.run_with(document))
    place = ("mnist_population", "digits")
    for svg in (
        error_chart(rows, "a"),
        study_chart(rows, place, "b"),
        pair_chart(rows, "c"),
        bias_chart(rows, "d"),
    ):
        assert svg.startswith("<svg")


def test_a_run_without_an_alarm_and_one_with_an_early_one_are_drawn() -> None:
    quiet = page_of(*generated_divergence.timeline_documents(()))
    assert ">alarm</text>" not in section(quiet)
    early = page_of(*generated_divergence.timeline_documents((2, 7)))
    assert section(early).count(">alarm</text>") == 1


# ------------------------------------------------------------------------------------------------- warnings
def test_a_crossed_audit_is_shown_in_red() -> None:
    calm = section(page_of(generated_divergence.audit_document()))
    assert 'class="crossed"' not in calm
    crossed = section(page_of(generated_divergence.audit_document(1.5)))
    assert "the claimed ε is refuted" in crossed
    assert crossed.count('class="crossed"') == 1


def test_the_best_is_the_smallest_private_error() -> None:
    table = error_tables(estimate_rows(generated_divergence.full_run()))[0]
    tones = {line["method"].name: {cell["tone"] for cell in line["cells"]} for line in table["rows"]}
    assert tones["all_cells"] == {"best"}
    assert all(found == {""} for name, found in tones.items() if name != "all_cells")
    assert [line["method"].name for line in table["rows"]] == [m.name for m in DIVERGENCE_METHODS]


def test_statements_alone_are_enough_for_the_section() -> None:
    made = Statement("mnist_population", "all_cells", "1", ALL_SEEDS, "its own words", {}, "divergence")
    html = build(Study(EMPTY, statements=(made,))).html
    assert html.count("its own words") == 1
    assert "its own words" in section(html)


def test_a_release_shows_its_numbers_and_nothing_that_read_the_data() -> None:
    released = [("MNIST digits", "image codes, drifting", "0.5", "All cells", "1", "0.031", "0.02 to 0.04")]
    run = generated_divergence.run_with()
    text = words(build(Study(EMPTY, further=(run,), settings={"divergence_released": released})).html)
    assert "Released estimates" in text
    assert "0.02 to 0.04" in text
    assert "Error against ε" not in text


def test_the_summary_of_a_release_lists_its_numbers() -> None:
    released = [("MNIST digits", "image codes, drifting", "0.5", "All cells", "1", "0.031", "0.02 to 0.04")]
    run = generated_divergence.run_with()
    study = Study(EMPTY, further=(run,), settings={"divergence_released": released})
    lines = build(study).summary.splitlines()
    head = next(line for line in lines if line.startswith("data "))
    row = next(line for line in lines if line.startswith("MNIST digits"))
    assert row[head.index("estimate") :].startswith("0.031")
    assert "Divergence" not in build(Study(EMPTY, further=(run,))).summary


def test_released_estimates_are_read_with_and_without_an_interval(tmp_path: Path) -> None:
    from sfumato.params import load
    from tasks.command import Call
    from tasks.reported import divergence

    columns = ["comparison", "pair", "method", "epsilon", "seed", "raw", "low", "high"]
    rows = [
        ["codes", "0.5", "all_cells", "1", "release", 0.03125, 0.0, 0.0625],
        ["codes", "0.5", "distributed", "1", "release", -0.5, "", ""],
    ]
    artifacts.write_csv(tmp_path / "data/plots/divergence/train/mnist_population.csv", columns, rows)
    call = Call(load(ROOT / "params.yaml"), tmp_path, "", {})
    found = divergence.settings(call)["divergence_released"]
    assert [row[3:] for row in found] == [
        ("All cells", "1", "0.0312", "0 to 0.0625"),
        ("Distributed noise", "1", "−0.5", "–"),
    ]


# ----------------------------------------------------------------------------------------------------- docs
@pytest.mark.parametrize("marked", [True, False])
def test_docs_write_this_systems_table_only_between_its_own_markers(
    tree: Path, page: str, marked: bool
) -> None:
    begin, end = "<!-- divergence:begin -->", "<!-- divergence:end -->"
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
    assert ("| MNIST digits | digit against digit | 0.5 | 0.2 ± 0.01 |" in text) is marked
    assert "former" not in text


def test_a_grid_without_a_data_set_leaves_the_system_out(tmp_path: Path) -> None:
    text = (ROOT / "params.yaml").read_text(encoding="utf-8")
    for line in ("datasets: [mnist_population]",):
        assert line in text
        text = text.replace(line, "datasets: []")
    (tmp_path / "params.yaml").write_text(text, encoding="utf-8")
    generated_divergence.write_run(tmp_path)
    (tmp_path / "results/medium/divergence/base/metrics/train/mnist_population.json").unlink()
    (tmp_path / "results/medium/divergence/points_3/metrics/train/mnist_population.json").unlink()
    done = run_step(tmp_path, "report")
    assert done.returncode == 0, done.stderr
    html = (tmp_path / "report/index.html").read_text(encoding="utf-8")
    assert 'id="divergence"' not in html
