"""The networks have the published shapes, and are functions of their stream alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from sfumato.errors import SfumatoError
from sfumato.radiomap.unet import (
    INPUTS,
    SMALL,
    Architecture,
    RadioUNet,
    build,
    check_averageable,
    dimension,
    flat,
    load_flat,
)
from sfumato.rng import Streams
from tests.cases import quick_ones

PADDINGS = ["zeros", "circular", "reflect"]


def test_at_full_width_it_has_as_many_weights_as_the_published_network() -> None:
    with torch.device("meta"):
        model = RadioUNet()
    assert dimension(model) == 13_274_031


PUBLISHED = {  # inputs, outputs and kernel of layers of the published code, two input channels
    "first.down.layer00": (2, 6, 3),
    "first.down.layer5": (300, 500, 5),
    "first.up.up5": (500, 300, 4),
    "first.up.up4": (600, 150, 4),
    "first.up.up20": (200, 100, 3),
    "first.up.up2": (200, 60, 6),
    "first.up.up0": (80, 20, 6),
    "first.up.up00": (28, 20, 5),
    "first.head": (22, 1, 5),
    "second.down.layer00": (3, 20, 3),
    "second.up.up1": (80, 30, 6),
    "second.up.up00": (43, 20, 5),
    "second.head": (23, 1, 5),
}


def test_at_full_width_the_layers_have_the_published_shapes() -> None:
    with torch.device("meta"):
        layers = dict(RadioUNet().named_modules())
    found = {
        name: (layers[name].in_channels, layers[name].out_channels, layers[name].kernel_size[0])
        for name in PUBLISHED
    }
    assert found == PUBLISHED
    # 9 + 8 + 2 layers of each stage
    assert sum(isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d)) for layer in layers.values()) == 38


def test_at_full_depth_it_keeps_the_maps_size() -> None:
    first, second = build(Architecture(0.02), Streams(0).stream("init"))(torch.rand(1, INPUTS, 128, 128))
    assert first.shape == second.shape == (1, 1, 128, 128)


def test_the_small_network_has_25_to_30_thousand_weights() -> None:
    assert 25_000 <= dimension(build(SMALL, Streams(0).stream("init"))) <= 30_000


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("levels", quick_ones([1, 2, 3, 4, 5, 6], [1, 3]))
def test_a_network_takes_maps_of_every_size_that_its_depth_allows(levels: int, padding: str) -> None:
    architecture = Architecture(0.05, levels, padding)  # type: ignore[arg-type]
    model = build(architecture, Streams(0).stream("init"))
    sizes = [size for size in (2, 4, 8, 16, 32, 64, 128) if size % architecture.stride == 0]
    taken = 0
    for size in sizes:
        try:
            architecture.check_size(size)
        except SfumatoError:
            assert size == architecture.stride  # the only one too small, for reflect
            assert padding == "reflect"
            continue
        first, second = model(torch.rand(1, INPUTS, size, size))
        assert first.shape == second.shape == (1, 1, size, size)
        taken += 1
    assert taken >= 1


@pytest.mark.parametrize("shape", [(1, 2, 30, 30), (1, 3, 32, 32), (2, 32, 32), (1, 2, 32, 16), (1, 2, 4, 4)])
def test_inputs_of_another_shape_are_refused_in_a_sentence(shape: tuple[int, ...]) -> None:
    model = build(SMALL, Streams(0).stream("init"))
    with pytest.raises(SfumatoError, match="allowed"):
        model(torch.zeros(shape))


@pytest.mark.parametrize(
    "fields",
    [
        {"width": 0},
        {"width": float("nan")},
        {"levels": 0},
        {"levels": 7},
        {"levels": 2.0},
        {"padding": "same"},
    ],
)
def test_an_architecture_that_does_not_exist_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(SfumatoError, match="allowed"):
        Architecture(**fields)  # type: ignore[arg-type]


def test_no_stage_has_fewer_than_two_hidden_channels() -> None:
    model = build(Architecture(1e-6, 6), Streams(0).stream("init"))
    for name, layer in model.named_modules():
        if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d)) and not name.endswith("head"):
            assert layer.out_channels == 2


def test_only_a_rectified_network_cannot_be_negative() -> None:
    inputs = torch.rand(4, INPUTS, 8, 8)
    for seed in range(3):
        plain = build(Architecture(0.1, 1), Streams(seed).stream("init"))
        rectified = build(Architecture(0.1, 1, rectified=True), Streams(seed).stream("init"))
        load_flat(rectified, flat(plain))
        assert torch.equal(rectified.first(inputs), torch.relu(plain.first(inputs)))
        assert all(float(output.min()) >= 0 for output in rectified(inputs))


def test_the_second_stage_sends_no_gradient_into_the_first() -> None:
    model = build(SMALL, Streams(0).stream("init"))
    model(torch.rand(1, INPUTS, 32, 32))[1].sum().backward()
    assert all(parameter.grad is None for parameter in model.first.parameters())
    assert all(parameter.grad is not None for parameter in model.second.parameters())


def test_initial_weights_are_the_streams_and_leave_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    one, again = (flat(build(SMALL, Streams(3).stream("init"))) for _ in range(2))
    other = flat(build(SMALL, Streams(4).stream("init")))
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_initial_weights_follow_the_librarys_own_rule() -> None:
    ours = build(Architecture(0.5, 2), Streams(0).stream("init"))
    generator = torch.Generator().manual_seed(0)
    for name, a in ours.named_parameters():
        if a.numel() < 500:
            continue
        b = torch.nn.init.kaiming_uniform_(torch.empty_like(a), a=5**0.5, generator=generator)
        # uniform laws of the same bound: their largest values are within 5 % of one another (false alarms < 1e-10)
        assert float(a.abs().max()) == pytest.approx(float(b.abs().max()), rel=0.05), name


def test_weights_go_to_a_vector_and_back_bit_by_bit() -> None:
    model = build(SMALL, Streams(0).stream("init"))
    vector = flat(model)
    other = build(SMALL, Streams(1).stream("init"))
    load_flat(other, vector)
    assert vector.shape == (dimension(model),)
    assert vector.dtype == np.float32
    assert np.array_equal(flat(other), vector)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
    vector[:] = 0.0
    assert not np.array_equal(flat(model), vector)  # a copy


def test_a_vector_of_another_length_is_refused() -> None:
    model = build(SMALL, Streams(0).stream("init"))
    with pytest.raises(SfumatoError, match=r"shape \(3,\)"):
        load_flat(model, np.zeros(3))


class _Buffered(nn.Module):
    def __init__(self, buffer: torch.Tensor) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)
        self.register_buffer("steps", buffer)


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (nn.Sequential(nn.Conv2d(2, 1, 3), nn.BatchNorm2d(1)), "BatchNorm2d"),
        (nn.BatchNorm2d(1, track_running_stats=False), "BatchNorm2d"),
        (_Buffered(torch.zeros((), dtype=torch.int64)), "'steps' of torch.int64"),
        (_Buffered(torch.zeros(3)), "'steps' of torch.float32"),
        (nn.Identity(), "no parameters"),
    ],
)
def test_a_model_that_cannot_be_averaged_is_refused_and_the_reason_named(
    model: nn.Module, named: str
) -> None:
    with pytest.raises(SfumatoError, match=named):
        check_averageable(model)


def test_a_model_of_complex_weights_is_refused() -> None:
    model = nn.Linear(2, 1, dtype=torch.complex64)
    with pytest.raises(SfumatoError, match=r"'weight' is of torch\.complex64"):
        check_averageable(model)
