"""Modules that mix examples are found on random inputs of any dtype, and no other module is called one."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from sfumato.dpsgd import check_examples_do_not_mix, check_mixing
from sfumato.errors import SfumatoError, UnsupportedLayerError
from sfumato.rng import RandomStream, Streams
from tests.sfumato.dpsgd.reference import MODELS, Tokens, generator, initialise, make


def stream(seed: int = 0) -> RandomStream:
    return Streams(seed).stream("mix_check")


class Written(nn.Module):
    """A function of the inputs in front of a Linear layer."""

    def __init__(self, run: Callable[[Written, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.run = run
        self.linear = nn.Linear(6, 3)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.run(self, x))


class Centre(nn.Module):
    """Subtracts the mean over the batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(dim=0)


class Previous(nn.Module):
    """Adds the example before."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x.roll(1, dims=0)


MIXERS = [Centre(), Previous(), nn.BatchNorm1d(6), nn.Softmax(dim=0)]


@pytest.mark.parametrize("mixer", MIXERS)
def test_mixing_is_found_on_inputs(mixer: nn.Module) -> None:
    inputs = torch.randn(4, 6, generator=generator())
    model = nn.Sequential(nn.Linear(6, 6), mixer, nn.Linear(6, 2))
    state = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(UnsupportedLayerError, match="mixes the examples of a batch"):
        check_examples_do_not_mix(model, inputs)
    with pytest.raises(UnsupportedLayerError, match="mixes the examples of a batch"):
        check_mixing(model, (6,), torch.float32, stream())
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("rows", [2, 3, 9])
@pytest.mark.parametrize("seed", range(3))
def test_mixing_is_found_on_ids(mixer: nn.Module, dtype: torch.dtype, rows: int, seed: int) -> None:
    model = nn.Sequential(nn.Embedding(rows, 3), nn.Flatten(), mixer, nn.Linear(6, 2))
    with pytest.raises(UnsupportedLayerError, match="mixes the examples of a batch"):
        check_mixing(initialise(model, seed), (2,), dtype, stream(seed))


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.int8, torch.bool])
def test_mixing_is_found_on_integers_without_an_embedding(dtype: torch.dtype) -> None:
    model = Written(lambda m, x: Centre()(x.float()))
    with pytest.raises(UnsupportedLayerError, match="mixes the examples of a batch"):
        check_mixing(model, (6,), dtype, stream())
    check_mixing(Written(lambda m, x: x.float()), (6,), dtype, stream())


class Seen(nn.Module):
    """Notes the largest id that it meets."""

    largest = -1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Seen.largest = max(Seen.largest, int(x.max()))
        return x


def test_ids_stay_below_the_smallest_embedding_or_the_given_bound() -> None:
    model = nn.Sequential(Seen(), nn.Embedding(50, 3), nn.Flatten(), nn.Linear(60, 2), Unused())
    for ids, below in ((None, 11), (7, 7), (2, 2)):
        Seen.largest = -1
        check_mixing(model, (20,), torch.int64, stream(), ids=ids)
        assert 0 < Seen.largest < below
    for wrong in (1, 0, 2.5, True):
        with pytest.raises(SfumatoError, match=r"ids is .*; allowed is an integer of at least 2"):
            check_mixing(model, (20,), torch.int64, stream(), ids=wrong)  # type: ignore[arg-type]


class Unused(nn.Module):
    """Holds a smaller embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def test_tables_of_the_users_own_are_tried_with_ids_0_and_1() -> None:
    table = torch.randn(2, 6, generator=generator())
    check_mixing(Written(lambda m, x: table[x]), (), torch.int64, stream())
    with pytest.raises(UnsupportedLayerError, match="mixes the examples"):
        check_mixing(Written(lambda m, x: Centre()(table[x])), (), torch.int64, stream())


def test_mixing_behind_a_last_layer_of_zeros_is_found() -> None:
    model = nn.Sequential(nn.Linear(6, 6), Centre(), nn.Linear(6, 2))
    nn.init.zeros_(model[2].weight)
    with pytest.raises(UnsupportedLayerError, match="mixes the examples"):
        check_mixing(model, (6,), torch.float32, stream())
    check_mixing(nn.Sequential(nn.Linear(6, 6), model[2]), (6,), torch.float32, stream())


@pytest.mark.parametrize("name", list(MODELS))
def test_models_that_do_not_mix_pass_and_stay_as_they_were(name: str) -> None:
    model, (inputs, _) = make(name, torch.float32)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    check_examples_do_not_mix(model, inputs)
    check_mixing(model, tuple(inputs.shape[1:]), inputs.dtype, stream())
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_models_that_are_not_defined_everywhere_are_judged_where_they_are() -> None:
    for run in (lambda m, x: torch.log(x), lambda m, x: torch.sqrt(x), lambda m, x: torch.log(x / (1 - x))):
        check_mixing(Written(run), (6,), torch.float32, stream())
        mixing = Written(lambda m, x, run=run: run(m, x) - run(m, x).mean(dim=0))
        with pytest.raises(UnsupportedLayerError, match="mixes the examples"):
            check_mixing(mixing, (6,), torch.float32, stream())
    partly = nn.Sequential(nn.Linear(6, 3), Log())
    check_examples_do_not_mix(partly, torch.randn(4, 6, generator=generator()))


