"""Clients in other processes answer as they would here; a worker that ends is said."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from typing import Any

import pytest

from sfumato.errors import SfumatoError
from sfumato.radiomap.messages import Broadcast
from sfumato.radiomap.pool import _Elsewhere, client_pool
from sfumato.radiomap.unet import flat
from tests.sfumato.radiomap.learning import Halving, some_clients

SESSION = bytes(16)


class Ending(Halving):
    """A stand-in whose process ends instead of defending."""

    def protect(self, delta: Any, round: int, stream: Any) -> Any:
        os._exit(3)


@pytest.mark.slow
def test_workers_answer_in_the_order_asked_with_the_bits_of_this_process() -> None:
    model, clients = some_clients(3, rounds=1)
    broadcast = Broadcast(SESSION, 0, "joint", flat(model)).encode()
    by_number = {client.identity: client for client in clients}
    defences = {number: by_number[number].defence for number in (2, 0, 1)}
    with client_pool(by_number, 1) as here, client_pool(by_number, 2) as elsewhere:
        ours, theirs = here.respond(broadcast, defences), elsewhere.respond(broadcast, defences)
    assert [answer.message for answer in ours] == [answer.message for answer in theirs]


@pytest.mark.slow
def test_a_worker_that_ends_is_one_sentence() -> None:
    model, clients = some_clients(1, rounds=1)
    client = replace(clients[0], defence=Ending(clients[0].defence.partition))
    broadcast = Broadcast(SESSION, 0, "joint", flat(model)).encode()
    with client_pool({0: client}, 2) as pool, pytest.raises(SfumatoError, match="a worker process ended"):
        pool.respond(broadcast, {0: client.defence})


def test_workers_that_cannot_begin_are_told_of_the_guard_that_a_script_needs() -> None:
    class Broken:
        def submit(self, *_given: Any) -> Any:
            raise BrokenProcessPool

    executor: Any = Broken()
    _model, clients = some_clients(1, rounds=1)
    with pytest.raises(SfumatoError, match=r"no `if __name__ == '__main__':`") as caught:
        _Elsewhere(executor).respond(b"", {0: clients[0].defence})
    assert "\n" not in str(caught.value)


PARENT = """
import os, sys, time
from sfumato.radiomap.pool import client_pool
if __name__ == "__main__":
    with client_pool({}, 2) as pool:
        pool._executor.submit(os.getpid).result()
        print(*[process.pid for process in pool._executor._processes.values()], flush=True)
        time.sleep(60)
"""


def _alive(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as status:
            return status.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at processes through /proc")
def test_workers_end_when_their_parent_is_killed(tmp_path: Any) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    workers = [int(word) for word in parent.stdout.readline().split()]
    assert workers
    assert all(_alive(worker) for worker in workers)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 30
    while any(_alive(worker) for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(_alive(worker) for worker in workers)
