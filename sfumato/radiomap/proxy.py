"""A proxy attacker in closed form: what a noise-aware ridge regression of positions would still find.

>>> import numpy as np
>>> from sfumato.radiomap.partition import partition_of
>>> random = np.random.default_rng(0)
>>> positions = random.uniform(0, 100, (60, 2))
>>> uploads = np.hstack([positions / 100, random.normal(size=(60, 2))])
>>> proxy = proxy_attacker(uploads, positions, np.arange(60) % 6, partition_of(4, {"leak": np.array([0, 1])}))
>>> open_leak, shut_leak = ([0.0, 1.0], [1.0, 0.0])
>>> [proxy.rmse(np.array(variances)) < 0.5 * proxy.constant_rmse for variances in (open_leak, shut_leak)]
[True, False]

With uploads x + noise, noise variances v_ig of upload i and group g, and group Gram matrices K_g, the attacker weighs
group g by a_g = 1 / (s_g^2 + v_g), where s_g^2 is the uploads' own variance per coordinate and v_g the mean of v_ig. Its
kernel's expectation is sum_g a_g (K_g + diag(d_g v_ig)), so alpha = (that + ridge)^-1 (y - mean y) on the maps it
is trained on. On the maps held out the expected squared error over all noise is then exact for that alpha:

    |y - mean - sum_g a_g K_g alpha|^2 + sum_g v_g |w_g|^2 + sum_g a_g^2 |x_g|^2 sum_i alpha_i^2 v_ig,
    |w_g|^2 = a_g^2 (alpha^T K_g alpha + d_g sum_i alpha_i^2 v_ig),

and differentiable in the variances. No sample is drawn, so an allocator can descend on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.errors import SfumatoError
from sfumato.radiomap.allocation import FloatArray
from sfumato.radiomap.partition import Partition

FOLDS: Final = 3
"""Groups of maps that are held out in turn; at least as many are needed."""

# The last is so large that the attacker all but answers the mean: no noise makes it worse than that.
RIDGES: tuple[float, ...] = (1e-3, 1e-1, 1e2)


@dataclass(frozen=True, eq=False)
class Fold:
    """Shadow uploads to train on (m of them) and, on other maps, to judge by (t of them).

    Attributes:
        train: (m,) row numbers.
        test: (t,) row numbers.
        own: (G, m, m) Gram matrices of the training uploads.
        seen: (G, t, m) of the held-out ones with them.
        squares: (G, t) squared norms of the held-out ones.
    """

    train: Tensor
    test: Tensor
    own: Tensor
    seen: Tensor
    squares: Tensor


@dataclass(frozen=True, eq=False)
class ProxyAttacker:
    """Group Gram matrices of n shadow uploads, less their mean, and where their transmitters were.

    Attributes:
        positions: (n, 2) float64, metres.
        sizes: (G,) float64, d_g.
        folds: no map is in both halves of one.
        ridges: over the mean of the kernel's diagonal; the best of them counts.
    """

    positions: Tensor
    sizes: Tensor
    folds: tuple[Fold, ...]
    ridges: tuple[float, ...]

    @property
    def count(self) -> int:
        """The number of shadow uploads n."""
        return len(self.positions)

    def error(self, variances: Tensor) -> Tensor:
        """Expected squared error in metres^2 on held-out maps, a scalar with gradient.

        Args:
            variances: (n, G) float64, of the noise per coordinate, of every upload.
        """
        by_fold = [self._fold(variances, fold) for fold in self.folds]
        return torch.cat(by_fold, dim=1).mean(dim=1).min()

    def rmse(self, variances: NDArray[Any]) -> float:
        """Root of the expected squared error, metres, at variances (G,) that all uploads share."""
        shared = torch.as_tensor(np.asarray(variances, np.float64)).expand(self.count, -1)
        return math.sqrt(float(self.error(shared)))

    @property
    def constant_rmse(self) -> float:
        """Of the predictor that answers the training positions' mean, metres."""
        parts = [
            (self.positions[fold.test] - self.positions[fold.train].mean(0)).square().sum(1)
            for fold in self.folds
        ]
        return math.sqrt(float(torch.cat(parts).mean()))

    def _fold(self, variances: Tensor, fold: Fold) -> Tensor:
        """(ridges, t) expected squared errors of the held-out uploads of one fold."""
        noise, on_test = variances[fold.train], variances[fold.test]
        signal = fold.own.diagonal(dim1=1, dim2=2).mean(1) / self.sizes
        weights = 1.0 / (signal + noise.mean(0) + 1e-30)
        kernel = torch.einsum("g,gij->ij", weights, fold.own)
        cross = torch.einsum("g,gij->ij", weights, fold.seen)
        diagonal = noise @ (weights * self.sizes)
        level = (kernel.diagonal() + diagonal).mean()
        center = self.positions[fold.train].mean(0)
        known, wanted = self.positions[fold.train] - center, self.positions[fold.test] - center
        errors: list[Tensor] = []
        for ridge in self.ridges:
            alpha = _solve(kernel + torch.diag(diagonal + ridge * level + 1e-12), known)
            missed = (wanted - cross @ alpha).square().sum(1)
            of_noise = alpha.square().sum(1) @ noise  # (G,) sum_i alpha_i^2 v_ig
            quadratic = ((fold.own @ alpha) * alpha).sum((1, 2))
            lengths = weights.square() * (quadratic + self.sizes * of_noise)  # (G,) |w_g|^2
            errors.append(missed + on_test @ lengths + (weights.square() * of_noise) @ fold.squares)
        return torch.stack(errors)


