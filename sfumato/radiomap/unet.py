"""RadioUNet: from buildings and a transmitter to a radio map, in two stages (Section 3.2 of docs/papers.md).

>>> import torch
>>> from sfumato.rng import Streams
>>> model = build(SMALL, Streams(0).stream("init"))
>>> first, second = model(torch.zeros(1, 2, 32, 32))
>>> tuple(first.shape), tuple(second.shape), dimension(model)
((1, 1, 32, 32), (1, 1, 32, 32), 28469)

The published network has six halvings of the map and is for maps of 256 x 256 cells:

>>> with torch.device("meta"):
...     dimension(RadioUNet())
13274031
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import pad

from sfumato.checks import is_integer, is_number
from sfumato.errors import SfumatoError
from sfumato.rng import RandomStream

Padding = Literal["zeros", "circular", "reflect"]

INPUTS: Final = 2
"""Channels of the input: buildings (0 or 1), and the transmitter's cell (0 or 1)."""

TRANSMITTER: Final = 1
"""Which of them is the transmitter's."""

MOST_LEVELS: Final = 6


class _Row(NamedTuple):
    """One layer of the encoder, and the layer of the decoder that undoes it."""

    name: str
    channels: int
    kernel: int
    halves: bool
    up_channels: int
    up_kernel: int


_FIRST: Final = (
    _Row("00", 6, 3, False, 20, 5),
    _Row("0", 40, 5, True, 20, 6),
    _Row("1", 50, 5, True, 40, 6),
    _Row("10", 60, 5, False, 50, 5),
    _Row("2", 100, 5, True, 60, 6),
    _Row("20", 100, 3, False, 100, 3),
    _Row("3", 150, 5, True, 100, 4),
    _Row("4", 300, 5, True, 150, 4),
    _Row("5", 500, 5, True, 300, 4),
)
_SECOND: Final = (
    _Row("00", 20, 3, False, 20, 5),
    _Row("0", 30, 5, True, 20, 6),
    _Row("1", 40, 5, True, 30, 6),
    _Row("10", 50, 5, False, 40, 5),
    _Row("2", 60, 5, True, 50, 6),
    _Row("20", 70, 3, False, 60, 3),
    _Row("3", 90, 5, True, 70, 4),
    _Row("4", 110, 5, True, 90, 4),
    _Row("5", 150, 5, True, 110, 4),
)
_HEAD_KERNEL: Final = 5


@dataclass(frozen=True)
class Architecture:
    """Which RadioUNet.

    Attributes:
        width: factor on all hidden channels; 1 is the published network. Rounded, and at least 2 channels remain.
        levels: how many times the map is halved, 1 to 6; 6 is the published network, fewer leave out its
            deepest layers.
        padding: what every convolution sees beyond the map's edge: zeros as published, the opposite edge
            (``circular``), or the mirrored map (``reflect``). It is one of the things that tell where in the
            map something is.
        rectified: whether both outputs end in a ReLU, as published. The default is linear, since a rectified
            output can be zero everywhere and then never learns.

    Raises:
        SfumatoError: if a field is outside of what is allowed.
    """

    width: float = 1.0
    levels: int = MOST_LEVELS
    padding: Padding = "zeros"
    rectified: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        if not is_number(self.width) or not 0 < self.width <= 8:
            raise SfumatoError(f"width is {self.width!r}; allowed is a number above 0, at most 8.")
        if not is_integer(self.levels) or not 1 <= self.levels <= MOST_LEVELS:
            raise SfumatoError(f"levels is {self.levels!r}; allowed is an integer from 1 to {MOST_LEVELS}.")
        if self.padding not in get_args(Padding):
            raise SfumatoError(f"padding is {self.padding!r}; allowed is {' or '.join(get_args(Padding))}.")

    @property
    def stride(self) -> int:
        """By how many cells a map is to be shifted for its deepest features to shift by one: 2 to the number of levels."""
        return 2**self.levels

    def check_size(self, size: int) -> None:
        """Refuse maps that this network cannot take.

        Args:
            size: cells along one side of the square map.

        Raises:
            SfumatoError: unless the size is a multiple of the stride, large enough for the padding.
        """
        # The deepest convolution reaches two cells beyond the edge, and a map mirrors only what it has.
        least = {"zeros": 1, "circular": 1, "reflect": 2}[self.padding] * self.stride
        if size < least or size % self.stride:
            raise SfumatoError(
                f"the maps have {size} cells along a side; allowed for {self.levels} levels and padding {self.padding!r} "
                f"are multiples of {self.stride} from {least} on."
            )


SMALL: Final = Architecture(width=0.14, levels=3)
"""For maps of 32 x 32 cells on one thread."""


