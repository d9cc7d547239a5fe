from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import SfumatoError
from sfumato.params import Params, load, merged, parse, read_yaml

ROOT = Path(__file__).resolve().parents[2]
BASE: Any = read_yaml(ROOT / "params.yaml")


def _with(path: str, value: object) -> Any:
    changed = copy.deepcopy(BASE)
    *parents, last = path.split(".")
    node = changed
    for key in parents:
        node = node[key]
    node[last] = value
    return changed


def _without(path: str) -> Any:
    changed = _with(path, None)
    *parents, last = path.split(".")
    node = changed
    for key in parents:
        node = node[key]
    del node[last]
    return changed


def _paths(node: Any, prefix: str = "") -> list[str]:
    if not isinstance(node, dict):
        return []
    found = []
    for key, value in node.items():
        found += [f"{prefix}{key}", *_paths(value, f"{prefix}{key}.")]
    return found


PATHS = _paths(BASE)


def test_the_default_parameters_and_every_profile_are_valid() -> None:
    assert isinstance(load(ROOT / "params.yaml"), Params)
    for profile in sorted((ROOT / "profiles").glob("*.yaml")):
        content: Any = read_yaml(profile)
        base = merged(BASE, content.get("params", {}))
        for variant in content.get("variants") or [{}]:
            parse(merged(base, variant.get("params", {})), profile.name)


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (
            "topk.grid.datasets",
            ["mnist", "foo"],
            "topk.grid.datasets.1 is 'foo'; allowed is 'mnist', 'fashion_mnist'",
        ),
        ("topk.grid.datasets", "mnist", "topk.grid.datasets is 'mnist'; allowed is a list."),
        ("topk.grid.methods", [], "allowed is a list with at least one entry."),
        ("modulated.grid.methods", ["magic"], "modulated.grid.methods.0 is 'magic'; allowed"),
        ("modulated.client.shrinkage", 1, "modulated.client.shrinkage is 1; allowed is"),
        ("modulated.client.amplitude", -0.5, "modulated.client.amplitude is -0.5; allowed is"),
        ("modulated.client.frequency", -1, "modulated.client.frequency is -1; allowed is"),
        (
            "modulated.client.directions",
            6,
            "modulated.client.directions is 6; allowed is less than the 6 features of co2.",
        ),
        (
            "modulated.client.labels",
            "secret",
            "modulated.client.labels is 'secret'; allowed is 'public' or 'private'.",
        ),
        ("modulated.grid.epsilons", [0], "modulated.grid.epsilons.0 is 0; allowed is"),
        (
            "modulated.train.rounds",
            600,
            "modulated.train.rounds is 600; allowed is at most 588, the declared number",
        ),
        (
            "modulated.attack.datasets",
            ["randhie"],
            "modulated.attack.datasets holds 'randhie'; allowed is what",
        ),
        ("modulated.attack.epsilons", [3], "modulated.attack.epsilons holds 3"),
        ("divergence.grid.methods", ["magic"], "divergence.grid.methods.0 is 'magic'; allowed"),
        ("divergence.train.points", 0, "divergence.train.points is 0; allowed is"),
        ("divergence.train.floor_level", 0.0, "divergence.train.floor_level is 0.0; allowed is"),
        ("divergence.train.coefficient", -1.0, "divergence.train.coefficient"),
        ("divergence.train.drift", "series", "needs the series of mnist_population; allowed is"),
        ("divergence.train.examples", 80000, "divergence.train.examples is 80000; allowed is at most 70000"),
        (
            "divergence.timeline.drift_at",
            26,
            "divergence.timeline.drift_at is 26; allowed is less than the 26",
        ),
        ("divergence.attack.datasets", ["femnist_population"], "divergence.attack.datasets holds"),
        ("divergence.train.floor_level", 1e-13, "divergence.train.floor_level is 1e-13; allowed is"),
        (
            "divergence.studies.floor_levels",
            [1e-13],
            "divergence.studies.floor_levels.0 is 1e-13; allowed is",
        ),
        ("divergence.timeline.floor_level", 1e-13, "divergence.timeline.floor_level is 1e-13; allowed is"),
        ("divergence.train.protocol_clients", 3, "allowed is a value greater than or equal to 4."),
        ("divergence.train.confidence", 0.5, "divergence.train.confidence is 0.5; allowed is"),
        (
            "divergence.train.confidence",
            1 - 1e-12,
            "divergence.train.confidence is 0.999999999999; allowed is",
        ),
        ("divergence.train.budget_share", 0.001, "divergence.train.budget_share is 0.001; allowed is"),
        ("divergence.train.budget_share", 0.999, "divergence.train.budget_share is 0.999; allowed is"),
        ("divergence.train.examples", 50, "divergence.train.examples is 50; allowed is"),
        ("divergence.studies.epsilon", 201, "divergence.studies.epsilon is 201; allowed is"),
        (
            "divergence.studies.batches",
            [1, 41],
            "divergence.studies.batches holds 41; allowed is at most 40, one for 200 of the 8000",
        ),
        (
            "divergence.timeline.epsilon",
            4.5,
            "divergence.timeline.epsilon is 4.5; allowed is at most yearly_epsilon, 4.",
        ),
        (
            "divergence.timeline.threshold",
            3,
            "divergence.timeline.threshold is 3; allowed is below -ln floor_level = 2.996",
        ),
        ("divergence.timeline.checks", 10_000, "divergence.timeline.checks is 10000; allowed is"),
        (
            "divergence.grid.seeds",
            None,
            "divergence.grid.seeds is null in simulation mode; allowed is a list",
        ),
        ("modulated.grid.seeds", None, "modulated.grid.seeds is null in simulation mode; allowed is a list"),
        ("topk.grid.epsilons", [1, 1], "allowed is a list without repeated entries."),
        ("topk.grid.epsilons", [3.0], "allowed is 3, since cells are named by the text"),
        ("topk.grid.references", ["digits"], "topk.grid.references holds 'digits'"),
        (
            "data.population_partition",
            "class",
            "data.population_partition is 'class'; allowed is 'dirichlet' or 'writer'.",
        ),
        ("privacy.ledger", "books/r.jsonl", "allowed is a file below the folder ledger/"),
        ("privacy.ledger", "ledger/../r.jsonl", "allowed is a file below the folder ledger/"),
        ("privacy.delta", 0.5, "privacy.delta is 0.5; allowed is a number below 1 / 55000"),
        (
            "topk.sampling.expected_batch_size.mnist",
            60000,
            "allowed is at most 55000, a declared size of mnist",
        ),
        ("topk.audit.canaries", 10**6, "allowed is at most 5000, a declared size of mnist"),
        ("topk.model.mnist", "cnn32", "topk.model.mnist is 'cnn32' for examples of shape (1, 28, 28)"),
        ("topk.grid.epsilons", ["1"], "topk.grid.epsilons.0 is '1'; allowed is a valid number."),
        ("topk.grid.epsilons", [True], "topk.grid.epsilons.0 is True; allowed is a valid number."),
        ("topk.grid.epsilons", [float("nan")], "topk.grid.epsilons.0 is nan; allowed is a"),
        ("topk.grid.epsilons", [0.001], "greater than or equal to 0.01."),
        ("topk.grid.epsilons", [201], "less than or equal to 200."),
        ("topk.grid.seeds", [1.0], "topk.grid.seeds.0 is 1.0; allowed is a valid integer."),
        ("topk.grid.seeds", None, "topk.grid.seeds is null in simulation mode"),
        (
            "topk.grid.sedes",
            [0],
            "topk.grid.sedes is [0], an unknown key; allowed here are datasets, references, methods",
        ),
        ("topk.train.clip_norm.mnist.tp_topk", float("inf"), "topk.train.clip_norm.mnist.tp_topk is inf"),
        ("topk.train.clip_norm.mnist.tp_topk", 0, "allowed is a value greater than or equal to 0.000001."),
        ("topk.train.clip_norm.mnist.tp_top", 1.0, "topk.train.clip_norm.mnist.tp_top is an unknown key"),
        ("topk.model.mnist", "resnet", "topk.model.mnist is 'resnet'; allowed is 'cnn28', 'cnn32' or 'mlp'."),
        (
            "topk.audit.guesses",
            5000,
            "topk.audit.guesses is 5000; allowed is at most topk.audit.canaries (1000).",
        ),
        ("topk.audit.datasets", ["digits"], "topk.audit.datasets holds 'digits'"),
        ("topk.train.tuning.private_trials.mnist", -1, "topk.train.tuning.private_trials.mnist is -1"),
        (
            "topk.train.tuning.chosen_on",
            "public data",
            "private_trials.mnist is 21 where chosen_on is 'public data'",
        ),
        (
            "topk.train.tuning.chosen_on",
            "defaults",
            "private_trials.mnist is 21 where chosen_on is 'defaults'",
        ),
        (
            "topk.train.tuning.private_trials",
            {"mnist": 0},
            "private_trials is 0 for every data set where chosen_on is 'validation rows of the same data'",
        ),
        (
            "topk.train.tuning.private_trials",
            {"digits": 1},
            "topk.train.tuning.private_trials has no entry for 'mnist'",
        ),
        (
            "topk.audit.confidence",
            0.75,
            "topk.audit.confidence is 0.75; allowed is a value greater than 0.75.",
        ),
        ("topk.membership.datasets", ["mnist"], "topk.membership.blocks is empty"),
        ("privacy.mode", "release", "topk.grid.seeds is [0, 1, 2] in release mode; allowed is null"),
        ("privacy.delta", "1e-5", "privacy.delta is '1e-5'; allowed is a valid number."),
        ("privacy.delta", "yes", "privacy.delta is 'yes'"),
        ("privacy", None, "privacy is None; allowed is a mapping with the keys mode, delta"),
        ("topk.optimizer", [], "topk.optimizer is []; allowed is a mapping with the keys name, momentum"),
    ],
)
def test_a_mistake_is_one_sentence_with_key_value_and_what_is_allowed(
    path: str, value: object, sentence: str
) -> None:
    with pytest.raises(SfumatoError) as caught:
        parse(_with(path, value), "params.yaml")
    text = str(caught.value)
    assert sentence in text
    assert text.startswith("params.yaml: ")
    assert "\n" not in text


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"train": {"points": 1, "sampling_variance": "budget_share"}, "attack": {"datasets": []}},
            "divergence.train.points is 1 with sampling_variance 'budget_share'; allowed is at least 2",
        ),
        (
            {"grid": {"methods": ["per_batch"]}, "train": {"batches": 41}},
            "divergence.train.batches is 41; allowed is at most 40",
        ),
    ],
)
def test_numbers_of_the_divergence_that_do_not_fit_each_other_name_the_key(
    changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SfumatoError) as caught:
        parse(merged(BASE, {"divergence": changes}))
    assert sentence in str(caught.value)