def _solve(matrix: Tensor, right: Tensor) -> Tensor:
    """The solution of a positive definite system."""
    cholesky = cast("Callable[[Tensor], Tensor]", torch.linalg.cholesky)  # pyright: ignore[reportUnknownMemberType]
    return torch.cholesky_solve(right, cholesky(matrix))


def proxy_attacker(
    uploads: NDArray[Any],
    positions: NDArray[Any],
    maps: NDArray[Any],
    partition: Partition,
    folds: int = FOLDS,
    ridges: tuple[float, ...] = RIDGES,
) -> ProxyAttacker:
    """The proxy on shadow uploads, which are clipped and not noised.

    Args:
        uploads: (n, d), on public maps.
        positions: (n, 2) metres.
        maps: (n,) which map each upload was made on; a map is held out as a whole. Where an upload stands for
            several maps, a number that is the same for all uploads which share one.
        partition: the groups.
        folds: how many, at least 2; maps go to folds in turn, in the order of their numbers.
        ridges: over the mean of the kernel's diagonal, above 0.

    Raises:
        SfumatoError: if a shape does not fit, a number is not finite or there are fewer maps than folds.
    """
    count = len(uploads)
    if (
        uploads.shape != (count, partition.dimension)
        or positions.shape != (count, 2)
        or maps.shape != (count,)
    ):
        raise SfumatoError(
            f"uploads, positions and maps have shapes {uploads.shape}, {positions.shape} and {maps.shape}; allowed are "
            f"(n, {partition.dimension}), (n, 2) and (n,)."
        )
    numbers = np.unique(maps)
    if not 2 <= folds <= len(numbers):
        raise SfumatoError(
            f"folds is {folds} with {len(numbers)} maps; allowed is from 2 to the number of maps."
        )
    if not ridges or not all(0.0 < ridge < math.inf for ridge in ridges):
        raise SfumatoError(f"ridges is {ridges!r}; allowed are finite numbers above 0, at least one.")
    values = np.asarray(uploads, np.float64)
    values = values - values.mean(axis=0)
    grams = np.stack([_gram(values[:, group.index]) for group in partition.groups])
    if not bool(np.isfinite(grams).all()) or not bool(np.isfinite(positions).all()):
        raise SfumatoError("a shadow upload or position is not finite; allowed are finite numbers.")
    fold = np.searchsorted(numbers, maps) % folds
    halves = [_fold_of(grams, fold != number) for number in range(folds)]
    sizes = torch.as_tensor(partition.sizes.astype(np.float64))
    return ProxyAttacker(torch.as_tensor(np.array(positions, np.float64)), sizes, tuple(halves), ridges)


def _fold_of(grams: FloatArray, trained_on: NDArray[np.bool_]) -> Fold:
    train, test = np.flatnonzero(trained_on), np.flatnonzero(~trained_on)
    squares = np.diagonal(grams, axis1=1, axis2=2)[:, test]
    arrays = (train, test, grams[:, train][:, :, train], grams[:, test][:, :, train], squares)
    return Fold(*(torch.as_tensor(np.ascontiguousarray(array)) for array in arrays))


def _gram(values: FloatArray) -> FloatArray:
    return values @ values.T
