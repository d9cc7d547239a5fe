"""The privacy statement: what is promised to whom, what is not, and how much that is worth, in words.

>>> strength(1.0)
'strong: one record changes the odds of any conclusion by a factor of at most 2.72'
>>> round(membership_bound(epsilon=1.0, delta=1e-5, false_positive_rate=0.01), 4)
0.0272
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, cast

from sfumato.errors import SfumatoError
from sfumato.mechanisms import NEIGHBORING_RELATIONS
from sfumato.statement_text import render

Sampling = Literal["poisson", "none", "shuffle", "fixed_size", "weighted"]
SAMPLINGS: tuple[str, ...] = ("poisson", "none", "shuffle", "fixed_size", "weighted")
MODES: tuple[str, ...] = ("simulation", "release")
TUNED_ON: tuple[str, ...] = ("not_tuned", "public_data", "private_data")

STRONG = 1.0
MODERATE = 3.0
WEAK = 10.0


def strength(epsilon: float) -> str:
    """What an epsilon is worth in words, by the factor exp(epsilon) on the odds of any conclusion.

    The thresholds are 1 (a factor 2.7), 3 (20) and 10 (22,026); above 10 it is said to protect next to
    nothing.
    """
    factor = f"{math.exp(epsilon):.3g}" if epsilon < 700 else "more than 1e+304"
    if epsilon <= STRONG:
        return f"strong: one record changes the odds of any conclusion by a factor of at most {factor}"
    if epsilon <= MODERATE:
        return f"moderate: one record can change the odds of a conclusion by a factor of up to {factor}"
    if epsilon <= WEAK:
        return f"weak: one record can change the odds of a conclusion by a factor of up to {factor}"
    return (
        "epsilon is so large that it protects next to nothing: the odds of a conclusion about one "
        "record may "
        f"change by a factor of {factor}"
    )


def membership_bound(epsilon: float, delta: float, false_positive_rate: float) -> float:
    """Largest true positive rate of any membership attack at a false positive rate (Kairouz et al. 2015).

    min(e^epsilon f + delta, 1 - e^-epsilon (1 - delta - f), 1) for an (epsilon, delta) guarantee.

    Raises:
        SfumatoError: if the rate is not in [0, 1].
    """
    if not 0.0 <= false_positive_rate <= 1.0:
        raise SfumatoError(
            f"false_positive_rate is {false_positive_rate!r}; allowed is a number from 0 to 1."
        )
    first = math.exp(min(epsilon, 700.0)) * false_positive_rate + delta
    second = 1.0 - math.exp(-epsilon) * (1.0 - delta - false_positive_rate)
    return max(0.0, min(1.0, first, second))


def _need_text(field: str, value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        raise SfumatoError(f"{field} is {value!r}; the statement needs a text that is not empty.")


def _need_choice(field: str, value: object, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise SfumatoError(f"{field} is {value!r}; allowed are {', '.join(allowed)}.")


def _need_number(field: str, value: object, low: float, high: float, *, open_low: bool = False) -> None:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not good or not low <= cast(float, value) <= high or (open_low and value == low):
        raise SfumatoError(
            f"{field} is {value!r}; allowed is a finite number {'above' if open_low else 'from'} "
            f"{low:g} to {high:g}."
        )


def _need_count(field: str, value: object, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise SfumatoError(f"{field} is {value!r}; allowed is an integer of at least {low}.")


@dataclass(frozen=True)
class Phase:
    """One phase of a run, as recorded.

    Attributes:
        name: such as ``warm-up``.
        steps: recorded steps, at least 1.
        sampling_rate: in (0, 1].
        noise_multiplier: sigma over the clip norm; 0 is no noise.
        clip_norm: bound on one record's contribution; None where nothing is clipped.
        budget_share: share of epsilon that the phase alone costs, if it was set.
        sensitivity: largest distance between what two neighbours would release without noise, where that says more
            than twice the clip norm; None otherwise.
    """

    name: str
    steps: int
    sampling_rate: float
    noise_multiplier: float
    clip_norm: float | None
    budget_share: float | None = None
    sensitivity: float | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        _need_text("phases.name", self.name)
        _need_count("phases.steps", self.steps, 1)
        _need_number("phases.sampling_rate", self.sampling_rate, 0.0, 1.0, open_low=True)
        _need_number("phases.noise_multiplier", self.noise_multiplier, 0.0, 1e12)
        if self.clip_norm is not None:
            _need_number("phases.clip_norm", self.clip_norm, 0.0, 1e30, open_low=True)
        elif self.noise_multiplier > 0:
            raise SfumatoError("phases.clip_norm is missing; noise without a clip norm gives no guarantee.")
        if self.sensitivity is not None:
            _need_number("phases.sensitivity", self.sensitivity, 0.0, 1e30, open_low=True)
        if self.budget_share is not None:
            _need_number("phases.budget_share", self.budget_share, 0.0, 1.0, open_low=True)


@dataclass(frozen=True)
class Figure:
    """epsilon by another accountant, or None and why; the note says what kind of number it is."""

    name: str
    value: float | None
    note: str = ""

    def __post_init__(self) -> None:
        """Check the fields."""
        _need_text("figures.name", self.name)
        if self.value is None:
            _need_text(f"figures.{self.name}.note", self.note)
        else:
            _need_number(f"figures.{self.name}.value", self.value, 0.0, 1e30)


@dataclass(frozen=True)
class TuningCost:
    """What choosing the hyper-parameters cost.

    Attributes:
        private_trials: how many fits looked at the private data to choose, besides this one.
        tuned_on: ``not_tuned``, ``public_data`` or ``private_data``.
        accounted: whether those trials' events are in epsilon.
    """

    private_trials: int
    tuned_on: str
    accounted: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        _need_count("tuning.private_trials", self.private_trials, 0)
        _need_choice("tuning.tuned_on", self.tuned_on, TUNED_ON)
        if (self.tuned_on == "private_data") != (self.private_trials > 0):
            raise SfumatoError(
                f"tuning.private_trials is {self.private_trials} with tuned_on = {self.tuned_on!r}; "
                "private trials and tuning on private data go together."
            )
        if not isinstance(self.accounted, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SfumatoError(f"tuning.accounted is {self.accounted!r}; allowed are true and false.")


@dataclass(frozen=True)
class AuditBound:
    """A measured lower bound on epsilon, or None and the reason why there is none."""

    epsilon_lower: float | None
    confidence: float | None
    reason: str = ""

    def __post_init__(self) -> None:
        """Check the fields."""
        if self.epsilon_lower is None:
            _need_text("audit.reason", self.reason)
        else:
            _need_number("audit.epsilon_lower", self.epsilon_lower, 0.0, 1e6)
            _need_number("audit.confidence", self.confidence, 0.5, 1.0 - 1e-12, open_low=True)


@dataclass(frozen=True)
class PrivacyStatement:
    """All that a reader must know to judge one run's privacy; incomplete or contradictory ones are errors.

    Attributes:
        system: such as ``topk``.
        method: such as ``tp_topk``.
        setting: who holds the data and who adds the noise.
        adversary: what the attacker sees and knows.
        unit_of_privacy: what one record is.
        neighboring_relation: ``add_or_remove_one`` or ``replace_one``.
        n: declared public number of records.
        epsilon: upper bound by ``accountant``, None if there is no guarantee.
        epsilon_reason: why epsilon is None; empty otherwise.
        delta: of the guarantee.
        accountant: such as ``pld``.
        figures: epsilons by the other accountants, at least one.
        mechanism: such as ``Gaussian noise on clipped gradient sums``.
        phases: what was released, in order.
        sampling_assumed: by the accountant; ``none`` claims no amplification and needs rates of 1.
        sampling_used: by the run.
        empty_batches: how many steps had an empty batch and still released noise; None where that is private
            and was not counted.
        not_covered: what the guarantee leaves out, at least one text.
        tuning: the cost of tuning.
        mode: ``simulation`` or ``release``.
        audit: measured lower bound.
        target_epsilon: what was asked for, if something was.
        noise: how release noise is sampled: ``floating_point`` or ``discrete``.
        notes: further remarks.
        neighbors: what two neighbours are, in words, where the relation's own sentence says too much or too little.
    """

    system: str
    method: str
    setting: str
    adversary: str
    unit_of_privacy: str
    neighboring_relation: str
    n: int
    epsilon: float | None
    epsilon_reason: str
    delta: float
    accountant: str
    figures: tuple[Figure, ...]
    mechanism: str
    phases: tuple[Phase, ...]
    sampling_assumed: str
    sampling_used: str
    empty_batches: int | None
    not_covered: tuple[str, ...]
    tuning: TuningCost
    mode: str
    audit: AuditBound
    target_epsilon: float | None = None
    noise: str = "floating_point"
    notes: tuple[str, ...] = ()
    neighbors: str = ""

    def __post_init__(self) -> None:
        """Check every field and that they agree."""
        for field in (
            "system",
            "method",
            "setting",
            "adversary",
            "unit_of_privacy",
            "accountant",
            "mechanism",
        ):
            _need_text(field, getattr(self, field))
        _need_choice("neighboring_relation", self.neighboring_relation, NEIGHBORING_RELATIONS)
        _need_choice("sampling_assumed", self.sampling_assumed, SAMPLINGS[:2])
        _need_choice("sampling_used", self.sampling_used, SAMPLINGS)
        _need_choice("mode", self.mode, MODES)
        _need_choice("noise", self.noise, ("floating_point", "discrete"))
        _need_count("n", self.n, 1)
        if self.empty_batches is not None:
            _need_count("empty_batches", self.empty_batches, 0)
        _need_number("delta", self.delta, 0.0, 1.0, open_low=True)
        for field in ("figures", "phases", "not_covered"):
            if not getattr(self, field):
                raise SfumatoError(f"{field} is empty; the statement needs at least one entry.")
        for field in ("not_covered", "notes"):
            for text in cast("tuple[object, ...]", getattr(self, field)):
                _need_text(field, text)
        if self.target_epsilon is not None:
            _need_number("target_epsilon", self.target_epsilon, 0.0, 1e6, open_low=True)
        self._check_claim()

    def _check_claim(self) -> None:
        silent = [phase.name for phase in self.phases if phase.noise_multiplier == 0]
        if (self.empty_batches or 0) > sum(phase.steps for phase in self.phases):
            raise SfumatoError(
                f"empty_batches is {self.empty_batches}; allowed is at most the number of steps."
            )
        if self.epsilon is None:
            _need_text("epsilon_reason", self.epsilon_reason)
            return
        _need_number("epsilon", self.epsilon, 0.0, 1e6)
        if self.epsilon_reason:
            raise SfumatoError(
                f"epsilon_reason is {self.epsilon_reason!r} beside epsilon = {self.epsilon:g}; "
                "allowed is one of both."
            )
        if silent:
            raise SfumatoError(
                f"epsilon is {self.epsilon:g} while phase {silent[0]!r} adds no noise; allowed is "
                "null with a reason."
            )
        if self.sampling_assumed == "none":
            if any(phase.sampling_rate < 1 for phase in self.phases):
                raise SfumatoError(
                    "sampling_assumed is 'none' while a phase has a sampling_rate below 1; "
                    "without amplification "
                    "every phase is priced at rate 1."
                )
        elif self.sampling_used != self.sampling_assumed:
            raise SfumatoError(
                f"sampling_used is {self.sampling_used!r} while the accountant assumed "
                f"{self.sampling_assumed!r}; "
                "the amplification claim is void: price without it (sampling_assumed 'none') or "
                "leave epsilon null."
            )
        for figure in self.figures:
            lower = figure.value is not None and figure.value < self.epsilon * (1.0 - 1e-3) - 1e-9
            if figure.name == "gaussian" and lower:
                raise SfumatoError(
                    f"figures.gaussian is {figure.value} below epsilon = {self.epsilon:g}; the "
                    "exact value contradicts it."
                )

    @property
    def steps(self) -> int:
        """Recorded steps over all phases."""
        return sum(phase.steps for phase in self.phases)

    @property
    def audit_crosses_claim(self) -> bool:
        """Whether the measured lower bound is above the claimed epsilon: something is broken."""
        lower = self.audit.epsilon_lower
        return self.epsilon is not None and lower is not None and lower > self.epsilon

    @property
    def protects_nothing(self) -> bool:
        """Whether there is no guarantee, or one so weak that it protects next to nothing."""
        return self.epsilon is None or self.epsilon > WEAK

    def to_json(self) -> dict[str, object]:
        """A plain document without infinities; ``from_json`` reads it back."""
        document: dict[str, object] = {}
        for field in fields(self):
            value: object = getattr(self, field.name)
            if isinstance(value, tuple):
                value = [_plain(item) for item in cast("tuple[object, ...]", value)]
            document[field.name] = _plain(value)
        document["audit_crosses_claim"] = self.audit_crosses_claim
        document["strength"] = "none" if self.epsilon is None else strength(self.epsilon)
        return document

    @classmethod
    def from_json(cls, document: object) -> PrivacyStatement:
        """The statement of a ``to_json`` document.

        Raises:
            SfumatoError: if a field is missing, unknown, empty or contradictory, naming it.
        """
        values = _fields_of(document, cls, "statement", derived=("audit_crosses_claim", "strength"))
        for name, kind in (("figures", Figure), ("phases", Phase)):
            values[name] = tuple(kind(**_fields_of(item, kind, name)) for item in _items(values[name], name))
        for name in ("not_covered", "notes"):
            values[name] = tuple(_items(values.get(name, ()), name))
        values["tuning"] = TuningCost(**_fields_of(values["tuning"], TuningCost, "tuning"))
        values["audit"] = AuditBound(**_fields_of(values["audit"], AuditBound, "audit"))
        return cls(**values)

    def to_text(self) -> str:
        """The statement as wrapped prose for a reader who has not read the code."""
        claim = None if self.epsilon is None else strength(self.epsilon)
        bounds = [
            (rate, 1.0 if self.epsilon is None else membership_bound(self.epsilon, self.delta, rate))
            for rate in (0.001, 0.01)
        ]
        return render(self, claim, bounds)


_Loadable = type[PrivacyStatement] | type[Phase] | type[Figure] | type[TuningCost] | type[AuditBound]


def _plain(value: object) -> object:
    if isinstance(value, (Phase, Figure, TuningCost, AuditBound)):
        return dict(value.__dict__)
    return value


def _items(value: object, name: str) -> list[Any]:
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise SfumatoError(f"{name} is {value!r}; allowed is a list.")
    return list(cast("Sequence[Any]", value))


def _fields_of(
    document: object, kind: _Loadable, where: str, derived: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The document's fields, with none missing and none unknown."""
    if not isinstance(document, Mapping):
        raise SfumatoError(f"{where} is {document!r}; allowed is an object.")
    values = dict(cast("Mapping[str, object]", document))
    known = [field.name for field in fields(kind)]
    unknown = sorted(set(values) - set(known) - set(derived))
    if unknown:
        raise SfumatoError(f"{where} has the field {unknown[0]!r}; allowed are {', '.join(known)}.")
    missing = [name for name in known if name not in values]
    if missing:
        raise SfumatoError(f"{where}.{missing[0]} is missing; the statement needs it.")
    return {name: values[name] for name in known}
