"""A disk that is really full, at several moments: the flow fails in words, and one rerun makes the same artifacts."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows import toy


def _can_mount() -> bool:
    """Whether this user may mount a small file system in a namespace of its own (Linux with user namespaces)."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def reference(undisturbed: Path) -> dict[str, bytes]:
    """Artifacts of a run that nothing disturbed."""
    return toy.contents(undisturbed)


@pytest.mark.slow  # test_damage.py has a disk that says it is full
@pytest.mark.skipif(not _can_mount(), reason="this user may not mount a file system")
@pytest.mark.parametrize(
    "free_kilobytes",
    [0, 8, 40, 80],
)
def test_full_disk_fails_the_flow_and_a_rerun_completes(
    tmp_path: Path, reference: dict[str, bytes], server: str, free_kilobytes: int
) -> None:
    script = 'mount -t tmpfs -o size=3m tmpfs "$1" && exec "$2" -m tests.faults.small_disk "$1" "$3"'
    words = ["bash", "-c", script, "bash", str(tmp_path), sys.executable, str(free_kilobytes)]
    done = subprocess.run(
        ["unshare", "-rm", *words],
        cwd=toy.PROJECT,
        env=toy.environment(server),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["first"] != 0
    assert "No space left on device" in found["said"]
    assert f'File "{toy.PROJECT}/flows' not in found["said"]
    assert found["second"] == 0, found["said"][-2000:]
    assert {name: base64.b64decode(text) for name, text in found["made"].items()} == reference
