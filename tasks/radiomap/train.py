"""Federated training under one defence: ``python -m tasks.train radiomap --dataset city_maps --method uniform``."""

from __future__ import annotations

from typing import Any

from tasks import command

LEVELS = ["dataset", "method", "multiplier", "seed"]
COLUMNS = ["step", "seed", "multiplier", "validation_db", "norm", "clipped_share"]
TOLERANCES = {"validation_mse": 0.01, "validation_db": 1.0, "clipped_share": 0.1, "energy_ratio": 1e-6}
PREDICTED = 4
LOW_EPSILON = 10.0
FIXED_NOISE = ("uniform", "static_optimal", "shaped")
"""Defences whose noise needs no allocator that was trained for its level."""


def run(call: command.Call) -> None:
    """Train at every noise multiplier and seed; keep the models, the curves and what one client recorded."""
    from sfumato import artifacts, records
    from sfumato.radiomap.fits import curve_rows, fit, fit_values, uploads_of
    from sfumato.radiomap.preparation import multiplier_text
    from tasks.radiomap import cells

    method = command.required(call.options, "method")
    federation = cells.federation_of(call, cells.maps_of(call))
    kept = sorted(set(call.params.radiomap.attack.rounds) - {federation.plan.rounds})
    multipliers, every = cells.multipliers_of(call, method), cells.streams_of(call)
    found: list[records.Record] = []
    rows: list[list[object]] = []
    arrays: dict[str, Any] = {}
    events: dict[str, Any] = {}
    for nu in multipliers:
        for seed, streams in every.items():
            text = multiplier_text(nu)
            model, public = cells.model_of(call, streams), cells.public_of(call, seed)
            partition = cells.partition_of(model)
            defence = cells.defence_of(call, method, nu, public, partition)
            history = fit(model, federation, public, defence, streams, kept)
            levels = {"dataset": call.options["dataset"], "method": method, "multiplier": text, "seed": seed}
            found.append(records.Record(levels, fit_values(history, defence, public, nu)))
            rows += curve_rows(history, [seed, text])
            arrays[f"{text}/seed{seed}/final"] = history.final
            for number, weights in history.weights.items():
                arrays[f"{text}/seed{seed}/round{number}"] = weights
            arrays[f"{text}/seed{seed}/predicted"] = _predicted(model, history.final, federation.validation)
            events[f"{text}/{seed}"] = _recorded(uploads_of(history), defence)
            command.progress(len(found), len(multipliers) * len(every), f"trained with {method}", every=1)
    if method in FIXED_NOISE:
        events["low_epsilon"] = _at_low_epsilon(call, method, federation, events)
    artifacts.write_npz(call.path("models", "train", ".npz"), arrays)
    artifacts.write_csv(call.path("plots", "train", ".csv"), COLUMNS, rows)
    recorded = {"system": "radiomap", "step": "train", "cells": events}
    artifacts.write_json(call.path("events", "train", ".json"), recorded)
    document = records.to_document("radiomap", "train", LEVELS, found, TOLERANCES)
    artifacts.write_json(call.path("metrics", "train", ".json"), document)


def _recorded(counts: dict[int, int], defence: Any) -> dict[str, Any]:
    """What the client that uploaded most often recorded, and how many uploads there were."""
    from sfumato.ledger import EventLedger
    from sfumato.radiomap.pricing import upload_event

    ledger = EventLedger()
    for _upload in range(max(counts.values(), default=0)):
        ledger.record(upload_event(defence))
    return {
        "events": ledger.to_json(),
        "uploads": max(counts.values(), default=0),
        "released": sum(counts.values()),
    }


def _at_low_epsilon(
    call: command.Call, method: str, federation: Any, events: dict[str, Any]
) -> dict[str, Any]:
    """What the first seed's model is worth with so much noise that a client's uploads together cost epsilon 10."""
    from sfumato.errors import SfumatoError
    from sfumato.radiomap.fits import decibels_of, fit
    from sfumato.radiomap.pricing import nu_for_epsilon
    from tasks.radiomap import cells

    seed, streams = next(iter(cells.streams_of(call).items()))
    model, public = cells.model_of(call, streams), cells.public_of(call, seed)
    partition, delta = cells.partition_of(model), call.params.privacy.delta
    # The schedule is the same under every defence of a seed.
    uploads = next(cell["uploads"] for name, cell in events.items() if name.endswith(f"/{seed}"))
    unit: Any = cells.defence_of(call, method, 1.0, public, partition)
    nu = nu_for_epsilon(unit, 1.0, LOW_EPSILON, delta, uploads)
    found: dict[str, Any] = {"multiplier": nu, "epsilon": LOW_EPSILON, "uploads": uploads}
    try:
        drowned: Any = cells.defence_of(call, method, nu, public, partition)
        found["validation_db"] = decibels_of(fit(model, federation, public, drowned, streams).validation_mse)
    except SfumatoError as error:
        found |= {"validation_db": None, "reason": str(error)}
    return found


def _predicted(model: Any, weights: Any, validation: Any) -> Any:
    """Maps that the trained model draws of the first validation windows, for the report."""
    from sfumato.radiomap.federated import all_pairs
    from sfumato.radiomap.references import predictions
    from sfumato.radiomap.unet import load_flat

    load_flat(model, weights)
    return predictions(model, validation, all_pairs(validation)[:PREDICTED])
