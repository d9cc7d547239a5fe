"""What cannot be computed is one sentence that blames the one at fault: data, loss, layer or engine."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from sfumato.dpsgd import Loss, ParameterLayout, Support, get_engine
from sfumato.dpsgd.diagnosis import first_sentence
from sfumato.errors import SfumatoError, UnsupportedLayerError
from tests.sfumato.dpsgd.reference import cross_entropy, initialise, make
from tests.sfumato.dpsgd.test_engines import ENGINES


def refusal(
    engine: str, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor], loss: Loss = cross_entropy
) -> SfumatoError:
    d = ParameterLayout.of(model).size
    before = copy.deepcopy(model.state_dict())
    random_state = torch.get_rng_state()
    with pytest.raises(SfumatoError) as caught:
        get_engine(engine, 3).clipped_sum(model, loss, batch, Support.full(d), 0.3)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    assert ". " not in sentence
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random_state)
    return caught.value


def blames_data(error: SfumatoError, *parts: str) -> bool:
    return type(error) is SfumatoError and all(part in str(error) for part in parts)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("row", [0, 3, 6])
@pytest.mark.parametrize("label", [7, 3, -1])
def test_a_label_out_of_range_is_blamed_wherever_it_stands(engine: str, row: int, label: int) -> None:
    model, (x, y) = make("linear", torch.float32)
    y[row] = label
    error = refusal(engine, model, (x, y))
    assert blames_data(
        error, "targets of dtype torch.int64", f"Target {label} is out of bounds", "from 0 to 2"
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_labels_of_another_shape_or_dtype_are_blamed(engine: str) -> None:
    model, (x, y) = make("linear", torch.float32)
    assert blames_data(
        refusal(engine, model, (x, y.float())), "targets of shape (3,) and dtype torch.float32"
    )
    assert blames_data(
        refusal(engine, model, (x, y[:, None])), "targets of shape (3, 1) and dtype torch.int64"
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("wrong", [8, -1])
def test_an_id_out_of_range_is_blamed(engine: str, wrong: int) -> None:
    model = initialise(nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(8, 3)))
    ids, y = torch.tensor([[0, 4]] * 5), torch.zeros(5, dtype=torch.int64)
    ids[4, 1] = wrong
    error = refusal(engine, model, (ids, y))
    extreme = f"values from 0 to {wrong}" if wrong > 0 else "values from -1 to 4"
    assert blames_data(error, f"inputs with {extreme}", "'0' has 5 rows", "ids from 0")


class Positive(nn.Module):
    """Refuses inputs below zero."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch._C._functorch.is_batchedtensor(x) and bool((x < 0).any()):
            raise ValueError("below zero")
        return self.linear(x)


def test_a_value_that_a_models_own_check_refuses_is_blamed_on_the_inputs() -> None:
    _, (x, y) = make("linear", torch.float32)
    error = refusal("opacus", Positive(), (x, y))
    assert blames_data(error, "inputs with values from -", "model Positive cannot take (below zero)")


@pytest.mark.parametrize("engine", ENGINES)
def test_inputs_of_another_width_or_dtype_are_named_with_the_model(engine: str) -> None:
    model, (x, y) = make("linear", torch.float32)
    for inputs in (x[:, :5], x.long(), x.double()):
        error = refusal(engine, model, (inputs, y))
        assert isinstance(error, UnsupportedLayerError)
        assert f"model Sequential cannot be run on inputs of shape (3, {inputs.shape[1]}) and dtype" in str(
            error
        )


class Pair(nn.Module):
    """Returns two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.linear(x), x


@pytest.mark.parametrize("engine", ENGINES)
def test_a_module_that_returns_a_tuple_is_named(engine: str) -> None:
    _, batch = make("linear", torch.float32)
    error = refusal(engine, Pair(), batch)
    assert isinstance(error, UnsupportedLayerError)
    assert str(error).startswith("model Pair returns a tuple; use one that returns a single tensor")


@pytest.mark.parametrize("engine", ENGINES)
def test_batches_that_are_no_tensors_are_named(engine: str) -> None:
    model, (x, y) = make("linear", torch.float32)
    for batch, name in (((x.numpy(), y), "inputs"), ((x, y.tolist()), "targets")):
        assert f"batch has {name} of type" in str(refusal(engine, model, batch))  # type: ignore[arg-type]


def test_randomness_is_the_models_fault_and_not_the_datas() -> None:
    class Noisy(Pair):
        def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return self.linear(nn.functional.dropout(x))

    error = refusal("functional", Noisy(), make("linear", torch.float32)[1])
    assert isinstance(error, UnsupportedLayerError)
    assert "model Noisy cannot be differentiated example by example on inputs of shape (7, 6)" in str(error)


def test_a_buffer_that_the_search_for_the_fault_changes_is_put_back() -> None:
    class Counting(Pair):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            self.calls += 1
            return self.linear(x)

    error = refusal("functional", Counting(), make("linear", torch.float32)[1])
    assert "model Counting cannot be differentiated example by example" in str(error)


def test_layers_in_place_are_named_for_opacus() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 3))
    error = refusal("opacus", model, make("linear", torch.float32)[1])
    assert isinstance(error, UnsupportedLayerError)
    assert str(error).startswith("model Sequential has layers that work in place ('1')")
    assert str(error).endswith("use inplace=False or the functional engine instead.")


def test_models_that_opacus_cannot_copy_are_sent_to_the_functional_engine() -> None:
    model, batch = make("linear", torch.float32)
    model.kept = model(batch[0])
    d = ParameterLayout.of(model).size
    get_engine("functional").clipped_sum(model, cross_entropy, batch, Support.full(d), 0.3)
    with pytest.raises(
        UnsupportedLayerError, match=r"cannot be run by the opacus engine .* functional engine"
    ):
        get_engine("opacus").clipped_sum(model, cross_entropy, batch, Support.full(d), 0.3)


def test_messages_are_cut_to_their_first_sentence() -> None:
    assert first_sentence(ValueError("One thing. And another.\nMore")) == "One thing"
    assert first_sentence(ValueError()) == "ValueError"
