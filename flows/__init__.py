"""Prefect flows over the graph of dvc.yaml: order, parallelism, schedules, the mirror; no mathematics.

The environment variables of the tools that the flows start are given their defaults when the package
is imported, because Prefect reads them once, when it is imported itself.
"""

from __future__ import annotations

from flows import environment

environment.set_defaults()
