"""The privacy statement of a federated training, from its defence and from what one client's ledger recorded.

>>> import numpy as np
>>> from sfumato.radiomap.defences import uniform
>>> from sfumato.radiomap.partition import partition_of
>>> defence = uniform(partition_of(10_000, {}), nu=3.0, clip_norm=1.0)
>>> ledger = EventLedger()
>>> for _round in range(4):
...     ledger.record(upload_event(defence))
>>> run = Run(clients=14, uploads=4, released=48, delta=1e-5, mode="simulation", nu=3.0)
>>> stated = privacy_statement(defence, ledger, run, unit="upload")
>>> round(stated.epsilon), stated.protects_nothing
(2506, True)
>>> "protects nothing formally" in stated.to_text()
True
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from sfumato import accounting
from sfumato.checks import is_integer
from sfumato.errors import SfumatoError
from sfumato.guarantee import WEAK, AuditBound, Figure, Phase, PrivacyStatement, TuningCost
from sfumato.ledger import EventLedger
from sfumato.radiomap.adaptive import AdaptiveDefence
from sfumato.radiomap.certified import CertifiedDefence
from sfumato.radiomap.clips import WholeClip
from sfumato.radiomap.defences import Defence, Promise, StaticDefence
from sfumato.radiomap.pricing import (
    MAX_EPSILON,
    Price,
    price_of_mu,
    promise_of,
    upload_event,
    why_no_epsilon,
)

Unit = Literal["upload", "client"]
NOT_AUDITED = AuditBound(None, None, "no audit was run for this defence")
_SETTING = "local: every client clips and noises its own upload before it leaves, and nobody is trusted, not even the server"
_ADVERSARY = (
    "sees every upload of every round, may be the server, knows the models sent to the clients, the building maps, the "
    "code, all numbers of the defence and all other uploads"
)
NOT_COVERED = (
    "clip norms, budget, floor, shape and allocator: public by assumption, from public maps alone",
    "which client takes part in which round: scheduled in public",
    "the number of examples behind an upload, which is sent in the clear",
    "that a client sends nothing where its update is not finite, which is seen",
    "a client's randomness: assumed its own, fresh for every upload and kept from everybody",
    "validation and attack figures, and norms and clipped shares of the updates in a training's curves, which are measured "
    "by the holder of the data",
)


@dataclass(frozen=True)
class Run:
    """The public numbers of one training.

    Attributes:
        clients: how many there are.
        uploads: the most that one client sent.
        released: uploads of all clients together.
        delta: of the guarantee.
        mode: ``simulation`` or ``release``.
        nu: what the defence was made with, 0 where it has no noise.

    Raises:
        SfumatoError: if the numbers do not fit.
    """

    clients: int
    uploads: int
    released: int
    delta: float
    mode: str
    nu: float

    def __post_init__(self) -> None:
        """Check that the counts fit."""
        for name in ("clients", "uploads", "released"):
            value = getattr(self, name)
            if not is_integer(value) or value < 1:
                raise SfumatoError(f"{name} is {value!r}; allowed is an integer of at least 1.")
        if not self.uploads <= self.released <= self.clients * self.uploads:
            raise SfumatoError(
                f"released is {self.released}; allowed is from {self.uploads} to {self.clients * self.uploads}, clients "
                "times the most uploads of one."
            )


def privacy_statement(
    defence: Defence,
    ledger: EventLedger,
    run: Run,
    unit: Unit = "client",
    audit: AuditBound = NOT_AUDITED,
    notes: Sequence[str] = (),
) -> PrivacyStatement:
    """The complete statement; it has an epsilon only where the defence promises one.

    Args:
        defence: any of its states: the promise is the same in all.
        ledger: what the client that sent most recorded.
        run: the public numbers.
        unit: ``upload``, one of them replaced, or ``client``, all of its uploads replaced.
        audit: a measured lower bound of the same unit, or why there is none.
        notes: further remarks.

    Raises:
        SfumatoError: if the ledger holds other releases than the run's, or the statement would be incomplete.
    """
    if unit not in get_args(Unit):
        raise SfumatoError(f"unit is {unit!r}; allowed are {', '.join(get_args(Unit))}.")
    _check_ledger(defence, ledger, run)
    reason = why_no_epsilon(defence)
    promise = None if reason else promise_of(defence)
    one, all_of_them = (None, None) if reason else _prices(ledger, run)
    price = one if unit == "upload" else all_of_them
    if price is not None and not price.epsilon <= MAX_EPSILON:
        reason = (
            f"the exact epsilon is {price.epsilon:.3g}, above {MAX_EPSILON:g}, the largest that is stated: it protects "
            "nothing formally."
        )
    return PrivacyStatement(
        system="radiomap",
        method=defence.name,
        setting=_SETTING,
        adversary=_ADVERSARY,
        unit_of_privacy=_unit_text(unit, run),
        neighboring_relation="replace_one",
        n=run.released if unit == "upload" else run.clients,
        epsilon=price.epsilon if price is not None and not reason else None,
        epsilon_reason=reason,
        delta=run.delta,
        accountant="gaussian",
        figures=_figures(price, one, all_of_them, reason),
        mechanism=_mechanism(defence, promise),
        phases=_phases(defence, promise, 1 if unit == "upload" else run.uploads),
        sampling_assumed="none",
        sampling_used="none",
        empty_batches=0,
        not_covered=NOT_COVERED,
        tuning=TuningCost(0, "public_data"),
        mode=run.mode,
        audit=audit,
        notes=(*_worth(price, run), *_notes(defence), *notes),
        neighbors=f"two runs are neighbours if {_replaced(unit)} by any others that are finite",
    )


def _check_ledger(defence: Defence, ledger: EventLedger, run: Run) -> None:
    planned = EventLedger()
    for _upload in range(run.uploads):
        planned.record(upload_event(defence))
    if ledger.to_json() != planned.to_json():
        raise SfumatoError(
            f"the ledger recorded {ledger.steps} uploads; allowed are the run's {run.uploads}, each with the noise of "
            f"{defence.name}."
        )


def _prices(ledger: EventLedger, run: Run) -> tuple[Price, Price]:
    """Of one upload and of all of the client's, as recorded."""
    mu = accounting.spent(ledger.events).mu(2.0)
    one = price_of_mu(mu / math.sqrt(run.uploads), 1, run.delta)
    return one, price_of_mu(mu, run.uploads, run.delta)


