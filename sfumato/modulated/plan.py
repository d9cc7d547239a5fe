"""What a client does to its sample, and how much noise that needs: frozen values, data-free.

>>> plan = ModulatedPlan(Domain(features=5, radius=1.0, label_bound=1.0), Modulation(amplitude=0.5, frequency=2.0))
>>> calibrated = plan.calibrate(epsilon=1.0, delta=1e-5)
>>> round(calibrated.noise_std, 2), round(plan.noise_std(1.0, 1e-5, "lipschitz"), 2)
(7.46, 14.92)

Symbols of Section 1 of docs/papers.md: alpha is ``shrinkage``, lambda ``amplitude``, omega ``frequency``, m
``directions``, R ``radius``, T ``rounds``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from dp_accounting import DpEvent
from numpy.typing import NDArray

from sfumato.accounting import GaussianRule, calibrate_gaussian
from sfumato.checks import is_integer, is_number
from sfumato.errors import SfumatoError
from sfumato.mechanisms import Gaussian

Calibration = Literal["phase_marginal", "lipschitz"]
Labels = Literal["public", "private"]
Regime = Literal["same_clients", "disjoint_groups"]
Phase = Literal["fresh", "shared", "revealed"]

MAX_FEATURES = 10_000
MAX_TURNS = 1e9
_SMALLEST, _LARGEST = 1e-9, 1e9  # squares of what lies between are ordinary float32 numbers


def require_number(name: str, value: object, low: float, high: float, *, open_low: bool = False) -> None:
    """Refuse what is not a number of the range; ``open_low`` leaves its lower end out."""
    inside = is_number(value) and low <= float(value) <= high and not (open_low and float(value) == low)  # type: ignore[arg-type]
    if not inside:
        allowed = (
            f"a number {'above' if open_low else 'from'} {low:g} {'and up ' if open_low else ''}to {high:g}"
        )
        raise SfumatoError(f"{name} is {value!r}; allowed is {allowed}.")


def require_count(name: str, value: object, low: int, high: int) -> None:
    """Refuse what is not an integer of the range."""
    if not is_integer(value) or not low <= int(value) <= high:  # type: ignore[call-overload]
        raise SfumatoError(f"{name} is {value!r}; allowed is an integer from {low} to {high}.")


def require_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Refuse what is none of the texts."""
    if value not in allowed:
        raise SfumatoError(f"{name} is {value!r}; allowed are {', '.join(allowed)}.")


def check_target(epsilon: object, delta: object) -> None:
    """Refuse a budget that is not one, before anything is calibrated to it.

    Raises:
        SfumatoError: unless epsilon is None or a number above 0, and delta a number above 0 and below 1.
    """
    if epsilon is not None and not (is_number(epsilon) and 0.0 < epsilon < math.inf):  # type: ignore[operator]
        raise SfumatoError(f"epsilon is {epsilon!r}; allowed is a finite number above 0.")
    if not (is_number(delta) and 0.0 < delta < 1.0):  # type: ignore[operator]
        raise SfumatoError(f"delta is {delta!r}; allowed is a number above 0 and below 1.")


@dataclass(frozen=True)
class Domain:
    """Where a client's sample lies, by public agreement; each client clips itself into it.

    Attributes:
        features: n, the number of features that a client sends; a public intercept is not among them.
        radius: R, the bound on the Euclidean norm of a sample's features.
        label_bound: the bound on the absolute value of a label.

    Raises:
        SfumatoError: if a field is outside of what is allowed.
    """

    features: int
    radius: float
    label_bound: float = 1.0

    def __post_init__(self) -> None:
        """Check the fields."""
        require_count("features", self.features, 1, MAX_FEATURES)
        require_number("radius", self.radius, _SMALLEST, _LARGEST)
        require_number("label_bound", self.label_bound, _SMALLEST, _LARGEST)

    @property
    def diameter(self) -> float:
        """2 R, the largest distance between the features of two samples."""
        return 2.0 * self.radius