class Log(nn.Module):
    """NaN for some of its outputs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(x)


def test_models_without_finite_outputs_are_not_said_to_mix() -> None:
    nowhere = Written(lambda m, x: torch.log(-1 - x.abs()))
    with pytest.raises(UnsupportedLayerError, match=r"outputs are not finite on random inputs.*instead\.$"):
        check_mixing(nowhere, (6,), torch.float32, stream())
    with pytest.raises(UnsupportedLayerError, match="outputs are not finite on the given inputs"):
        check_examples_do_not_mix(nowhere, torch.ones(2, 6))


@pytest.mark.parametrize("rate", [0.5, 1e-9])
def test_randomness_is_told_from_mixing_and_leaves_the_global_generator(rate: float) -> None:
    model = Written(lambda m, x: functional.dropout(x, rate))
    before = torch.get_rng_state()
    with pytest.raises(UnsupportedLayerError, match="draws from the global random generator"):
        check_mixing(model, (6,), torch.float32, stream())
    assert torch.equal(torch.get_rng_state(), before)


def running_mean(m: Written, x: torch.Tensor) -> torch.Tensor:
    m.mean = m.mean * 0.9 + 0.1 * x.mean(dim=0)
    return x - m.mean


def running_mean_in_place(m: Written, x: torch.Tensor) -> torch.Tensor:
    m.mean.mul_(0.9).add_(x.mean(dim=0), alpha=0.1)
    return x - m.mean


def last_batch(m: Written, x: torch.Tensor) -> torch.Tensor:
    before = vars(m).get("last", 0.0)
    m.last = x
    return x + before


@pytest.mark.parametrize("run", [running_mean, running_mean_in_place, last_batch])
def test_state_is_told_from_mixing_and_is_put_back(
    run: Callable[[Written, torch.Tensor], torch.Tensor],
) -> None:
    model = Written(run)
    with pytest.raises(UnsupportedLayerError, match=r"changes its own state.*eval mode, instead\.$"):
        check_mixing(model, (6,), torch.float32, stream())
    assert bool((model.mean == 0).all())
    assert "last" not in vars(model)


def test_spectral_norm_of_the_older_kind_is_said_to_change_its_state() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        model = nn.Sequential(nn.utils.spectral_norm(nn.Linear(6, 3)))
    with pytest.raises(UnsupportedLayerError, match="changes its own state"):
        check_mixing(model, (6,), torch.float32, stream())
    check_mixing(model.eval(), (6,), torch.float32, stream())


def test_modules_that_cannot_be_copied_are_checked_all_the_same() -> None:
    model = Written(last_batch)
    model.kept = model.linear(torch.ones(2, 6))  # not a leaf: copy.deepcopy refuses it
    model.run = lambda m, x: x
    check_mixing(model, (6,), torch.float32, stream())


def test_inputs_changed_in_place_are_no_mixing_and_stay_as_they_were() -> None:
    inputs = torch.randn(4, 6, generator=generator())
    before = inputs.clone()
    check_examples_do_not_mix(Written(lambda m, x: x.mul_(2.0)), inputs)
    assert torch.equal(inputs, before)


def test_inputs_that_a_model_cannot_take_are_named() -> None:
    with pytest.raises(
        UnsupportedLayerError, match=r"cannot be run on inputs of shape \(2, 3\) and dtype torch.float32"
    ):
        check_examples_do_not_mix(nn.Linear(4, 2), torch.zeros(2, 3))
    with pytest.raises(
        UnsupportedLayerError, match=r"cannot be run on inputs of shape \(4, 4\) and dtype torch.int64"
    ):
        check_mixing(nn.Linear(4, 2), (4,), torch.int64, stream())
    with pytest.raises(SfumatoError, match="holds 1 examples"):
        check_examples_do_not_mix(nn.Linear(4, 2), torch.zeros(1, 4))
    with pytest.raises(SfumatoError, match="holds 0 examples"):
        check_examples_do_not_mix(nn.Linear(4, 2), torch.tensor(1.0))
    with pytest.raises(UnsupportedLayerError, match=r"outputs of shape \(12,\) for 2 examples"):
        check_examples_do_not_mix(nn.Sequential(nn.Linear(4, 6), nn.Flatten(0)), torch.zeros(2, 4))


class Pair(nn.Module):
    """Returns two tensors."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x, x


def test_modules_that_return_a_tuple_are_named() -> None:
    with pytest.raises(UnsupportedLayerError, match=r"model Pair returns a tuple; use one .* instead\.$"):
        check_mixing(Pair(), (6,), torch.float32, stream())


def test_the_check_draws_from_its_stream_alone() -> None:
    model = initialise(Tokens())
    before = torch.get_rng_state()
    check_mixing(model, (4,), torch.int64, stream())
    assert torch.equal(torch.get_rng_state(), before)
