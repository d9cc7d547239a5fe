"""The moments of one release without the messages: the same distribution, at a cost that K hardly enters.

>>> import numpy as np
>>> from sfumato.modulated.plan import Domain, ModulatedPlan
>>> from sfumato.rng import Streams
>>> data = AggregateData.of(np.array([[0.6, 0.0], [0.0, 0.8], [0.3, 0.3]]), np.array([1.0, 0.5, 0.2]), Domain(2, 1.0))
>>> calibrated = ModulatedPlan(Domain(2, 1.0)).calibrate(1.0, 1e-5)
>>> moments = data.moments(calibrated, np.zeros((2, 0)), data.phases(0, Streams(0).stream("phases")), Streams(0).stream("z"))
>>> moments.clients, moments.outer.shape
(3, (2, 2))

For sweeps: one client's noise is never drawn, only the sums that a server would see. Given the samples, the labels
and the cosines, collected in W = [1, y, X, C] (K x q), the sums of Gaussian noise Z (K x n) are exactly
Z^T W ~ N(0, W^T W) in every row and Z^T Z = G G^T + Wishart(K - rank W), with Z^T W = G A for the rank-r root A of
W^T W. The cosines' phases are fresh and uniform, so C is independent of everything and does not depend on omega
(Section 1.3 a' of docs/papers.md); its K m numbers are drawn once and serve every sigma.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import SfumatoError
from sfumato.modulated.client import BLOCK, clip_samples
from sfumato.modulated.plan import CalibratedModulation, Domain
from sfumato.modulated.server import Moments, Vector
from sfumato.rng import RandomStream


@dataclass(frozen=True, eq=False)
class PhaseMoments:
    """Sums over clients of products with the modulation's cosines C (K, m).

    Attributes:
        ones: (m,) sum of C.
        labels: (m,) sum of y C.
        features: (m, n) C^T X.
        squares: (m, m) C^T C.
    """

    ones: Vector
    labels: Vector
    features: Vector
    squares: Vector


@dataclass(frozen=True, eq=False)
class AggregateData:
    """Sums over clients of products of 1, labels and clipped features: all that a release's law depends on.

    Attributes:
        features: (K, n), clipped; faulty samples are zeros.
        labels: (K,), clipped likewise.
        gram: (2 + n, 2 + n), W^T W of W = [1, y, X].
        faulty: how many samples were not finite.
    """

    features: NDArray[Any]
    labels: Vector
    gram: Vector
    faulty: int

    @classmethod
    def of(cls, features: NDArray[Any], labels: NDArray[Any], domain: Domain) -> AggregateData:
        """Clip as a client does, and add up.

        Args:
            features: (K, n) float32 or float64.
            labels: (K,).
            domain: the public bounds.

        Raises:
            SfumatoError: if the shapes do not fit the domain.
        """
        if features.ndim != 2 or features.shape[1] != domain.features or labels.shape != (len(features),):
            raise SfumatoError(
                f"features and labels have shapes {features.shape} and {labels.shape}; allowed are "
                f"(clients, {domain.features}) and (clients,)."
            )
        if str(features.dtype) not in ("float32", "float64"):
            raise SfumatoError(f"features has dtype {features.dtype}; allowed are float32 and float64.")
        clipped, own, faulty = clip_samples(features, labels, domain)
        gram = np.zeros((domain.features + 2, domain.features + 2))
        for start in range(0, len(features), BLOCK):
            rows = slice(start, start + BLOCK)
            part = np.column_stack([np.ones(len(own[rows])), own[rows], clipped[rows]]).astype(np.float64)
            gram += part.T @ part
        return cls(clipped, own, gram, int(faulty.sum()))

    def phases(self, directions: int, stream: RandomStream) -> PhaseMoments:
        """Draw the cosines of one release: a fresh uniform phase per client and direction.

        Args:
            directions: m; 0 where nothing is modulated.
            stream: the clients' phases.
        """
        size = self.features.shape[1]
        found = PhaseMoments(
            np.zeros(directions),
            np.zeros(directions),
            np.zeros((directions, size)),
            np.zeros((directions, directions)),
        )
        for start in range(0, len(self.labels) if directions else 0, BLOCK):
            rows = slice(start, start + BLOCK)
            cosines = np.cos(2.0 * np.pi * stream.random((len(self.labels[rows]), directions)))
            found.ones[:] += cosines.sum(axis=0)
            found.labels[:] += self.labels[rows] @ cosines
            found.features[:] += cosines.T @ self.features[rows]
            found.squares[:] += cosines.T @ cosines
        return found

    def moments(
        self,
        calibrated: CalibratedModulation,
        directions: Vector,
        phases: PhaseMoments,
        stream: RandomStream,
    ) -> Moments:
        """The moments of a release, distributed exactly as those of the messages.

        Args:
            calibrated: the public protocol; its sigma is the only number that a re-draw changes.
            directions: V, (n, m).
            phases: the cosines' sums.
            stream: the Gaussian noise.

        Raises:
            SfumatoError: if there is no client, or the directions do not fit the phases.
        """
        plan, clients = calibrated.plan, len(self.labels)
        if not clients:
            raise SfumatoError("there are no clients; allowed is at least one.")
        if directions.shape != (plan.domain.features, len(phases.ones)):
            raise SfumatoError(
                f"directions has shape {directions.shape}; allowed is ({plan.domain.features}, {len(phases.ones)}), as many "
                "as there are phases."
            )
        scale, sigma = plan.modulation.scale, calibrated.noise_std
        size = plan.domain.features
        noisy = size + int(plan.labels == "private")
        gram = self._with_phases(phases)
        cross, square = _gaussian_sums(gram, clients, noisy, stream)
        # A message's features are U + sigma Z with U = scale X + a C V^T, its label is y + sigma' z.
        mix = np.zeros((len(gram), size))
        mix[2 : 2 + size] = scale * np.eye(size)
        mix[2 + size :] = plan.modulation.direction_amplitude * directions.T
        clean = mix.T @ gram @ mix
        sideways = sigma * cross[:size] @ mix
        outer = clean + sideways + sideways.T + sigma**2 * square[:size, :size]
        features = mix.T @ gram[:, 0] + sigma * cross[:size, 0]
        own = mix.T @ gram[:, 1] + sigma * cross[:size, 1]
        label, label_square = float(gram[0, 1]), float(gram[1, 1])
        if plan.labels == "private":
            spread = calibrated.label_noise_std
            own = own + spread * (mix.T @ cross[size] + sigma * square[:size, size])
            label_square += float(2.0 * spread * cross[size, 1] + spread**2 * square[size, size])
            label += float(spread * cross[size, 0])
        return Moments(
            clients,
            features / clients,
            outer / clients,
            own / clients,
            label / clients,
            label_square / clients,
            self.faulty,
        )

    def _with_phases(self, phases: PhaseMoments) -> Vector:
        """W^T W of W = [1, y, X, C]."""
        sides = np.column_stack([phases.ones, phases.labels, phases.features])
        return np.block([[self.gram, sides.T], [sides, phases.squares]])


def _gaussian_sums(gram: Vector, clients: int, size: int, stream: RandomStream) -> tuple[Vector, Vector]:
    """(Z^T W, Z^T Z) of K x n standard normals Z, given W^T W."""
    values, vectors = np.linalg.eigh(gram)
    kept = values > values[-1] * len(values) * np.finfo(np.float64).eps
    kept &= np.arange(len(values)) >= len(values) - clients  # no more directions than clients
    root = np.sqrt(values[kept])[:, None] * vectors[:, kept].T
    along = stream.standard_normal((size, int(kept.sum())))
    square = along @ along.T + standard_wishart(size, clients - int(kept.sum()), stream)
    return along @ root, square


def standard_wishart(size: int, freedom: int, stream: RandomStream) -> Vector:
    """Z^T Z of a (freedom, size) standard normal Z, by Bartlett's decomposition where that is cheaper.

    >>> from sfumato.rng import Streams
    >>> standard_wishart(2, 0, Streams(0).stream("noise")).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    from scipy.special import gammaincinv

    if freedom <= size + 1:
        rows = stream.standard_normal((freedom, size))
        return rows.T @ rows
    lower = np.tril(stream.standard_normal((size, size)), -1)
    halves = (freedom - np.arange(size)) / 2.0
    np.fill_diagonal(lower, np.sqrt(2.0 * gammaincinv(halves, stream.random(size))))
    return lower @ lower.T
