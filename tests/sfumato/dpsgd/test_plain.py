"""Models and losses with code of their own cannot mix examples: they are computed one by one unless they are trusted."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from sfumato.dpsgd import ParameterLayout, Support, get_engine
from sfumato.dpsgd.plain import LOSSES, each, why_not_plain
from sfumato.dpsgd.planned import PlannedEngine
from sfumato.errors import SfumatoError
from tests.sfumato.dpsgd.reference import (
    cross_entropy,
    generator,
    initialise,
    reference_gradients,
    reference_sum,
)


class LongestFirst(nn.Module):
    """Cuts a batch to its longest row: what one example gives depends on the others."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(10, 4), nn.Linear(4, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        longest = [length for length in (2, 4, 6) if not ids[:, length:].ne(9).any()]
        length = longest[0] if longest else ids.shape[1]
        return self.head(self.embedding(ids[:, :length]).mean(1))


class Blended(nn.Module):
    """Mixes examples as soon as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.alpha, self.head = 0.0, nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x + self.alpha * x.mean(0))


class Normalised(torch.autograd.Function):
    """Mixes examples on the way back alone."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] / gradients[0].norm()


def sensitivity(
    model: nn.Module, loss: Callable[..., torch.Tensor], x: torch.Tensor, y: torch.Tensor, clip: float
) -> float:
    """By how much the sum changes with the first example, in clip norms."""
    support, engine = Support.full(ParameterLayout.of(model).size), get_engine()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sums = [engine.clipped_sum(model, loss, (x[k:], y[k:]), support, clip).sum for k in (0, 1)]
    return float((sums[0] - sums[1]).norm()) / clip


def test_a_model_that_cuts_to_the_longest_row_keeps_to_its_sensitivity_or_is_refused() -> None:
    ids = torch.randint(0, 9, (12, 6), generator=generator())
    ids[1:, 2:] = 9
    model = initialise(LongestFirst())
    with pytest.raises(Exception, match=r"depend|vmap|values|example"):
        sensitivity(model, cross_entropy, ids, torch.arange(12) % 3, 0.1)


def test_a_model_that_begins_to_mix_is_not_taken_for_what_it_was() -> None:
    model = initialise(Blended())
    x, y = torch.randn(9, 5, generator=generator()), torch.arange(9) % 3
    assert sensitivity(model, cross_entropy, x, y, 0.1) <= 1 + 1e-5
    model.alpha = 5.0
    assert sensitivity(model, cross_entropy, x, y, 0.1) <= 1 + 1e-5


def test_a_trusted_model_that_changes_its_numbers_is_tried_again() -> None:
    model, engine = initialise(Blended()), PlannedEngine(trusted=True)
    support, x = Support.full(ParameterLayout.of(model).size), torch.zeros(1, 5)
    assert engine.plan(model, support, x).whole is None
    model.alpha = 5.0
    assert "change with the other examples" in str(engine.plan(model, support, x).whole)


def test_a_hook_that_mixes_gradients_makes_a_model_one_that_is_not_plain() -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    assert why_not_plain(model) is None
    handle = model[1].register_forward_hook(lambda _layer, _inputs, output: Normalised.apply(output))
    assert why_not_plain(model) == "layer '1' has hooks"
    handle.remove()
    assert why_not_plain(model) is None
    model[0].forward = lambda x: x  # type: ignore[method-assign]
    assert why_not_plain(model) == "layer '0' has a forward of its own"


@pytest.mark.parametrize(
    "layer", [nn.Flatten(0), nn.Unflatten(0, (1, -1)), nn.Softmax(0), Blended(), nn.ModuleList()]
)
def test_layers_that_can_read_the_first_axis_otherwise_are_not_plain(layer: nn.Module) -> None:
    assert type(layer).__name__ in str(why_not_plain(nn.Sequential(nn.Linear(2, 2), layer)))


