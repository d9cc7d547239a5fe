"""Memory that the kernels use again and again: fresh pages cost more than many a kernel's arithmetic.

>>> scratch = Scratch()
>>> first = scratch.take(100)
>>> scratch.give(first)
>>> scratch.take(90) is first
True
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

_MOST = 32  # pieces that are kept: batches of many sizes leave pieces that no later one takes


class Scratch:
    """Float32 memory of one clipped sum, for one thread at a time; and what one rule leaves for the next."""

    def __init__(self) -> None:
        """Begin with none."""
        self._free = list[tuple[int, torch.Tensor]]()
        self._noted: tuple[torch.Tensor, NDArray[np.int64], torch.Tensor] | None = None

    def take(self, size: int) -> torch.Tensor:
        """Tensor of at least ``size`` numbers of any values, aligned, and not much longer."""
        best = -1
        for place, (held, _) in enumerate(self._free):
            if size <= held <= 2 * size and (best < 0 or held < self._free[best][0]):
                best = place
        if best < 0:
            return torch.empty(size, dtype=torch.float32)  # torch aligns it
        return self._free.pop(best)[1]

    def give(self, *memory: torch.Tensor) -> None:
        """Give back what was taken and is not used any more."""
        self._free.extend((len(piece), piece) for piece in memory)
        del self._free[:-_MOST]

    def note(self, gradient: torch.Tensor, blocks: NDArray[np.int64], sums: torch.Tensor) -> None:
        """Keep the sums (planes, lanes) over the positions of an output gradient at blocks of 16 channels."""
        self._noted = (gradient, blocks, sums)

    def noted(self, gradient: torch.Tensor) -> tuple[NDArray[np.int64], torch.Tensor] | None:
        """What was noted last, if it was for that very gradient."""
        noted, self._noted = self._noted, None
        return noted[1:] if noted is not None and noted[0] is gradient else None

    def forget(self) -> None:
        """Let go of what was noted."""
        self._noted = None
