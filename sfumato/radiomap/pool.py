"""Where the clients of one round compute: one after the other in this process, or side by side in others.

Whichever it is, each client's answer is the same bit by bit, since a client's randomness is keyed by its
number and the round, and every process computes with as many threads as this one.

>>> with client_pool({}, workers=1) as pool:
...     pool.respond(b"", {})
[]
"""

from __future__ import annotations

import copy
from collections.abc import Generator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from sfumato.radiomap.defences import Defence
from sfumato.radiomap.participants import Answer, RadioClient
from sfumato.radiomap.processes import answered, check_workers, process_pool

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
        workers: 1 is this process; more are new processes, as of `process_pool`.

    Raises:
        SfumatoError: if ``workers`` is no integer of at least 1.
    """
    check_workers(workers)
    if workers == 1:
        yield _Here(clients)
        return
    with process_pool(workers, _hold, (dict(clients),)) as executor:
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
        with answered("its client answered"):
            running = [
                self._executor.submit(_respond, number, defence, broadcast)
                for number, defence in defences.items()
            ]
            return [future.result() for future in running]


def _hold(clients: dict[int, RadioClient]) -> None:
    # torch hands tensors to other processes as shared memory: without a copy all would train in the same weights.
    _clients.update(copy.deepcopy(clients))


def _respond(number: int, defence: Defence, broadcast: bytes) -> Answer:
    return replace(_clients[number], defence=defence).respond(broadcast)