@pytest.mark.parametrize("top", [1, 4])
def test_a_loss_that_keeps_the_hardest_examples_sees_one_at_a_time(top: int) -> None:
    model = initialise(nn.Sequential(nn.Linear(5, 3)))
    x, y = torch.randn(9, 5, generator=generator()), torch.arange(9) % 3
    x[0] *= 20

    def hardest(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        losses = functional.cross_entropy(outputs, targets, reduction="none")
        return losses * (losses >= losses.topk(min(top, len(losses))).values[-1])

    assert sensitivity(model, hardest, x, y, 0.1) <= 1 + 1e-5
    gradients = reference_gradients(model, hardest, (x, y))
    support = Support.full(18)
    wanted = reference_sum(gradients, support, 0.5)
    found = get_engine().clipped_sum(model, hardest, (x, y), support, 0.5)
    assert float((found.sum - wanted.sum).norm()) <= 1e-5 * float(wanted.sum.norm())


@pytest.mark.parametrize("active", [1.0, 0.02])
def test_long_rows_of_equal_numbers_keep_the_norm_to_five_digits(active: float) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(60_000, 2))
    x, y = torch.full((3, 60_000), 0.83), torch.tensor([0, 1, 0])
    size = ParameterLayout.of(model).size
    support = Support.of(torch.arange(0, size, round(1 / active)), size)
    found = get_engine().clipped_sum(model, cross_entropy, (x, y), support, 1e-3)
    assert float(found.sum.double().norm()) <= 3e-3 * (1 + 1e-5)
    wanted = reference_sum(reference_gradients(model, cross_entropy, (x, y)), support, 1e-3)
    assert torch.allclose(found.norms.double(), wanted.norms.double(), rtol=1e-5)


def test_dilated_convolutions_of_narrow_images_do_not_end_the_process() -> None:
    model = nn.Sequential(nn.Conv2d(34, 8, (4, 1), (1, 5), (0, 4), (1, 2), 2))
    x = torch.randn(2, 34, 5, 1, generator=generator())
    support = Support.full(ParameterLayout.of(model).size)

    def loss(outputs: torch.Tensor, _targets: torch.Tensor) -> torch.Tensor:
        return outputs.flatten(1).square().sum(1)

    found = get_engine().clipped_sum(model, loss, (x, x), support, 1.0)
    assert torch.isfinite(found.norms).all()


class BatchMean(nn.CrossEntropyLoss):
    """A loss of one's own in torch's clothes: every example gets the mean over all."""

    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        losses = super().forward(outputs, targets)
        return losses.mean().expand(len(losses))


def hooked() -> nn.CrossEntropyLoss:
    loss = nn.CrossEntropyLoss(reduction="none")
    loss.register_forward_hook(lambda _, __, losses: losses.mean().expand(len(losses)))
    return loss


@pytest.mark.parametrize("kind", LOSSES)
def test_losses_of_torch_are_called_on_all_at_once_and_give_what_one_example_at_a_time_gives(
    kind: type[nn.CrossEntropyLoss], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch.func, "vmap")
    loss, draws = kind(reduction="none"), generator(4)
    outputs, labels = torch.randn(5, 3, generator=draws), torch.tensor([0, 1, 2, 1, 0])
    if kind is nn.MSELoss:
        outputs, labels = outputs[:, 0], labels.float()
    one_by_one = torch.cat(
        [loss(outputs[row : row + 1], labels[row : row + 1]) for row in range(len(labels))]
    )
    assert torch.allclose(each(loss)(outputs, labels), one_by_one)


@pytest.mark.parametrize(
    "loss", [BatchMean(reduction="none"), hooked(), nn.CrossEntropyLoss()], ids=["derived", "hooked", "mean"]
)
def test_losses_that_are_not_torch_s_own_or_not_per_example_are_taken_one_example_at_a_time(
    loss: nn.CrossEntropyLoss, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch.func, "vmap")
    with pytest.raises(AttributeError, match="vmap"):
        each(loss)


