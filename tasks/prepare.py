"""Fetch a data set, verify it, and write it as one file: ``python -m tasks.prepare --dataset mnist``."""

from __future__ import annotations

import importlib
import sys
from typing import get_args

from tasks import command, data_cells


def prepare(call: command.Call) -> None:
    """Write ``data/prepared/<dataset>.npz``."""
    from sfumato import datasets
    from sfumato.params.radiomap import MapSource

    name = data_cells.any_name(call)
    if name in get_args(MapSource):
        importlib.import_module("tasks.radiomap.prepare").run(call)
        return
    raw = call.root / "data" / "raw"
    options = {
        "cifar10": {"source": call.params.data.cifar10_source},
        "thyroid": {"target": call.params.data.thyroid_target},
        "mnist_population": {"partition": call.params.data.population_partition},
    }.get(name, {})
    datasets.fetch(name, raw, data_cells.search_dirs(call), None, **options)
    datasets.save(data_cells.prepared_path(call), datasets.prepare(name, raw, **options))


if __name__ == "__main__":
    sys.exit(command.main("prepare", {"": prepare}))
