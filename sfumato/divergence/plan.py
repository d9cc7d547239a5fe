"""The estimator as public numbers: Phi(r) = lambda (r - 1) - ln r on a ratio that a floor keeps away from zero.

>>> plan = EstimatorPlan(Floor("mix", 0.1), coefficient=1.0)
>>> phi(floored_ratio(np.array([0.0, 1.0]), plan.floor), plan.coefficient).round(3).tolist()
[1.403, 0.0]

Symbols of Section 4 of docs/papers.md: lambda is ``coefficient``, r ``ratio``, gamma and r_min are the ``level`` of the
floor, r_max its ``ceiling``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.checks import is_integer, is_number
from sfumato.errors import SfumatoError

FloorKind = Literal["mix", "clip"]
Vector = NDArray[np.float64]

MAX_COEFFICIENT = 1e6
MAX_EXAMPLES = 2**52  # counts up to here are exact in float64
_SMALLEST_LEVEL = 1e-12


def require_number(name: str, value: object, low: float, high: float, *, open_low: bool = False) -> None:
    """Refuse what is not a number of the range; ``open_low`` leaves its lower end out."""
    # Compared as it is: a whole number may be too large for a float.
    inside = is_number(value) and low <= value <= high and not (open_low and value == low)  # type: ignore[operator]
    if not inside:
        start = f"above {low:g} and up" if open_low else f"from {low:g}"
        raise SfumatoError(f"{name} is {value!r}; allowed is a number {start} to {high:g}.")


def require_count(name: str, value: object, low: int, high: int) -> None:
    """Refuse what is not an integer of the range."""
    if not is_integer(value) or not low <= int(value) <= high:  # type: ignore[call-overload]
        raise SfumatoError(f"{name} is {value!r}; allowed is an integer from {low} to {high}.")


def require_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Refuse what is none of the texts."""
    if not isinstance(value, str) or value not in allowed:
        raise SfumatoError(f"{name} is {value!r}; allowed are {', '.join(allowed)}.")


def require_between(name: str, value: object, low: float, high: float) -> None:
    """Refuse what is not a number strictly between two."""
    if not is_number(value) or not low < value < high:  # type: ignore[operator]
        end = "" if math.isinf(high) else f" and below {high:g}"
        raise SfumatoError(f"{name} is {value!r}; allowed is a number above {low:g}{end}.")


def require_stream(stream: object) -> None:
    """Refuse what draws no noise.

    Raises:
        SfumatoError: unless it is a stream of ``sfumato.rng``.
    """
    if not callable(getattr(stream, "standard_normal", None)):
        raise SfumatoError(f"stream is {type(stream).__name__}; allowed is a stream of sfumato.rng.")


def array_of(name: str, values: object) -> NDArray[Any]:
    """The values as an array of whatever numbers they are; the caller asks for shape and type.

    Raises:
        SfumatoError: if they are no array, such as lists of different lengths; no value is named.
    """
    try:
        return np.asarray(values)
    except (TypeError, ValueError, OverflowError):
        raise SfumatoError(f"{name} are no array; allowed is a vector of numbers.") from None


def require_examples(examples: object) -> None:
    """Refuse an N with which no estimate is made.

    Raises:
        SfumatoError: unless it is an integer of at least 2.
    """
    require_count("examples", examples, 2, MAX_EXAMPLES)


@dataclass(frozen=True)
class Floor:
    """What keeps the ratio away from zero, where -ln r has no bound (Section 4.2, Sensitivity).

    Attributes:
        kind: ``mix`` replaces r by (1 - gamma) r + gamma, which keeps its mean under the reference at 1, so that the
            estimate is unbiased for KL(Pi || (1 - gamma) P + gamma Pi). ``clip`` cuts r to [r_min, r_max], which
            shifts the estimate.
        level: gamma or r_min, above 0 and below 1.
        ceiling: r_max, at least 1, for ``clip`` only; None for none.

    Raises:
        SfumatoError: if a field is outside of what is allowed.
    """

    kind: FloorKind
    level: float
    ceiling: float | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        require_choice("floor kind", self.kind, get_args(FloorKind))
        if not (is_number(self.level) and _SMALLEST_LEVEL <= self.level < 1.0):
            raise SfumatoError(
                f"floor level is {self.level!r}; allowed is a number from {_SMALLEST_LEVEL:g} to below 1."
            )
        if self.ceiling is None:
            return
        if self.kind == "mix":
            raise SfumatoError(
                f"floor ceiling is {self.ceiling!r} with the kind 'mix'; allowed is None, since mixing bounds no ratio."
            )
        require_number("floor ceiling", self.ceiling, 1.0, 1e12)


@dataclass(frozen=True)
class EstimatorPlan:
    """What is computed at each public point.

    Attributes:
        floor: None only for the estimate without privacy: no noise hides one example without a floor.
        coefficient: lambda, at least 0; 1 is the estimator known as k3, 0 is -ln r.

    Raises:
        SfumatoError: if a field is outside of what is allowed.
    """

    floor: Floor | None
    coefficient: float = 0.0

    def __post_init__(self) -> None:
        """Check the fields."""
        if self.floor is not None and not isinstance(self.floor, Floor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SfumatoError(f"floor is {self.floor!r}; allowed is a Floor, or None without privacy.")
        require_number("coefficient", self.coefficient, 0.0, MAX_COEFFICIENT)

    @property
    def required_floor(self) -> Floor:
        """The floor.

        Raises:
            SfumatoError: if there is none.
        """
        if self.floor is None:
            raise SfumatoError(
                "floor is None; allowed for a private estimate is a floor of kind 'mix' or 'clip', since one example "
                "moves -ln r without bound where the population has no other one."
            )
        return self.floor

    def values(self, ratio: ArrayLike) -> Vector:
        """Phi of the floored ratio, float64 of the ratio's shape."""
        return phi(floored_ratio(ratio, self.floor), self.coefficient)


def phi(ratio: ArrayLike, coefficient: float) -> Vector:
    """Phi(r, lambda) = lambda (r - 1) - ln r (Section 4.1), convex with its minimum at r = 1 / lambda.

    Args:
        ratio: r, at least 0, any shape; at 0 the value is infinite.
        coefficient: lambda.

    Returns:
        float64 of the ratio's shape, in nats.
    """
    value = np.asarray(ratio, np.float64)
    with np.errstate(divide="ignore"):
        return np.asarray(coefficient * (value - 1.0) - np.log(value), np.float64)


def floored_ratio(ratio: ArrayLike, floor: Floor | None) -> Vector:
    """The ratio that Phi sees: mixed, clipped, or as it is where there is no floor.

    Args:
        ratio: P(x) / Pi(x), at least 0, any shape.
        floor: of the plan.

    Returns:
        float64 of the ratio's shape; at least the floor's level.
    """
    value = np.asarray(ratio, np.float64)
    if floor is None:
        return value
    if floor.kind == "mix":
        return np.asarray((1.0 - floor.level) * value + floor.level, np.float64)
    high = math.inf if floor.ceiling is None else floor.ceiling
    return np.asarray(np.clip(value, floor.level, high), np.float64)


def least_phi(coefficient: float, highest_ratio: float) -> float:
    """The smallest value of Phi on (0, highest_ratio]: at 1 / lambda, or at the end where that lies beyond."""
    at = highest_ratio if coefficient * highest_ratio <= 1.0 else 1.0 / coefficient
    return float(phi(at, coefficient))