class _Convolution(nn.Conv2d):
    """A convolution that keeps the size, then the largest of each 2 x 2 cells if it halves, then ReLU if it is hidden.

    ReLU is monotone, so taking the maximum first gives the same function, for a quarter of the ReLUs.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        padding: Padding,
        halves: bool = False,
        rectified: bool = True,
    ) -> None:
        super().__init__(inputs, outputs, kernel, padding=kernel // 2, padding_mode=padding)
        self.halves, self.rectified = halves, rectified

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """(b, inputs, s, s) to (b, outputs, s, s), or of half the size."""
        found = super().forward(input)
        if self.halves:
            found = torch.max_pool2d(found, 2)
        return torch.relu(found) if self.rectified else found


class _Doubling(nn.ConvTranspose2d):
    """A transposed convolution of stride 2 that doubles the size, then ReLU.

    Its outputs at the edge lack the inputs one cell beyond it. Where the padding is not zeros, those are put
    there first, and the outputs that they alone would make are cut off, so that with circular padding it
    commutes with shifts exactly.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, padding: Padding) -> None:
        beyond = 0 if padding == "zeros" else 1
        super().__init__(inputs, outputs, kernel, stride=2, padding=kernel // 2 - 1 + 2 * beyond)
        self.mode = padding

    def forward(self, input: torch.Tensor, output_size: list[int] | None = None) -> torch.Tensor:
        """(b, inputs, s, s) to (b, outputs, 2 s, 2 s)."""
        if self.mode != "zeros":
            input = pad(input, (1, 1, 1, 1), mode=self.mode)
        return torch.relu(super().forward(input, output_size))


class Stage(nn.Module):
    """One U: an encoder, and a decoder that undoes its layers one by one, each with that layer's output beside it.

    The decoder's last two layers see the stage's input as well.
    """

    def __init__(self, inputs: int, architecture: Architecture, rows: tuple[_Row, ...]) -> None:
        """Args: channels of the input, the architecture, and the published rows."""
        super().__init__()
        kept, hidden, padding = (
            _kept(rows, architecture.levels),
            _Widths(architecture.width),
            architecture.padding,
        )
        self.down, self.up = nn.ModuleDict(), nn.ModuleDict()
        before = inputs
        for row in kept:
            channels = hidden(row.channels)
            self.down[f"layer{row.name}"] = _Convolution(before, channels, row.kernel, padding, row.halves)
            before = channels
        for depth, row in reversed(list(enumerate(kept))):
            # The deepest layer's output is what the decoder begins with, not something beside it.
            beside = hidden(row.channels) if depth < len(kept) - 1 else 0
            seen = before + beside + (inputs if depth == 0 else 0)
            kind = _Doubling if row.halves else _Convolution
            self.up[f"up{row.name}"] = kind(seen, hidden(row.up_channels), row.up_kernel, padding)
            before = hidden(row.up_channels)
        self.head = _Convolution(before + inputs, 1, _HEAD_KERNEL, padding, rectified=architecture.rectified)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(b, inputs, s, s) to (b, 1, s, s)."""
        encoded: list[torch.Tensor] = []
        found = inputs
        for layer in self.down.values():
            found = layer(found)
            encoded.append(found)
        for depth, layer in zip(reversed(range(len(encoded))), self.up.values(), strict=True):
            seen = [found, encoded[depth]] if depth < len(encoded) - 1 else [found]
            found = layer(torch.cat([*seen, inputs] if depth == 0 else seen, dim=1))
        return self.head(torch.cat([found, inputs], dim=1))


class RadioUNet(nn.Module):
    """Both stages; the second refines the first's map, and sends no gradient back into it.

    Args:
        width: as in `Architecture`.
        padding: likewise.
        rectified: likewise.
        levels: likewise.

    Raises:
        SfumatoError: if one is outside of what is allowed.
    """

    def __init__(
        self,
        width: float = 1.0,
        padding: Padding = "zeros",
        rectified: bool = False,
        levels: int = MOST_LEVELS,
    ) -> None:
        """Draw initial weights from torch's global generator; `build` takes a stream instead."""
        super().__init__()
        self.architecture = Architecture(width, levels, padding, rectified)
        self.first = Stage(INPUTS, self.architecture, _FIRST)
        self.second = Stage(INPUTS + 1, self.architecture, _SECOND)

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The map after each stage.

        Args:
            inputs: (b, 2, s, s) float32, buildings and transmitter.

        Returns:
            Two tensors (b, 1, s, s), encoded path gain. The second carries no gradient to the first stage's weights.

        Raises:
            SfumatoError: if the shape does not fit the architecture.
        """
        if inputs.ndim != 4 or inputs.shape[1] != INPUTS or inputs.shape[2] != inputs.shape[3]:
            raise SfumatoError(
                f"the input has shape {tuple(inputs.shape)}; allowed is (maps, {INPUTS}, size, size)."
            )
        self.architecture.check_size(int(inputs.shape[2]))
        inputs = inputs.contiguous(memory_format=torch.channels_last)
        first = self.first(inputs)
        return first, self.second(torch.cat([first.detach(), inputs], dim=1))


class _Widths:
    """Channels of the published network times a factor."""

    def __init__(self, width: float) -> None:
        self.width = width

    def __call__(self, channels: int) -> int:
        return max(2, round(self.width * channels))


def _kept(rows: tuple[_Row, ...], levels: int) -> tuple[_Row, ...]:
    """The rows down to the last halving that is kept."""
    halvings = [place for place, row in enumerate(rows) if row.halves]
    return rows[: halvings[levels - 1] + 1]


# ---------------------------------------------------------------------------------------------------- as vectors
def build(architecture: Architecture, stream: RandomStream) -> RadioUNet:
    """A freshly initialised network, a function of the stream's draws alone.

    Weights and biases are uniform on +-1 / sqrt(the second and further sizes of the layer's weights), which is
    torch's own rule and thus the published network's.

    Args:
        architecture: which one.
        stream: draws the initial weights.

    Returns:
        The network on the processor, in float32.
    """
    with torch.device("meta"):  # where torch's own draw from its global generator draws nothing
        model = RadioUNet(
            architecture.width, architecture.padding, architecture.rectified, architecture.levels
        )
    # Channels last is the layout in which the convolutions of a processor are faster; no result depends on it
    # but in rounding.
    model = cast(RadioUNet, model.to_empty(device="cpu").to(memory_format=torch.channels_last))  # type: ignore[call-overload]
    with torch.no_grad():
        for _, layer in named_layers(model):
            if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d)):
                _initialize(layer, stream)
    return model


def _initialize(layer: nn.Conv2d | nn.ConvTranspose2d, stream: RandomStream) -> None:
    bound = 1.0 / math.sqrt(math.prod(layer.weight.shape[1:]))
    for entry in layer.parameters():
        entry.copy_(torch.from_numpy((2.0 * stream.random(tuple(entry.shape)) - 1.0) * bound))


def dimension(model: nn.Module) -> int:
    """d, how many weights a module has, biases included."""
    return sum(parameter.numel() for parameter in model.parameters())


def named_layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every module in a module, itself included, with its dotted name."""
    return cast("Iterator[tuple[str, nn.Module]]", model.named_modules())


def check_averageable(model: nn.Module) -> None:
    """Refuse a module that is more than its floating-point parameters, since only those are trained, clipped and averaged.

    Raises:
        SfumatoError: if it has batch normalisation, buffers, parameters of another type, or none at all; the sentence
            names the first.
    """
    for name, layer in named_layers(model):
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):  # pyright: ignore[reportPrivateUsage]
            raise SfumatoError(
                f"the model's {name or 'root'} is {type(layer).__name__}; allowed are layers without batch statistics, such "
                "as GroupNorm, since an average of clients' statistics is none."
            )
    for name, buffer in model.named_buffers():
        raise SfumatoError(
            f"the model has the buffer {name!r} of {buffer.dtype}; allowed are parameters only, since a buffer would be "
            "neither clipped nor averaged."
        )
    for name, parameter in model.named_parameters():
        if not parameter.is_floating_point():
            raise SfumatoError(f"the model's parameter {name!r} is of {parameter.dtype}; allowed are floats.")
    if dimension(model) == 0:
        raise SfumatoError("the model has no parameters; allowed is one that can learn.")


def flat(model: nn.Module) -> NDArray[np.float32]:
    """A copy of all parameters as one (d,) float32 vector, in the module's order, each in row-major order."""
    parts = [parameter.detach().reshape(-1).to(torch.float32) for parameter in model.parameters()]
    return torch.cat(parts).numpy()


def load_flat(model: nn.Module, vector: NDArray[np.floating]) -> None:
    """Write a (d,) vector into the parameters, in place and in their own type.

    Raises:
        SfumatoError: if its shape is not (d,).
    """
    size = dimension(model)
    if vector.shape != (size,):
        raise SfumatoError(
            f"the weights have shape {vector.shape}; allowed is ({size},), the model's parameters."
        )
    values, start = torch.from_numpy(np.array(vector)), 0
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(values[start : start + parameter.numel()].view(parameter.shape))
            start += parameter.numel()