def _figures(
    price: Price | None, one: Price | None, all_of_them: Price | None, reason: str
) -> tuple[Figure, ...]:
    if price is None or one is None or all_of_them is None:
        return (Figure("gaussian", None, reason),)
    found: list[Figure] = []
    for name, value, note in (
        ("gaussian", price.epsilon, f"exact, mu = {price.mu:.5g}"),
        ("zcdp", price.zcdp, f"rho = {price.rho:.4g}, optimal conversion"),
        ("gaussian, one upload", one.epsilon, f"mu = {one.mu:.5g}"),
        (
            "gaussian, all uploads of a client",
            all_of_them.epsilon,
            f"{all_of_them.uploads} of them, mu = {all_of_them.mu:.5g}",
        ),
    ):
        if math.isfinite(value):
            found.append(Figure(name, value, note))
        else:
            found.append(Figure(name, None, f"{note}: too large to be computed"))
    return tuple(found)


def _worth(price: Price | None, run: Run) -> tuple[str, ...]:
    """What a large epsilon is worth, and what a small one would take."""
    if price is None or price.epsilon <= WEAK:
        return ()
    size = "in the thousands and more" if price.epsilon >= 1000 else f"of {price.epsilon:.3g}"
    wanted = accounting.gaussian_mu(WEAK, run.delta)
    return (
        f"an epsilon {size} protects nothing formally; whether the transmitter stays hidden from the attackers that were "
        "tried is measured beside it and proven nowhere",
        f"epsilon = {WEAK:g} for the same unit would take nu = {run.nu * price.mu / wanted:.4g} instead of {run.nu:g}, "
        f"{price.mu / wanted:.4g} times the noise",
    )


def _notes(defence: Defence) -> tuple[str, ...]:
    if isinstance(defence, CertifiedDefence):
        return (
            f"priced at the least noise that the floor of {defence.floor:g} allows, whatever the rounds really had; the "
            "levels of a round are functions of the uploads released before it",
        )
    if isinstance(defence, AdaptiveDefence):
        return (
            "the levels of an upload's noise are functions of that upload, so they tell about it themselves",
        )
    return ()


def _unit_text(unit: Unit, run: Run) -> str:
    if unit == "upload":
        return "one upload, whatever update it was made of"
    return f"all uploads of one client, {run.uploads} at most, whatever updates they were made of"


def _replaced(unit: Unit) -> str:
    if unit == "upload":
        return "the update behind one upload is replaced"
    return "the updates behind all uploads of one client are replaced"


def _mechanism(defence: Defence, promise: Promise | None) -> str:
    if promise is None:
        texts = {
            "none": "none: updates are sent as they are",
            "clip_only": "clipping alone: nothing random is added",
            "targeted_uniform": "Gaussian noise on the weights that meet the transmitter channel, none on the others",
            "adaptive": "Gaussian noise of levels that are computed from the upload that they protect",
        }
        return texts.get(defence.name, "noise of no known bound")
    clipped = {
        "euclidean": "clipped as a whole to a public norm",
        "per_group": "each group clipped to a public norm of its own",
        "mahalanobis": "clipped to a public Mahalanobis norm |S^(-1/2) update|, in which distances and noise are measured",
    }[promise.norm]
    return f"Gaussian noise on the update, {clipped}, at the client"


def _phases(defence: Defence, promise: Promise | None, uploads: int) -> tuple[Phase, ...]:
    if promise is None:
        return (Phase("uploads, least noise of any group", uploads, 1.0, 0.0, _clip_norm(defence)),)
    names = (
        [f"uploads, group {name}" for name in defence.partition.names]
        if promise.norm == "per_group"
        else ["uploads"]
    )
    return tuple(
        Phase(name, uploads, 1.0, 2.0 * sigma / moved, moved / 2.0, sensitivity=moved)
        for name, moved, sigma in zip(names, promise.sensitivities, promise.sigmas, strict=True)
    )


def _clip_norm(defence: Defence) -> float | None:
    if isinstance(defence, AdaptiveDefence):
        return defence.clip_norm
    if isinstance(defence, StaticDefence) and isinstance(defence.clip, WholeClip):
        return defence.clip.norm
    return None
