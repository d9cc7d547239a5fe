from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from sfumato import artifacts
from sfumato.params import load
from sfumato.report import (
    Study,
    build,
    defence_rows,
    radiomap_readme_table,
    run_of,
)
from sfumato.report.page import render
from sfumato.report.radiomap_charts import curve_chart, round_chart, tradeoff_chart
from sfumato.report.radiomap_page import comparison_tables, radiomap_section
from sfumato.report.radiomap_pictures import LEVELS
from sfumato.report.radiomap_text import MARKERS, radiomap_summary
from sfumato.report.study import ALL_SEEDS, Statement
from sfumato.report.vocabulary import GAIN_COLOURS
from tasks.command import Call
from tasks.docs import docs
from tasks.report import gather, report
from tasks.reported import radiomap as reported

sys.path.insert(0, str(Path(__file__).parent))
import generated as generated_topk
import generated_radiomap as generated
from pages import ROOT, Page, assert_well_formed

EMPTY = run_of("quick", "topk", "base", [])


def section(html: str) -> str:
    found = re.search(r'<section id="radiomap">.*?</section>', html, flags=re.DOTALL)
    assert found
    return found[0]


def words(html: str) -> str:
    return " ".join(section(html).split())


def page_of(*documents: dict[str, Any], **study: Any) -> str:
    """The page alone; the claims have tests of their own."""
    return render(Study(EMPTY, further=(generated.run_with(*documents),), **study), [])