def test_numbers_of_the_divergence_at_their_limits_are_accepted() -> None:
    changes = {
        "grid": {"methods": ["per_batch"]},
        "train": {"batches": 40, "protocol_clients": 4, "confidence": 1 - 1e-9, "floor_level": 1e-12},
        "studies": {"batches": [40], "epsilon": 200},
        "timeline": {"epsilon": 4, "threshold": 2.99},
    }
    assert parse(merged(BASE, {"divergence": changes})).divergence.train.batches == 40
    clipped = {"train": {"floor": "clip"}, "timeline": {"threshold": 3}}
    assert parse(merged(BASE, {"divergence": clipped})).divergence.timeline.threshold == 3


UNUSED = {"fashion_mnist", "cifar10", "thyroid", "digits"}  # data sets that the default grid leaves out


@pytest.mark.parametrize("path", [path for path in PATHS if not UNUSED & set(path.split("."))])
def test_no_key_in_use_can_be_left_out(path: str) -> None:
    last = path.rsplit(".", 1)[-1]
    with pytest.raises(SfumatoError) as caught:
        parse(_without(path), "params.yaml")
    assert last in str(caught.value)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(path=st.sampled_from(PATHS), value=JUNK)
def test_any_value_anywhere_is_accepted_or_refused_in_one_sentence(path: str, value: object) -> None:
    try:
        params = parse(_with(path, value), "params.yaml")
    except SfumatoError as error:
        text = str(error)
        assert "\n" not in text
        assert text.endswith(".")
        assert "allowed" in text
    else:
        assert isinstance(params, Params)


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=60))
def test_any_text_is_read_or_refused_in_one_sentence(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "params.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(SfumatoError) as caught:
        load(path)
    assert "Traceback" not in str(caught.value)


def test_floats_may_be_written_either_way(tmp_path: Path) -> None:
    text = (ROOT / "params.yaml").read_text()
    for spelling in ("1e-5", "1.0e-5", "0.00001", "1E-5"):
        path = tmp_path / "params.yaml"
        path.write_text(text.replace("delta: 1.0e-5", f"delta: {spelling}"))
        assert load(path).privacy.delta == 1e-5


def test_repeated_keys_and_missing_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    with pytest.raises(SfumatoError, match="cannot be read"):
        load(path)
    path.write_text("privacy: {mode: simulation, mode: release}\n")
    with pytest.raises(SfumatoError, match="is not YAML"):
        load(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SfumatoError, match="UTF-8"):
        load(path)


def test_release_mode_takes_no_seeds() -> None:
    changed = merged(
        BASE,
        {
            "privacy": {"mode": "release"},
            "topk": {"grid": {"seeds": None, "references": []}, "audit": {"datasets": []}},
            "modulated": {"grid": {"datasets": []}, "attack": {"datasets": []}},
            "divergence": {
                "grid": {"datasets": []},
                "timeline": {"datasets": []},
                "attack": {"datasets": []},
            },
            "radiomap": {"grid": {"datasets": []}},
        },
    )
    assert parse(changed).topk.grid.seeds is None


def test_parameters_are_frozen() -> None:
    params = parse(BASE)
    with pytest.raises(ValueError, match="frozen"):
        params.privacy.delta = 0.1  # type: ignore[misc]


@pytest.mark.parametrize("key", ["topk.grid.references", "topk.audit.datasets"])
def test_release_mode_refuses_fits_that_the_book_does_not_see(key: str) -> None:
    quiet = {"grid": {"seeds": None, "references": []}, "audit": {"datasets": []}}
    changed: Any = merged(BASE, {"privacy": {"mode": "release"}, "topk": quiet})
    section, name = key.split(".")[1:]
    changed["topk"][section][name] = ["mnist"]
    with pytest.raises(SfumatoError, match=f"{key} is .*not charged"):
        parse(changed)


def test_a_key_that_would_break_the_sentence_is_escaped() -> None:
    for value in ({"a\nb": 1}, {"tp_topk": 1, "a\u2028b": 2}):
        with pytest.raises(SfumatoError) as caught:
            parse(_with("topk.train.learning_rate.cifar10", value))
        assert len(str(caught.value).splitlines()) == 1
