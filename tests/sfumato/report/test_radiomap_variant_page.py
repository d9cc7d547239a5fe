from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from sfumato import artifacts
from sfumato.params import load
from sfumato.report import Run, Study, run_of
from sfumato.report.page import render
from sfumato.report.radiomap_page import radiomap_section
from sfumato.report.radiomap_variant_page import BASE_LABEL, variant_parts
from tasks.command import Call
from tasks.report import gather

sys.path.insert(0, str(Path(__file__).parent))
import generated_radiomap as generated
from pages import ROOT, Page

EMPTY = run_of("quick", "topk", "base", [])
HEADING = "Removing the leak at its source, and other settings"


def base_run() -> Run:
    return generated.run_with(
        generated.train_document(multipliers=["3"]),
        generated.attack_document(multipliers=["3"], attackers=["best"]),
        profile="medium",
    )


def runs_of_medium() -> tuple[Run, ...]:
    own = generated.variant_run("radiomap_own", rounds=[0, 5, 10, 15, 20])
    others = [
        generated.variant_run(name, {"clip_only": 64.0}, {"clip_only": -16.9})
        for name in generated.VARIANTS
        if name != "radiomap_own"
    ]
    return (base_run(), own, *others)


def words(html: str) -> str:
    found = re.search(r'<section id="radiomap">.*?</section>', html, flags=re.DOTALL)
    assert found
    return " ".join(found[0].split())


def parts_of(*runs: Run) -> list[dict[str, Any]]:
    return variant_parts(Study(EMPTY, results=runs), "radiomap")


def test_the_page_has_a_block_per_variant_with_its_figures_and_differences() -> None:
    html = render(Study(EMPTY, results=runs_of_medium()), [])
    assert Page(html).stack == []
    text = words(html)
    for part in (
        HEADING,
        "Profile medium.",
        BASE_LABEL,
        "Circular padding instead of zeros",
        "Reflect padding instead of zeros",
        "A loss that ignores the map’s margin",
        "Circular padding, and a loss that ignores the map’s margin",
        "Plain SGD on the clients instead of Adam",
        "The same σ on every noised weight instead of the same energy",
        "Every defence attacked at the weights of its own training",
        "every defence at the weights of its own training: does it rise for good?",
        "medium · circular margin",
    ):
        assert part in text, part
    assert text.count('<th scope="rowgroup"') == 1 + len(generated.VARIANTS)
    assert "radiomap circular" not in text


def test_a_line_has_both_errors_the_constant_guess_and_paired_differences() -> None:
    (part,) = parts_of(*runs_of_medium())
    blocks = {block["label"]: block["rows"] for block in part["blocks"]}
    assert list(blocks)[:2] == [BASE_LABEL, "Circular padding instead of zeros"]
    row = next(r for r in blocks["Circular padding instead of zeros"] if r["method"].name == "clip_only")
    level = -16.9 + 0.02 * sum(map(generated.common, generated.SEEDS)) / len(generated.SEEDS)
    assert float(row["validation"].split(" ± ")[0].replace("−", "-")) == pytest.approx(level, abs=0.01)
    assert row["utility_change"] == "+0.10 ± 0.00"
    assert float(row["privacy_change"].split(" ± ")[0]) == pytest.approx(10.0, abs=0.5)
    assert float(row["privacy_change"].split(" ± ")[1]) < 1.5 < 5 < float(row["best"].split(" ± ")[1])
    assert row["constant"] == "93.0 ± 0.0"
    assert (row["multiplier"], row["dataset"]) == ("–", "City maps")
    old = next(r for r in blocks[BASE_LABEL] if r["method"].name == "clip_only")
    assert (old["utility_change"], old["privacy_change"]) == ("–", "–")
    own = blocks["Every defence attacked at the weights of its own training"]
    assert [r["method"].name for r in own] == list(generated.METRES)


def test_own_weights_have_a_chart_of_every_defence_and_one_round_has_none() -> None:
    (part,) = parts_of(*runs_of_medium())
    assert [entry["label"] for entry in part["rounds"]] == ["City maps"]
    svg = str(part["rounds"][0]["chart"])
    for name in ("Adaptive noise", "Uniform noise", "Clipping only"):
        assert re.search(rf"{name}: \S+ m at round 0, \S+ m at round 20", svg), name
    (bare,) = parts_of(base_run(), generated.variant_run("radiomap_own", rounds=[20]))
    assert bare["rounds"] == []
    assert len(bare["blocks"]) == 2


def test_without_variants_nothing_is_shown_of_them() -> None:
    assert parts_of() == []
    assert parts_of(base_run()) == []
    assert parts_of(base_run(), run_of("medium", "radiomap", "radiomap_own", [])) == []
    assert HEADING not in words(render(Study(EMPTY, results=(base_run(),)), []))


def test_variants_without_their_base_run_are_shown_without_differences() -> None:
    (part,) = parts_of(generated.variant_run("radiomap_sgd"))
    assert [block["label"] for block in part["blocks"]] == ["Plain SGD on the clients instead of Adam"]
    assert {row["privacy_change"] for row in part["blocks"][0]["rows"]} == {"–"}


def test_a_variant_is_held_against_the_base_run_of_its_profile_only_current_or_committed() -> None:
    run, other = generated.variant_run("radiomap_sgd"), generated.full_run()
    assert other.profile == "quick"
    (part,) = parts_of(run, other)
    assert BASE_LABEL not in [block["label"] for block in part["blocks"]]
    study = Study(EMPTY, further=(base_run(),), results=(run,))
    (part,) = radiomap_section(study)["variants"]
    assert part["blocks"][0]["label"] == BASE_LABEL


def test_committed_files_of_a_variant_are_read_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(
        (ROOT / "params.yaml").read_text(encoding="utf-8"), encoding="utf-8"
    )
    for variant, metres in (("base", {"clip_only": 54.0}), ("radiomap_circular", {"clip_only": 64.0})):
        folder = tmp_path / "results/medium/radiomap" / variant / "metrics"
        train = generated.train_document({"clip_only": -17.0})
        artifacts.write_json(folder / "train/city_maps.json", train)
        attack = generated.attack_document(metres, rounds=[20], attackers=["best"], variant=variant)
        artifacts.write_json(folder / "attack/city_maps.json", attack)
    study = gather(Call(generated.with_radiomap(load(ROOT / "params.yaml")), tmp_path, "", {}))
    (part,) = variant_parts(study, "radiomap")
    assert [block["label"] for block in part["blocks"]] == [BASE_LABEL, "Circular padding instead of zeros"]
    assert part["blocks"][1]["rows"][0]["privacy_change"].startswith("+")