def test_hooks_on_all_modules_make_loss_and_model_be_taken_one_example_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = initialise(nn.Sequential(nn.Linear(4, 3)))
    loss = nn.CrossEntropyLoss(reduction="none")
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert why_not_plain(model) == "hooks are set on all modules"
        monkeypatch.delattr(torch.func, "vmap")
        with pytest.raises(AttributeError, match="vmap"):
            each(loss)
    finally:
        handle.remove()
    assert why_not_plain(model) is None


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_classes_of_every_integer_kind_are_planned(dtype: torch.dtype) -> None:
    model = initialise(nn.Sequential(nn.Linear(4, 3)))
    x, labels, loss = torch.randn(3, 4, generator=generator(8)), torch.tensor([0, 2, 1]), nn.CrossEntropyLoss
    found = []
    for targets in (labels, labels.to(dtype)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found.append(
                get_engine().clipped_sum(model, loss(reduction="none"), (x, targets), Support.full(15), 0.3)
            )
    assert torch.equal(found[0].sum, found[1].sum)


@pytest.mark.parametrize(
    "pad",
    [
        nn.ZeroPad2d((0, 0, 2, -2)),
        nn.ConstantPad1d((0, 0, 2, -2), 0.0),
        nn.ConstantPad3d((0, 0, 0, 0, 2, -2), 0.0),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_padding_that_shifts_the_batch_moves_no_gradient_from_one_example_to_another(
    pad: nn.Module, first: bool
) -> None:
    linear = nn.Linear(4, 3)
    model = initialise(nn.Sequential(pad, linear) if first else nn.Sequential(linear, pad))
    assert why_not_plain(model) is not None
    rows = torch.arange(41) % 3
    x, loss = torch.randn(3, 4, generator=generator(9))[rows] * 3, nn.CrossEntropyLoss(reduction="none")
    for trusted in (False, True):  # the trial finds it, too
        engine = get_engine(trusted=trusted)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                whole, less = (
                    engine.clipped_sum(model, loss, (x[start:], rows[start:]), Support.full(15), 0.1).sum
                    for start in (0, 1)
                )
            except SfumatoError:  # it cannot be run on one example
                continue
        assert float((whole - less).norm()) <= 0.1 * (1 + 1e-5)


def test_settings_in_lists_and_hooks_of_another_kind_are_seen_by_the_next_call() -> None:
    class Mixing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flags, self.head = [False], nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(x + x.mean(0)) if self.flags[0] else self.head(x)

    def mixing_with_keywords(_: nn.Module, inputs: tuple[torch.Tensor], *rest: object) -> object:
        return inputs if len(rest) == 0 else ((inputs[0] + inputs[0].mean(0),), rest[0])

    x = torch.randn(6, 4, generator=generator(10))
    model, hooked_model = initialise(Mixing()), initialise(Mixing())
    handle = hooked_model.register_forward_pre_hook(mixing_with_keywords)
    engine = PlannedEngine(trusted=True)
    assert engine.plan(model, Support.full(15), x).whole is None
    assert engine.plan(hooked_model, Support.full(15), x).whole is None
    model.flags[0] = True
    handle.remove()
    hooked_model.register_forward_pre_hook(mixing_with_keywords, with_kwargs=True)
    for changed in (model, hooked_model):
        assert engine.plan(changed, Support.full(15), x).whole is not None


def test_a_hooked_loss_cannot_carry_one_example_into_another_s_norm() -> None:
    model = initialise(nn.Sequential(nn.Linear(4, 3)))
    x, labels = torch.randn(6, 4, generator=generator(6)), torch.tensor([0, 1, 2, 0, 1, 2])
    support = Support.full(ParameterLayout.of(model).size)
    wanted = get_engine().clipped_sum(model, nn.CrossEntropyLoss(reduction="none"), (x, labels), support, 0.3)
    for loss in (hooked(), BatchMean(reduction="none")):
        found = get_engine().clipped_sum(model, loss, (x, labels), support, 0.3)
        assert torch.allclose(found.norms, wanted.norms, rtol=1e-5)
        assert torch.allclose(found.sum, wanted.sum, atol=1e-6)


@pytest.mark.parametrize("name", ["weight", "pos_weight"])
def test_weights_that_go_by_the_place_in_the_batch_are_refused(name: str) -> None:
    """Else one example more would shift the weights of those behind it, by more than the clip norm in sum."""
    model = initialise(nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)))
    by_place = nn.BCEWithLogitsLoss(reduction="none", **{name: torch.tensor([1.0, 5.0, 9.0])})
    batch = torch.randn(3, 4, generator=generator(7)), torch.tensor([0.0, 1.0, 1.0])
    with pytest.raises(SfumatoError, match="one loss"):
        get_engine("planned", trusted=True).clipped_sum(model, by_place, batch, Support.full(5), 1.0)
