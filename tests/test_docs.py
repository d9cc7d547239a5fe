"""What the documents say about the code and the parameters is so."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from sfumato.params import merged, parse, read_yaml

ROOT = Path(__file__).resolve().parents[1]
ROOMS = sorted(path.stem for path in (ROOT / "docs").glob("*.md") if (ROOT / "sfumato" / path.stem).is_dir())
RECIPES = re.findall(
    r"```yaml\n(privacy:\n  mode: release.*?)```", (ROOT / "docs/howto.md").read_text(), re.DOTALL
)


@pytest.mark.parametrize("room", ROOMS)
def test_the_page_of_a_room_names_every_file_in_it(room: str) -> None:
    text = (ROOT / "docs" / f"{room}.md").read_text()
    found = {path.name for path in (ROOT / "sfumato" / room).glob("*.py")} - {"__init__.py"}
    assert found - set(re.findall(r"`([a-z_]+\.py)`", text)) == set()


def test_every_system_has_a_page() -> None:
    assert {"topk", "modulated", "radiomap", "divergence"} <= set(ROOMS)


@pytest.mark.parametrize("number", range(len(RECIPES)))
def test_a_release_recipe_is_valid_and_is_one_release_within_its_budget(number: int) -> None:
    params = parse(merged(read_yaml(ROOT / "params.yaml"), YAML(typ="safe").load(StringIO(RECIPES[number]))))
    grids = [params.topk.grid, params.modulated.grid, params.divergence.grid]
    cells = [
        (dataset, method, epsilon)
        for grid in grids
        for dataset in grid.datasets
        for method in grid.methods
        for epsilon in grid.epsilons
    ]
    assert len(cells) == 1
    assert cells[0][2] <= (params.privacy.budget_epsilon or 0)


def test_there_is_a_recipe_for_every_system_with_a_release_mode() -> None:
    assert len(RECIPES) == len(ROOMS) - 1  # radiomap's clients live on public maps
