"""A small DVC repository with the shapes of the real one, and a Prefect server that the tests share."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from textwrap import dedent

PROJECT = Path(__file__).resolve().parents[2]

STEP = f"""
import os
import sys
import time

sys.path.insert(0, {str(PROJECT)!r})
from tasks import lifecycle

lifecycle.begin()
sys.path.insert(0, os.getcwd())
from pathlib import Path

from ruamel.yaml import YAML

from library import arithmetic
from sfumato.artifacts import write_csv, write_json, write_text
from sfumato.errors import SfumatoError
from sfumato.records import Record, to_document

params = YAML(typ="safe").load(Path("params.yaml").read_text())["toy"]


def prepare(name):
    numbers = [float(line) for line in Path("source.txt").read_text().split()]
    write_text(f"data/prepared/{{name}}.txt", str(sum(numbers) + len(name)))


def train(name, epsilon):
    base = float(Path(f"data/prepared/{{name}}.txt").read_text())
    steps, delay = params["steps"], params["delay"]
    for step in range(steps):
        print(f"progress {{step + 1}}/{{steps}} fit", file=sys.stderr, flush=True)
        time.sleep(delay)
    fail = params["fail"]
    if fail == f"{{name}}-{{epsilon}}":
        raise RuntimeError("the fit went astray")
    if fail == f"refuse:{{name}}-{{epsilon}}":
        print("toy.scale is wrong; allowed are numbers above 0.", file=sys.stderr)
        sys.exit(2)
    if fail == f"disk:{{name}}-{{epsilon}}":
        from errno import ENOSPC
        raise OSError(ENOSPC, os.strerror(ENOSPC), "data/metrics")
    levels = {{"dataset": name, "method": "dense", "epsilon": epsilon}}
    records = [
        Record({{**levels, "seed": str(seed)}}, {{
            "accuracy": arithmetic.value(base, params["scale"], seed) + float(os.environ.get("TOY_CPU", "0")),
            "epsilon": None, "epsilon_reason": "not priced",
        }})
        for seed in (0, 1)
    ]
    cell = f"{{name}}-dense-{{epsilon}}"
    write_csv(f"data/plots/topk/train/{{cell}}.csv", ["step", "seed", "loss"],
              [[i, s, 1 / (i + 1)] for s in (0, 1) for i in range(300)])
    write_json(f"data/metrics/topk/train/{{cell}}.json",
               to_document("topk", "train", list(records[0].levels), records, {{"accuracy": 0.5}}))


def account(name, epsilon):
    write_text(f"data/statements/topk/{{name}}-{{epsilon}}/dense.txt", "private")


def other():
    write_text("data/other.txt", "other")


def report():
    found = sorted(path.as_posix() for path in Path("data/metrics").rglob("*.json"))
    write_text("report/index.html", "<p>" + " ".join(found) + "</p>")


step, *arguments = sys.argv[1:]
globals()[step](*arguments)
"""

DVC = """
stages:
  prepare:
    matrix:
      dataset: ${toy.datasets}
    cmd: python step.py prepare ${item.dataset}
    deps: [step.py, source.txt]
    outs: ["data/prepared/${item.dataset}.txt"]
  topk-train:
    matrix:
      dataset: ${toy.datasets}
      epsilon: ["1", "3"]
    cmd: python step.py train ${item.dataset} ${item.epsilon}
    deps: [step.py, library, "data/prepared/${item.dataset}.txt"]
    params: [toy.scale, toy.steps, toy.delay, toy.fail]
    outs: ["data/plots/topk/train/${item.dataset}-dense-${item.epsilon}.csv"]
    metrics:
      - "data/metrics/topk/train/${item.dataset}-dense-${item.epsilon}.json":
          cache: false
  topk-account:
    cmd: python step.py account a 1
    deps: [step.py, data/metrics/topk/train/a-dense-1.json]
    outs: [data/statements/topk/a-1]
  other-train:
    cmd: python step.py other
    deps: [step.py]
    outs: [data/other.txt]
  report:
    cmd: python step.py report
    deps: [step.py, data/metrics, data/statements/topk/a-1]
    outs: [report/index.html]
"""

PARAMS = """
# The toy's knobs.
toy:
  datasets: [a, b]
  scale: 2  # a factor
  steps: 2
  delay: 0.0
  fail: ""