def call_of(root: Path, **grid: Any) -> Call:
    return Call(generated.with_radiomap(load(ROOT / "params.yaml"), **grid), root, "", {})


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    (root / "params.yaml").write_text((ROOT / "params.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    generated.write_run(root)
    return root


@pytest.fixture(scope="module")
def page(tree: Path) -> str:
    report(call_of(tree))
    return (tree / "report/index.html").read_text(encoding="utf-8")


def test_page_is_well_formed_self_contained_and_without_fixed_colours(page: str) -> None:
    assert_well_formed(page)
    assert "<img" not in page
    assert "data:" not in section(page)
    assert len(page.encode()) < 2_000_000


def test_every_picture_has_a_name_and_a_description(page: str) -> None:
    parsed = Page(section(page))
    # Five charts (the committed run repeats one), buildings, truth, scale, and a prediction per defence.
    assert len(parsed.svgs) == 5 + 3 + 3
    for svg in parsed.svgs:
        assert svg.get("role") == "img"
        assert set(str(svg.get("aria-labelledby")).split()) <= set(parsed.ids)


def test_every_colour_of_the_maps_is_defined_in_light_and_in_dark(page: str) -> None:
    used = set(re.findall(r"var\(--gain-(\d+)\)", section(page)))
    assert used == {str(level) for level in range(LEVELS)}
    for level, pair in enumerate(GAIN_COLOURS):
        assert all(f"--gain-{level}:{colour};" in page for colour in pair)


def test_section_says_what_a_reader_needs_to_know(page: str) -> None:
    text = words(page)
    for part in (
        "where its transmitter stands",
        "mean map −15.40 dB, distance only −17.70 dB, public warm start −16.10 dB",
        "City maps, ν = 3.",
        "differences from uniform noise are paired over seeds",
        "transmitter’s weights only, m",
        "at round 20",
        "at most 112 attacked updates a seed",
        "Validation error per round",
        "does it rise for good",
        "neural network",
        "mean of 4",
        "sum of 6 clients",
        "simulates the update of every candidate place",
        "protects nothing formally",
        "91.3",
        "−9.87",
        "5,210",
        "no ε: some weights get &lt;no&gt; noise of known size",
        "a window of 256 m, cells of 8 m",
        "−60 dB",
        "(root mean square); guess off by 40 m",
        "2 statements, one per data set, defence and ν",
        "medium · maps 4",
        "One map of a client’s city",
        "ε = 10 for all updates of a client together takes",
        '<td class="n">–</td><td class="wrap small">some weights get &lt;no&gt; noise of known size</td>',
        "so that they differ in the protection alone",
        "radiomap.maps.frequency",
        "5.9 GHz",
        "6 of them active in a round",
    ):
        assert part in text, part


def test_every_picture_says_which_defence_and_multiplier_it_is_of(page: str) -> None:
    text = re.sub(r"<svg.*?</svg>|<[^>]+>", "", words(page))
    for part in ("No defence. Prediction off by 3.0 dB", "Uniform noise, ν = 3. Prediction off by 6.0 dB"):
        assert part in text


def test_defences_attacked_at_their_own_weights_are_said_to_be() -> None:
    documents = (generated.train_document(), generated.attack_document())
    text = words(page_of(*documents, settings={"radiomap_own_weights": True}))
    assert "attacked at the weights of its own training" in text
    assert "at the same weights of the network" not in text


def test_statements_of_this_system_are_in_its_section_only_and_escaped(page: str) -> None:
    own = section(page)
    assert "Radio map statement of uniform-3: &lt;i&gt;C is public&lt;/i&gt;." in own
    assert "City maps, No defence <span" in own
    assert "City maps, Uniform noise, ν = 3 <span" in own
    assert "Radio map statement" not in page.replace(own, "")


def test_the_page_leads_to_the_section_and_keeps_it_out_of_the_other_parts(page: str) -> None:
    before = page[: page.index('<section id="radiomap">')]
    assert before.count('href="#radiomap"') == 2
    assert "Targeted noise" not in before[before.index("<main>") :]


def test_summary_has_an_aligned_table_of_this_system(tree: Path, page: str) -> None:
    lines = (tree / "report/summary.txt").read_text(encoding="utf-8").splitlines()
    head = next(line for line in lines if "validation, dB" in line)
    rows = [line for line in lines if line.startswith("City maps ")]
    assert len(rows) == 2 + 2 * 6
    assert all(row[head.index("smallest error") - 1] == " " for row in rows)
    assert rows[0].split()[2:5] == ["–", "No", "defence"]
    assert any("Adaptive noise" in row and "82.4 ± 10.2" in row for row in rows)


# ------------------------------------------------------------------------------------------- what is read
def test_records_and_curves_outside_of_the_grid_are_left_out(tree: Path) -> None:
    small = call_of(tree, defences=["none", "uniform"], multipliers=[3.0], seeds=[0, 1])
    study = gather(small)
    run = study.current_of("radiomap")
    assert run is not None
    for step, count in (("train", 2 * 2), ("warmup", 2), ("account", 2)):
        assert len(run.records[step]) == count
    assert {row["method"] for row in study.round_curves} == {"none", "uniform"}
    assert {row["multiplier"] for row in study.round_curves} == {"0", "3"}
    assert [one.epsilon for one in study.statements if one.system == "radiomap"] == ["0", "3"]
    assert [found.names for found in study.pictures] == [("none/0", "uniform/3", "adaptive/3")]


@pytest.mark.slow
def test_equal_studies_give_equal_bytes(tree: Path, page: str) -> None:
    call = call_of(tree, defences=["none", "uniform"], multipliers=[3.0])
    assert render(gather(call), []) == render(gather(call), [])


def test_a_grid_without_a_data_set_leaves_the_system_out(tree: Path) -> None:
    call = call_of(tree, datasets=[])
    assert reported.current(call, ("quick", "base")) == ()
    assert not [*reported.curves(call), *reported.pictures(call), *reported.statements(call)]
    assert reported.settings(call) == {}
    html = render(Study(EMPTY), [])
    assert 'id="radiomap"' not in html
    assert 'href="#radiomap"' not in html


# --------------------------------------------------------------------------------------------- missing parts
def test_a_system_without_records_says_so() -> None:
    assert "No training of the radio map system is finished yet" in section(page_of())


def test_prices_alone_say_what_else_is_missing() -> None:
    text = words(page_of(generated.account_document()))
    assert "protects nothing formally" in text
    assert "Privacy against utility" not in text
    assert "Nothing is accounted yet" not in text


@pytest.mark.slow
def test_parts_that_are_missing_are_said_and_do_not_stop_the_page() -> None:
    train, attack = generated.train_document, generated.attack_document
    for documents in (
        [train(seeds=[0])],
        [train({"none": -17.0})],
        [attack(seeds=[0], rounds=[3])],
        [attack({"uniform": 60.0}, ["3"])],
        [generated.warmup_document()],
        [train(), generated.account_document()],
        [train(multipliers=["0.3", "1", "3", "10"]), attack(multipliers=["0.3", "1", "3", "10"])],
    ):
        assert Page(page_of(*documents)).stack == []
    bare = words(page_of(train()))
    for part in (
        "No defence of this run has both figures",
        "This run kept no curves",
        "No update of this run was attacked",
        "Neither averages nor sums were attacked",
        "This attacker was not tried",
        "Nothing is accounted yet",
    ):
        assert part in bare, part


def test_one_seed_one_round_and_one_multiplier_are_enough_for_every_chart() -> None:
    run = generated.run_with(
        generated.train_document(multipliers=["3"], seeds=[0]),
        generated.attack_document(multipliers=["3"], seeds=[0], rounds=[20], attackers=["best"]),
    )
    curves = generated.curve_rows(["3"], steps=1)
    assert tradeoff_chart(run, "a").startswith("<svg")
    assert round_chart(run, "city_maps", "b").startswith("<svg")
    assert curve_chart(curves, "city_maps", "validation_db", "error", "c").startswith("<svg")


def test_defences_without_noise_alone_make_one_table_at_no_noise() -> None:
    run = generated.run_with(generated.train_document({"none": -17.0, "clip_only": -16.9}))
    tables = comparison_tables(run, defence_rows(run))
    assert [part["multiplier"] for part in tables[0]["parts"]] == ["0"]
    assert [row["useful"] for row in tables[0]["parts"][0]["rows"]] == [False, False]


# ---------------------------------------------------------------------------------------- figures, warnings
def test_the_best_defence_with_noise_is_marked_for_privacy_and_for_utility() -> None:
    run = generated.full_run()
    parts = comparison_tables(run, defence_rows(run))[0]["parts"]
    assert [part["multiplier"] for part in parts] == ["1", "3"]
    for part in parts:
        assert [row["method"].name for row in part["rows"] if row["private"]] == ["adaptive"]
        assert [row["method"].name for row in part["rows"] if row["useful"]] == ["adaptive"]
        assert [row["method"].name for row in part["rows"]] == list(generated.METRES)


def test_changes_against_uniform_noise_are_paired_at_the_same_multiplier() -> None:
    rows = {(row.method, row.multiplier): row for row in defence_rows(generated.full_run())}
    targeted, free = rows["targeted_uniform", "3"], rows["none", "3"]
    assert targeted.privacy_change is not None
    assert targeted.privacy_change.mean == pytest.approx(6.0, abs=0.5)
    assert (targeted.privacy_change.half_width or 99.0) < 2.0
    assert free.privacy_change is not None
    # 15 m below uniform noise, which gains 3 m from the larger multiplier.
    assert free.privacy_change.mean == pytest.approx(-18.0, abs=0.5)
    assert rows["uniform", "3"].privacy_change is None
    assert free.round == "20"


def test_a_crossed_audit_is_shown_in_red() -> None:
    calm = section(page_of(generated.account_document()))
    assert 'class="crossed"' not in calm
    crossed = section(page_of(generated.account_document(lower=700.0)))
    assert "the claimed ε is refuted" in crossed
    # Of both multipliers only the one with the smaller epsilon is crossed, for every certified defence.
    assert crossed.count('class="crossed"') == len(generated.CERTIFIED)


def test_statements_alone_are_enough_for_the_section() -> None:
    made = Statement("city_maps", "uniform", "3", ALL_SEEDS, "its own words", {}, "radiomap")
    html = render(Study(EMPTY, statements=(made,)), [])
    assert html.count("its own words") == 1
    assert "its own words" in section(html)


def test_references_come_from_the_warm_up_until_something_is_trained() -> None:
    found = radiomap_section(Study(EMPTY, further=(generated.run_with(generated.warmup_document()),)))
    assert found["warmup"][0]["sensitive"] == "354"
    assert found["tables"] == []


# ----------------------------------------------------------------------------------------------------- docs
@pytest.mark.parametrize("marked", [True, False])
def test_docs_write_this_systems_table_only_between_its_own_markers(tmp_path: Path, marked: bool) -> None:
    (tmp_path / "params.yaml").write_text(
        (ROOT / "params.yaml").read_text(encoding="utf-8"), encoding="utf-8"
    )
    topk = generated_topk.train_document("mnist", ["dense"])
    artifacts.write_json(tmp_path / "data/metrics/topk/train/mnist.json", topk)
    train = generated.train_document()
    artifacts.write_json(tmp_path / "data/metrics/radiomap/train/city_maps.json", train)
    timings = {"stages": {"topk-train@mnist-tp_topk-1": {"state": "ran", "last_run_seconds": 90.0}}}
    artifacts.write_json(tmp_path / "report/timings.json", timings)
    begin, end = MARKERS
    place = f"{begin}\nformer\n{end}\n" if marked else "no place\n"
    readme = tmp_path / "README.md"
    readme.write_text(f"<!-- results:begin -->\n<!-- results:end -->\n{place}rest\n", encoding="utf-8")
    docs(call_of(tmp_path))
    text = readme.read_text(encoding="utf-8")
    assert "former" not in text
    assert text.endswith("rest\n")
    assert ("| City maps | 3 | Adaptive noise | −16.21 ± 0.20 | – |" in text) is marked
    assert text.count("| No defence |") == int(marked)


def test_without_figures_the_texts_say_so() -> None:
    run = generated.run_with()
    assert radiomap_summary(run, []) == ""
    assert "No training of this grid is finished yet" in radiomap_readme_table(run, [])
    assert "radio maps" not in build(Study(EMPTY, further=(run,))).summary
