"""Where the clients of one round compute: one after the other in this process, or side by side in others.

Whichever it is, each client's answer is the same bit by bit, since a client's randomness is keyed by its
number and the round, and every process computes with as many threads as this one.

>>> with client_pool({}, workers=1) as pool:
...     pool.respond(b"", {})
[]
"""

from __future__ import annotations

import copy
import multiprocessing
import os
import threading
from collections.abc import Generator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import wait
from typing import Protocol

import torch

from sfumato.checks import is_integer
from sfumato.errors import SfumatoError
from sfumato.radiomap.defences import Defence
from sfumato.radiomap.participants import Answer, RadioClient

_clients: dict[int, RadioClient] = {}
"""In a worker process: the clients, as they were when it began."""


class ClientPool(Protocol):
    """Where clients compute."""

    def respond(self, broadcast: bytes, defences: Mapping[int, Defence]) -> list[Answer]:
        """The answers of the clients that are named, in that order.

        Args:
            broadcast: the server's message.
            defences: client -> its defence as it is now.
        """
        ...


@contextmanager
def client_pool(clients: Mapping[int, RadioClient], workers: int) -> Generator[ClientPool]:
    """A place where clients compute, until the end of the block.

    Args:
        clients: by their number. For more than one worker everything in them has to be picklable.
        workers: 1 is this process; more are new processes, which end with this one, however it ends. They import the
            script that began it, which therefore has to do its work below ``if __name__ == "__main__":``.

    Raises:
        SfumatoError: if ``workers`` is no integer of at least 1.
    """
    if not is_integer(workers) or workers < 1:
        raise SfumatoError(f"workers is {workers!r}; allowed is an integer of at least 1.")
    if workers == 1:
        yield _Here(clients)
        return
    context = multiprocessing.get_context("spawn")  # a fork of a process with torch's threads can hang
    given = (dict(clients), torch.get_num_threads())
    with ProcessPoolExecutor(workers, context, _start_worker, given) as executor:
        yield _Elsewhere(executor)


class _Here:
    def __init__(self, clients: Mapping[int, RadioClient]) -> None:
        self._clients = clients

    def respond(self, broadcast: bytes, defences: Mapping[int, Defence]) -> list[Answer]:
        return [
            replace(self._clients[number], defence=defence).respond(broadcast)
            for number, defence in defences.items()
        ]


class _Elsewhere:
    def __init__(self, executor: ProcessPoolExecutor) -> None:
        self._executor = executor

    def respond(self, broadcast: bytes, defences: Mapping[int, Defence]) -> list[Answer]:
        try:
            running = [
                self._executor.submit(_respond, number, defence, broadcast)
                for number, defence in defences.items()
            ]
            return [future.result() for future in running]
        except BrokenProcessPool as error:
            raise SfumatoError(
                "a worker process ended before its client answered, for want of memory or because the script that began it has no "
                "`if __name__ == '__main__':`, which each worker needs to import it; allowed are workers that fit, so take fewer, "
                "and such a script."
            ) from error


def _start_worker(clients: dict[int, RadioClient], threads: int) -> None:
    torch.set_num_threads(threads)
    # torch hands tensors to other processes as shared memory: without a copy all would train in the same weights.
    _clients.update(copy.deepcopy(clients))
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A pool's processes would outlive a parent that was killed, waiting for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _respond(number: int, defence: Defence, broadcast: bytes) -> Answer:
    return replace(_clients[number], defence=defence).respond(broadcast)