@dataclass(frozen=True)
class Modulation:
    """g(x) = (1 - alpha) x + (lambda / sqrt(m)) sum_k cos(omega <x, v_k> + phi_k) v_k (Section 1.2).

    The amplitude per direction is lambda / sqrt(m): only then is the Lipschitz constant |1 - alpha| + lambda
    omega / sqrt(m), and the energy of the modulation stays lambda^2 / 2 for every m (Section 1.3 b).

    Attributes:
        shrinkage: alpha, from 0 to below 1; at 1 nothing of a sample would be sent.
        amplitude: lambda, at least 0; 0 sends the shrunk sample as it is.
        frequency: omega, at least 0.
        directions: m, at least 1 and below the number of features.
        phase: ``fresh`` is one uniform phase on the full circle per direction, client and round, kept by the
            client. ``shared`` (one phase for all directions) and ``revealed`` (sent along) are descriptions of
            other protocols; no estimator here is right for them.

    Raises:
        SfumatoError: if a field is outside of what is allowed.
    """

    shrinkage: float = 0.0
    amplitude: float = 0.0
    frequency: float = 1.0
    directions: int = 1
    phase: Phase = "fresh"

    def __post_init__(self) -> None:
        """Check the fields."""
        if not is_number(self.shrinkage) or not 0.0 <= self.shrinkage < 1.0:
            raise SfumatoError(
                f"shrinkage is {self.shrinkage!r}; allowed is a number from 0 to below 1, since at 1 a message holds "
                "nothing of the sample."
            )
        require_number("amplitude", self.amplitude, 0.0, _LARGEST)
        require_number("frequency", self.frequency, 0.0, _LARGEST)
        require_count("directions", self.directions, 1, MAX_FEATURES)
        require_choice("phase", self.phase, get_args(Phase))

    @property
    def scale(self) -> float:
        """1 - alpha, which the server divides by."""
        return 1.0 - self.shrinkage

    @property
    def direction_amplitude(self) -> float:
        """A = lambda / sqrt(m), the amplitude along one direction."""
        return self.amplitude / math.sqrt(self.directions)

    @property
    def lipschitz(self) -> float:
        """|1 - alpha| + lambda omega / sqrt(m), the Lipschitz constant at fixed phases (Section 1.3 a)."""
        return self.scale + self.direction_amplitude * self.frequency

    def expansion(self, calibration: Calibration) -> float:
        """L, how much farther apart two messages can lie than two samples, as the calibration sees it."""
        return self.lipschitz if calibration == "lipschitz" else self.scale

    def noise_covariance(self, directions: NDArray[np.float64], noise_std: float) -> NDArray[np.float64]:
        """Omega = (lambda^2 / 2m) V V^T + sigma^2 I of a message's noise, (n, n).

        Args:
            directions: V, (n, m) with orthonormal columns.
            noise_std: sigma.
        """
        spread = self.direction_amplitude**2 / 2.0 * (directions @ directions.T)
        return spread + noise_std**2 * np.eye(len(directions))


