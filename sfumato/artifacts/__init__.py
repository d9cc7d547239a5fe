"""Artifacts on disk: JSON, npz, safetensors and CSV files, written atomically and byte-stable, never pickled.

>>> import tempfile
>>> from pathlib import Path
>>> path = Path(tempfile.mkdtemp()) / "metrics.json"
>>> write_json(path, {"b": 0.5, "a": [1, None]})
>>> read_json(path)
{'a': [1, None], 'b': 0.5}

Every writer fills a hidden temporary file ``.<name>.<pid>.tmp`` in the same folder, flushes it to the
disk and renames it, so a reader sees the old file or the new one and never a part. The same content
gives the same bytes: names are sorted, zip entries carry a fixed date, floats are written in their
shortest exact form.
"""

from __future__ import annotations

from sfumato.artifacts.arrays import Array, read_metadata, read_npz, read_tensors, write_npz, write_tensors
from sfumato.artifacts.files import PathLike, atomic_file, remove_stale_temporaries, write_bytes, write_text
from sfumato.artifacts.json_files import read_json, write_json
from sfumato.artifacts.tables import read_csv, write_csv

__all__ = [
    "Array",
    "PathLike",
    "atomic_file",
    "read_csv",
    "read_json",
    "read_metadata",
    "read_npz",
    "read_tensors",
    "remove_stale_temporaries",
    "write_bytes",
    "write_csv",
    "write_json",
    "write_npz",
    "write_tensors",
    "write_text",
]
