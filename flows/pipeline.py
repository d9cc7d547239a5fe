"""The graph of dvc.yaml as DVC reads it: its stages in order, and whether one of them changed.

>>> plan = Plan((Node("prepare", ()), Node("train", ("prepare",))))
>>> plan.restricted(["prepare"]).names
('prepare',)
>>> plan.names
('prepare', 'train')

DVC's own index is the only source of the order; nothing here lists a stage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.errors import FlowError

Selector = Callable[[Sequence[str]], Iterable[str]]
"""Chooses stage names among all of them."""


@dataclass(frozen=True)
class Node:
    """A stage of the graph.

    Attributes:
        name: its address, as ``dvc repro`` takes it.
        needs: names of the stages that it depends on directly.
    """

    name: str
    needs: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """Stages in an order in which each comes after those it needs."""

    nodes: tuple[Node, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The stage names in order."""
        return tuple(node.name for node in self.nodes)

    def restricted(self, targets: Iterable[str]) -> Plan:
        """The plan of the targets and everything that they need."""
        by_name = {node.name: node for node in self.nodes}
        wanted: set[str] = set()
        queue = list(targets)
        while queue:
            name = queue.pop()
            if name not in wanted:
                wanted.add(name)
                queue.extend(by_name[name].needs)
        return Plan(tuple(node for node in self.nodes if node.name in wanted))


def is_busy(error: BaseException | str) -> bool:
    """Whether DVC refused because another process holds a file or the repository.

    >>> is_busy("ERROR: '/a/b' is busy, it is being blocked by:")
    True
    """
    text = str(error)
    return "is busy, it is being blocked by" in text or "Unable to acquire lock" in text


class Pipeline:
    """A DVC repository, asked one question at a time.

    DVC's own lock is not made for threads, so every question is asked under a lock of this object. Make
    one in the flow that uses it.
    """

    def __init__(self, root: Path) -> None:
        """Open the repository in ``root``.

        Raises:
            FlowError: if there is none.
        """
        from dvc.exceptions import DvcException
        from dvc.repo import Repo

        self.root = root
        self._guard = threading.Lock()
        try:
            self._repo: Any = Repo(str(root))
        except DvcException as error:
            raise FlowError(f"{root} holds no DVC repository ({_first_line(error)}).") from error

    def plan(self, targets: Iterable[str] | None = None, select: Selector | None = None) -> Plan:
        """The stages to run, in DVC's own post-order.

        Args:
            targets: stages, matrix groups or files, as ``dvc repro`` takes them; None for every stage.
            select: chooses further targets among the names of all stages.

        Raises:
            FlowError: if dvc.yaml is broken or a target is not in it.
        """
        from dvc.exceptions import DvcException
        from networkx import dfs_postorder_nodes

        with self._guard:
            self._repo._reset()
            try:
                graph = self._repo.index.graph
                self._repo.index.check_graph()
                order = [stage for stage in dfs_postorder_nodes(graph) if stage.cmd or stage.is_import]
                known = set(order)
                plan = Plan(
                    tuple(
                        Node(
                            self._address(stage),
                            tuple(sorted(self._address(n) for n in graph[stage] if n in known)),
                        )
                        for stage in order
                    )
                )
                if targets is None and select is None:
                    return plan
                wanted = list(select(plan.names)) if select else []
                for target in targets or ():
                    wanted.extend(self._named(target, plan, order))
            except DvcException as error:
                raise FlowError(f"the graph of dvc.yaml cannot be read: {_first_line(error)}.") from error
        return plan.restricted(wanted)

    def _named(self, target: str, plan: Plan, stages: Sequence[Any]) -> list[str]:
        """Names of the stages that a target means: a stage, a matrix group, or a file or folder of outputs."""
        if target in plan.names:
            return [target]
        found = [name for name in plan.names if name.startswith(target + "@")]
        path = self.root / target
        for stage in stages if not found else ():
            if any(path == Path(out.fs_path) or path in Path(out.fs_path).parents for out in stage.outs):
                found.append(self._address(stage))
        if not found:
            groups = ", ".join(sorted({name.partition("@")[0] for name in plan.names}))
            raise FlowError(
                f"target {target!r} is not in the graph; allowed are stages, groups ({groups}), outputs."
            )
        return found

    def _address(self, stage: Any) -> str:
        """The stage's address from the root, wherever this process runs."""
        file = Path(stage.path).relative_to(self._repo.root_dir).as_posix()
        name = getattr(stage, "name", None)
        if name is None:
            return file
        return str(name) if file == "dvc.yaml" else f"{file}:{name}"

    def changed(self, name: str) -> bool:
        """Whether a stage would run or be restored, asked under the repository's lock.

        Raises:
            dvc.exceptions.DvcException: if the lock or a file is held by another process; see `is_busy`.
        """
        from dvc.repo import lock_repo

        file, _, stage = name.rpartition(":")
        path = str(self.root / (file or "dvc.yaml"))
        with self._guard, lock_repo(self._repo):
            if name.endswith(".dvc"):
                return any(one.changed() for one in self._repo.stage.load_file(str(self.root / name)))
            return bool(self._repo.stage.load_one(path, stage).changed())

    def cache_folder(self) -> Path:
        """Folder of the cache that this repository uses."""
        return Path(self._repo.cache.local.path)

    def close(self) -> None:
        """Let go of DVC's databases."""
        self._repo.close()


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