@dataclass(frozen=True)
class ModulatedPlan:
    """A protocol before its noise is known.

    Attributes:
        domain: the public bounds.
        modulation: what a client does before it adds noise.
        calibration: ``phase_marginal`` (L = |1 - alpha|) rests on the phases being fresh, uniform on the full
            circle and never sent: then the cosine is independent of the sample (Section 1.3 a'). ``lipschitz``
            is the paper's, valid for any phases that do not depend on the sample.
        rule: how (epsilon, delta) becomes noise: ``exact``, ``zcdp`` (optimal conversion) or ``bun_steinke``.
        labels: ``public`` sends labels in the clear, so nothing is promised for what they tell about the
            features; ``private`` releases features and label jointly.
        label_weight: w, a private label is sent as w y plus noise, beside the features.
        rounds: T, how often the server asks.
        regime: ``same_clients`` answer in every round, so their releases compose; ``disjoint_groups`` answer
            once each, in the round of their group.
        intercept: whether the model has one; it is a public 1, so it is neither sent nor noised.

    Raises:
        SfumatoError: if a field is outside of what is allowed, there are as many directions as features, or the
            phase-marginal calibration is asked for with phases that are not fresh.
    """

    domain: Domain
    modulation: Modulation = Modulation()
    calibration: Calibration = "phase_marginal"
    rule: GaussianRule = "exact"
    labels: Labels = "public"
    label_weight: float = 1.0
    rounds: int = 1
    regime: Regime = "same_clients"
    intercept: bool = True

    def __post_init__(self) -> None:
        """Check the fields and that they agree."""
        require_choice("calibration", self.calibration, get_args(Calibration))
        require_choice("rule", self.rule, get_args(GaussianRule))
        require_choice("labels", self.labels, get_args(Labels))
        require_choice("regime", self.regime, get_args(Regime))
        require_number("label_weight", self.label_weight, 0.0, _LARGEST, open_low=True)
        require_count("rounds", self.rounds, 1, 1_000_000)
        turns = self.modulation.frequency * self.domain.radius
        if turns > MAX_TURNS:
            raise SfumatoError(
                f"frequency times radius is {turns:g}; allowed is up to {MAX_TURNS:g}, beyond which rounding would swallow "
                "the phase that hides the sample."
            )
        features, directions = self.domain.features, self.modulation.directions
        if self.modulation.amplitude > 0 and directions >= features:
            raise SfumatoError(
                f"directions is {directions} for {features} features; allowed are fewer directions than features, since "
                "they are orthogonal to the coefficients."
            )
        if self.calibration == "phase_marginal" and self.modulation.phase != "fresh":
            raise SfumatoError(
                f"phase is {self.modulation.phase!r} with the phase-marginal calibration; allowed is 'fresh', since a "
                "shared or revealed phase lets the cosine tell about the sample."
            )

    @property
    def releases(self) -> int:
        """How many messages one client sends."""
        return self.rounds if self.regime == "same_clients" else 1

    @property
    def neighbor_distance(self) -> float:
        """The largest distance between two un-noised messages, by the plan's calibration."""
        return self.sensitivity(self.calibration)

    def sensitivity(self, calibration: Calibration) -> float:
        """sqrt((L 2R)^2 + (2 w B)^2), the second term with private labels only (Section 1.3, Labels).

        Args:
            calibration: whose L is taken.
        """
        features = self.modulation.expansion(calibration) * self.domain.diameter
        if self.labels == "public":
            return features
        return math.hypot(features, 2.0 * self.label_weight * self.domain.label_bound)

    def noise_std(self, epsilon: float, delta: float, calibration: Calibration | None = None) -> float:
        """Sigma per coordinate of a message.

        Args:
            epsilon: the budget of one client over all of its releases.
            delta: likewise.
            calibration: another than the plan's, to compare with.

        Raises:
            AccountingError: if epsilon or delta is outside of what can be priced.
        """
        multiplier = calibrate_gaussian(epsilon, delta, self.rule, self.releases)
        return multiplier * self.sensitivity(calibration or self.calibration)

    def calibrate(self, epsilon: float | None, delta: float) -> CalibratedModulation:
        """The plan with the noise that makes each client's messages (epsilon, delta)-differentially private.

        Guarantee:
            Local differential privacy: whatever the server or anybody who sees all messages concludes about one
            client, replacing that client's sample by any other of the domain changes its odds by at most
            e^epsilon, up to delta, over all of the client's releases. With public labels this is for the
            features given the label. It needs phases and noise that the client draws anew and keeps.

        Args:
            epsilon: the budget; None for no noise and no guarantee.
            delta: above 0 and below 1.

        Raises:
            AccountingError: if epsilon or delta is outside of what can be priced.
        """
        check_target(epsilon, delta)
        if epsilon is None:
            return CalibratedModulation(self, None, delta, 0.0)
        return CalibratedModulation(
            self, float(epsilon), delta, calibrate_gaussian(epsilon, delta, self.rule, self.releases)
        )


@dataclass(frozen=True)
class CalibratedModulation:
    """A plan and the noise that meets its budget.

    Attributes:
        plan: what was calibrated.
        epsilon: the target; None without privacy.
        delta: of the target.
        noise_multiplier: sigma over the largest distance between two un-noised messages.
    """

    plan: ModulatedPlan
    epsilon: float | None
    delta: float
    noise_multiplier: float

    @property
    def noise_std(self) -> float:
        """Sigma per coordinate of a message, in the messages' units."""
        return self.noise_multiplier * self.plan.neighbor_distance

    @property
    def label_noise_std(self) -> float:
        """Standard deviation of a received label around the client's, 0 with public labels."""
        return self.noise_std / self.plan.label_weight if self.plan.labels == "private" else 0.0

    @property
    def events(self) -> list[DpEvent]:
        """One client's intended releases; accounting prices the recorded ones."""
        return [self.release_event] * self.plan.releases

    @property
    def release_event(self) -> DpEvent:
        """What one message costs its client, to be priced under replace-one."""
        return Gaussian(self.plan.neighbor_distance, self.noise_multiplier, "replace_one").event

    def noise_covariance(self, directions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Omega of a message's features, (n, n)."""
        return self.plan.modulation.noise_covariance(directions, self.noise_std)
