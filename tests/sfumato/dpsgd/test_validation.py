"""Modules that mix examples or that an engine cannot handle are refused with a sentence that helps."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from sfumato.dpsgd import check_examples_do_not_mix, validate
from sfumato.errors import SfumatoError, UnsupportedLayerError
from tests.sfumato.dpsgd.reference import MODELS, OPACUS_MODELS, OwnParameters, Tokens, generator, make

REFUSED = {
    "batch_norm": (nn.BatchNorm2d(4), "nn.GroupNorm"),
    "batch_norm_in_eval_mode": (nn.BatchNorm1d(4).eval(), "nn.GroupNorm"),
    "batch_norm_without_parameters": (nn.BatchNorm2d(4, affine=False), "nn.GroupNorm"),
    "sync_batch_norm": (nn.SyncBatchNorm(4), "nn.GroupNorm"),
    "lazy_batch_norm": (nn.LazyBatchNorm2d(), "nn.GroupNorm"),
    "instance_norm": (nn.InstanceNorm2d(4, track_running_stats=True), "track_running_stats=False"),
    "lstm": (nn.LSTM(4, 4), "nn.Conv1d or nn.Linear"),
    "gru": (nn.GRU(4, 4), "nn.Conv1d or nn.Linear"),
    "rnn_cell": (nn.RNNCell(4, 4), "nn.Conv1d or nn.Linear"),
    "attention": (nn.MultiheadAttention(4, 2), "nn.Linear"),
    "transformer": (nn.TransformerEncoderLayer(4, 2), "nn.Linear"),
    "embedding_bag": (nn.EmbeddingBag(4, 2), "nn.Embedding"),
    "embedding_max_norm": (nn.Embedding(4, 2, max_norm=1.0), "max_norm=None"),
    "embedding_counts": (nn.Embedding(4, 2, scale_grad_by_freq=True), "scale_grad_by_freq=False"),
    "embedding_sparse": (nn.Embedding(4, 2, sparse=True), "sparse=False"),
    "dropout": (nn.Dropout(0.5), "remove it"),
    "dropout2d": (nn.Dropout2d(0.5), "remove it"),
    "alpha_dropout": (nn.AlphaDropout(0.5), "remove it"),
    "random_relu": (nn.RReLU(), "remove it"),
    "weight_norm": (parametrizations.weight_norm(nn.Linear(3, 2)), "without torch.nn.utils.parametrize"),
    "lazy": (nn.LazyLinear(3), "run the module once on an input"),
    "half": (nn.Linear(2, 2).half(), "float32 or float64"),
    "complex": (nn.Linear(2, 2, dtype=torch.complex64), "float32 or float64"),
}


@pytest.mark.parametrize("engine", ["functional", "opacus"])
@pytest.mark.parametrize("name", list(REFUSED))
def test_refusal_names_the_layer_its_class_and_what_to_use_instead(name: str, engine: str) -> None:
    layer, instead = REFUSED[name]
    model = nn.Sequential(nn.Linear(4, 4), nn.ModuleDict({"inner": layer}))
    with pytest.raises(UnsupportedLayerError) as caught:
        validate(model, engine)
    sentence = str(caught.value)
    assert sentence.startswith("layer '1.inner")
    assert sentence.endswith("instead.")
    assert "\n" not in sentence
    assert type(layer).__name__ in sentence or name == "transformer"
    assert instead in sentence


@pytest.mark.parametrize("name", list(MODELS))
def test_supported_models_are_accepted(name: str) -> None:
    validate(make(name, torch.float32)[0])
    validate(make(name, torch.float64)[0])


@pytest.mark.parametrize("name", [name for name in OPACUS_MODELS])
def test_opacus_models_are_accepted(name: str) -> None:
    validate(make(name, torch.float32)[0], "opacus")


def test_opacus_refuses_layers_that_it_has_no_rule_for() -> None:
    with pytest.raises(
        UnsupportedLayerError, match=r"\(the module itself\)' \(OwnParameters\) holds parameters \(scale\)"
    ):
        validate(OwnParameters(), "opacus")
    with pytest.raises(UnsupportedLayerError, match="padding row"):
        validate(Tokens(padding_idx=0), "opacus")


def test_dropout_is_accepted_in_eval_mode() -> None:
    validate(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5).eval()))


def test_modules_with_nothing_to_train_or_two_dtypes_are_refused() -> None:
    with pytest.raises(SfumatoError, match="module Sequential has no trainable parameter"):
        validate(nn.Sequential(nn.Tanh(), nn.Linear(2, 2).requires_grad_(False)))
    with pytest.raises(SfumatoError, match="allowed is one for all"):
        validate(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()))
    with pytest.raises(SfumatoError, match="engine is 'fast'"):
        validate(nn.Linear(2, 2), "fast")


class Centre(nn.Module):
    """Subtracts the mean over the batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(dim=0)


class Previous(nn.Module):
    """Adds the example before."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x.roll(1, dims=0)


@pytest.mark.parametrize("mixer", [Centre(), Previous(), nn.BatchNorm1d(6), nn.Softmax(dim=0)])
def test_mixing_is_found_on_inputs(mixer: nn.Module) -> None:
    inputs = torch.randn(4, 6, generator=generator())
    model = nn.Sequential(nn.Linear(6, 6), mixer, nn.Linear(6, 2))
    state = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(UnsupportedLayerError, match="mixes the examples of a batch"):
        check_examples_do_not_mix(model, inputs)
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("name", list(MODELS))
def test_models_that_do_not_mix_pass(name: str) -> None:
    model, (inputs, _) = make(name, torch.float32)
    check_examples_do_not_mix(model, inputs)


def test_inputs_that_a_model_cannot_take_are_named() -> None:
    with pytest.raises(UnsupportedLayerError, match=r"cannot be run on inputs of shape \(2, 3\)"):
        check_examples_do_not_mix(nn.Linear(4, 2), torch.zeros(2, 3))
    with pytest.raises(SfumatoError, match="holds 1 examples"):
        check_examples_do_not_mix(nn.Linear(4, 2), torch.zeros(1, 4))
    with pytest.raises(UnsupportedLayerError, match=r"outputs of shape \(12,\) for 2 examples"):
        check_examples_do_not_mix(nn.Sequential(nn.Linear(4, 6), nn.Flatten(0)), torch.zeros(2, 4))