"""


def make_repository(folder: Path, git: bool = False) -> Path:
    """Write the toy into a folder; with ``git``, make it a git repository too, without a commit."""
    files = {
        "step.py": STEP,
        "source.txt": "1 2 3",
        "library/__init__.py": "",
        "library/arithmetic.py": "def value(base, scale, seed):\n    return base * scale + seed\n",
        "dvc.yaml": DVC,
        "params.yaml": PARAMS,
        ".gitignore": "/data/prepared\n/data/plots\n/data/statements\n/data/other.txt\n/report\n.runtime\n__pycache__\n",
        ".dvcignore": (PROJECT / ".dvcignore").read_text(),
        ".dvc/config": (PROJECT / ".dvc" / "config").read_text(),
        ".dvc/config.local": "" if git else "[core]\n    no_scm = true\n",
        ".dvc/.gitignore": (PROJECT / ".dvc" / ".gitignore").read_text(),
        "profiles/tiny.yaml": dedent("""
            params:
              toy: {datasets: [a]}
            variants:
              - name: low
                params: {toy: {scale: 1}}
              - name: high
                params: {toy: {scale: 9}}
                targets: [topk-account]
        """),
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip("\n"))
    if git:
        run_git(folder, "init", "-q", "-b", "main")
    return folder


def copied(root: Path, folder: Path, git: bool = False) -> Path:
    """A toy that has run, at another place; with ``git``, in a git repository without a commit."""
    shutil.copytree(root, folder, ignore=shutil.ignore_patterns("tmp"))
    if git:
        (folder / ".dvc/config.local").write_text("")
        run_git(folder, "init", "-q", "-b", "main")
    return folder


def run_git(folder: Path, *arguments: str) -> str:
    """Run git with a fixed identity and give its output."""
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


def set_params(folder: Path, **values: object) -> None:
    """Change values of the toy section."""
    lines = (folder / "params.yaml").read_text().splitlines()
    for key, value in values.items():
        lines = [f"  {key}: {value}" if line.startswith(f"  {key}:") else line for line in lines]
    (folder / "params.yaml").write_text("\n".join(lines) + "\n")


def contents(folder: Path) -> dict[str, bytes]:
    """Every artifact of the toy, and dvc.lock, by name."""
    names = [path for part in ("data", "report") for path in (folder / part).rglob("*") if path.is_file()]
    skipped = {"timings.json", "reproduction.json", ".gitignore"}
    result = {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in names if path.name not in skipped
    }
    result["dvc.lock"] = (folder / "dvc.lock").read_bytes()
    return result


@cache
def shared_server() -> str:
    """Address of one Prefect server for all tests of this process; it dies with the process."""
    import atexit
    import tempfile

    from flows.environment import set_defaults

    home = tempfile.TemporaryDirectory(prefix="prefect-")
    os.environ["PREFECT_HOME"] = home.name
    os.environ["DVC_SITE_CACHE_DIR"] = str(Path(home.name) / "dvc")
    set_defaults()
    from flows.server import local_api

    server = local_api(Path(home.name))
    url = server.__enter__()
    atexit.register(home.cleanup)

    def end() -> None:
        with suppress(Exception):
            server.__exit__(None, None, None)

    atexit.register(end)
    return url


def environment(url: str | None = None) -> dict[str, str]:
    """Environment of a flow in a child process."""
    extra = {"PREFECT_API_URL": url} if url else {}
    names = {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1", "MLFLOW_TRACKING_URI": ""}
    return {**os.environ, **names, **extra}


def start(module: str, folder: Path, *arguments: str, url: str | None = None) -> subprocess.Popen[str]:
    """Start ``python -m flows.<module>`` on a folder, in its own process group, with Ctrl-C as a terminal has it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # tests that a shell put into the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen(
        [sys.executable, "-m", f"flows.{module}", "--root", str(folder), *arguments],
        cwd=folder,
        env=environment(url),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], seconds: float = 120) -> tuple[int, str]:
    """Exit status and output of a started flow."""
    output, _ = process.communicate(timeout=seconds)
    return process.returncode, output


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for a condition, or fail."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def processes_in(folder: Path) -> Mapping[int, str]:
    """Command lines of the processes that work in a folder, by process id."""
    import psutil

    result: dict[int, str] = {}
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()) == folder and process.pid != os.getpid() and process.status() != "zombie":
                result[process.pid] = " ".join(process.cmdline())
        except (psutil.Error, OSError):
            continue
    return result
