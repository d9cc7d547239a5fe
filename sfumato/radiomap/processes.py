"""Work in processes beside this one, which end with it, however it ends.

>>> list(side_by_side(abs, [-1, 2], workers=1))
[1, 2]
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any, TypeVar

import torch

from sfumato.checks import is_integer
from sfumato.errors import SfumatoError

Item = TypeVar("Item")
Result = TypeVar("Result")


def check_workers(workers: int) -> None:
    """Refuse a number of processes that runs nothing.

    Raises:
        SfumatoError: if ``workers`` is no integer of at least 1.
    """
    if not is_integer(workers) or workers < 1:
        raise SfumatoError(f"workers is {workers!r}; allowed is an integer of at least 1.")


def side_by_side(function: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """The function of each item, in their order; the same for any number of processes.

    Args:
        function: of a module's top level when there are more processes than one, and what it takes and returns picklable.
        items: its arguments.
        workers: 1 is this process; more are new ones (`process_pool`).

    Yields:
        each result as soon as it and all before it are there.

    Raises:
        SfumatoError: as `check_workers`, and if a process ended before it answered.
    """
    check_workers(workers)
    if workers == 1:
        yield from map(function, items)
        return
    with process_pool(workers) as pool, answered("its work was done"):
        running = [pool.submit(function, item) for item in items]
        for future in running:
            yield future.result()


@contextmanager
def process_pool(
    workers: int, start: Callable[..., None] | None = None, arguments: tuple[Any, ...] = ()
) -> Generator[ProcessPoolExecutor]:
    """New processes with as many threads of arithmetic each as this one, until the end of the block.

    They import the script that began this one, which therefore has to do its work below
    ``if __name__ == "__main__":``.

    Args:
        workers: how many, at least 1.
        start: called in each before its first work.
        arguments: of ``start``, picklable.
    """
    context = multiprocessing.get_context("spawn")  # a fork of a process with torch's threads can hang
    given = (torch.get_num_threads(), start, arguments)
    with ProcessPoolExecutor(workers, context, _begin, given) as executor:
        yield executor


@contextmanager
def answered(what: str) -> Generator[None]:
    """Says in one sentence that a process of the pool ended.

    Args:
        what: before which answer.

    Raises:
        SfumatoError: where the pool is broken.
    """
    try:
        yield
    except BrokenProcessPool as error:
        raise SfumatoError(
            f"a worker process ended before {what}, for want of memory or because the script that began it has no "
            "`if __name__ == '__main__':`, which each worker needs to import it; allowed are workers that fit, so take fewer, "
            "and such a script."
        ) from error


def _begin(threads: int, start: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if start is not None:
        start(*arguments)


def _end_with_parent() -> None:
    """A pool's processes would outlive a parent that was killed, waiting for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
