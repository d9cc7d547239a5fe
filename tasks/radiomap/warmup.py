"""What is made on public maps: ``python -m tasks.warmup radiomap --dataset city_maps``."""

from __future__ import annotations

from typing import Any

from tasks import command

LEVELS = ["dataset", "seed"]
TOLERANCES = {
    "validation_mse": 0.01,
    "validation_db": 1.0,
    "clip_norm": 0.1,
    "mean_map_db": 0.1,
    "distance_only_db": 0.1,
}


def run(call: command.Call) -> None:
    """For every seed: a warm start, clip norms, the noise's shape and the allocators, from public maps alone."""
    from sfumato import artifacts, records
    from sfumato.radiomap.preparation import prepare_public
    from tasks.radiomap import cells

    maps = cells.maps_of(call)
    radiomap = call.params.radiomap
    shadow, validation = (cells.part_of(call, maps, part) for part in ("shadow", "validation"))
    arrays: dict[str, Any] = {}
    found: list[records.Record] = []
    every = cells.streams_of(call)
    for number, (seed, streams) in enumerate(every.items()):
        model = cells.model_of(call, streams)
        partition = cells.partition_of(model)
        prepared = prepare_public(
            model,
            partition,
            shadow,
            cells.local_of(call),
            cells.warm_of(call),
            cells.public_settings(call),
            radiomap.grid.multipliers,
            streams,
        )
        arrays |= {f"seed{seed}/{name}": value for name, value in prepared.public.arrays().items()}
        levels = {"dataset": call.options["dataset"], "seed": seed}
        values = _values(model, partition, prepared, shadow, validation)
        found.append(records.Record(levels, values))
        command.progress(number + 1, len(every), "public part", every=1)
    artifacts.write_npz(call.path("models", "warmup", ".npz"), arrays)
    document = records.to_document("radiomap", "warmup", LEVELS, found, TOLERANCES)
    artifacts.write_json(call.path("metrics", "warmup", ".json"), document)


def _values(model: Any, partition: Any, prepared: Any, shadow: Any, validation: Any) -> dict[str, Any]:
    from sfumato.radiomap.federated import all_pairs
    from sfumato.radiomap.fits import decibels_of
    from sfumato.radiomap.references import MeanMap, PathLoss, reference_mse, validation_mse
    from sfumato.radiomap.unet import load_flat

    load_flat(model, prepared.public.weights)
    mse, pairs = validation_mse(model, validation), all_pairs(validation)
    ours = all_pairs(shadow)
    values: dict[str, Any] = {
        "validation_mse": mse,
        "validation_db": decibels_of(mse),
        "mean_map_db": decibels_of(reference_mse(MeanMap.fit(shadow, ours), validation, pairs)),
        "distance_only_db": decibels_of(reference_mse(PathLoss.fit(shadow, ours), validation, pairs)),
        "clip_norm": prepared.public.clip_norm,
        "dimension": partition.dimension,
        "sensitive": int(partition.sizes[partition.sensitive].sum()),
        "groups": partition.count,
    }
    for kind in ("adaptive", "certified"):
        text = max((text for own, text in prepared.trained if own == kind), key=float)
        trained, prefix = prepared.trained[kind, text], "" if kind == "adaptive" else "certified_"
        values[f"{prefix}allocator_loss_start"] = trained.objective[0]
        values[f"{prefix}allocator_loss_end"] = trained.objective[-1]
        values[f"{prefix}proxy_rmse_start"], values[f"{prefix}proxy_rmse_end"] = (
            trained.proxy_rmse[0],
            trained.proxy_rmse[-1],
        )
        values[f"{prefix}largest_share"] = float(prepared.shares[kind, text].max())
    return values
