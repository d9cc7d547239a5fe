"""Modules that mix examples or that an engine cannot handle are refused with a sentence that helps."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from sfumato.dpsgd import validate
from sfumato.errors import SfumatoError, UnsupportedLayerError
from tests.sfumato.dpsgd.reference import MODELS, OPACUS_MODELS, OwnParameters, Tokens, make

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
    with pytest.raises(UnsupportedLayerError, match=r"'0' .LayerNorm. has no bias.*use bias=True or"):
        validate(nn.Sequential(nn.LayerNorm(6, bias=False)), "opacus")
    validate(nn.Sequential(nn.LayerNorm(6, elementwise_affine=False), nn.Linear(6, 3)), "opacus")
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


@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm"])
def test_older_parametrisations_are_refused_by_name(kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        layer = getattr(nn.utils, kind)(nn.Linear(6, 3))
    with pytest.raises(
        UnsupportedLayerError, match=rf"layer '1' \(Linear\) .* without torch.nn.utils.{kind} instead\.$"
    ):
        validate(nn.Sequential(nn.Linear(6, 6), layer))


@pytest.mark.parametrize("mode", ["circular", "reflect", "replicate"])
@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv2d, nn.Conv3d])
def test_padding_that_opacus_takes_for_zeros_is_refused_for_opacus_alone(
    kind: type[nn.Conv1d], mode: str
) -> None:
    model = nn.Sequential(kind(2, 4, 3, padding=1, padding_mode=mode))
    validate(model)
    with pytest.raises(
        UnsupportedLayerError, match=rf"layer '0' .* pads with '{mode}'.*functional engine instead\.$"
    ):
        validate(model, "opacus")
