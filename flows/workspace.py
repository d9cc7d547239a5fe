"""A run with other parameters in a copy of the working files; the user's tree is not touched.

>>> assignment("topk.train.steps=20")
('topk.train.steps', 20)
>>> assignment("privacy.delta=1e-5")
('privacy.delta', 1e-05)

``python -m flows.workspace --profile medium`` lays the profile's parameters over params.yaml, copies the
working files to ``.runtime/workspaces/medium/<variant>``, runs there on the main cache, and copies the
finished metrics to ``results/medium``. Stages that ran before come from the run cache, so
a run that was killed goes on where it was.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from flows.environment import RUNTIME, check_root
from flows.errors import FlowError
from flows.graph import GraphResult, add_arguments, check_workers, exit_status, run_graph
from flows.pipeline import Pipeline
from flows.profiles import Variant, assignment, check_parameters, merged_text, read_profile
from flows.publish import publish
from flows.recovery import run_git
from flows.server import local_api
from sfumato.artifacts import read_json, write_bytes, write_json, write_text

WORKSPACES = Path(RUNTIME) / "workspaces"
_MADE = ("dvc.lock", "data/metrics/", "report/", "ledger/", "data/raw/", ".dvc/config.local")
_SHARED = ("data/raw", "ledger")
_SKIPPED = {".git", ".venv", RUNTIME, "__pycache__", ".pytest_cache", ".ruff_cache", ".hypothesis"}


@dataclass(frozen=True)
class Request:
    """What to run in workspaces.

    Attributes:
        root: the main tree.
        profile: name of a file in ``profiles/``, or None for params.yaml itself.
        overrides: dotted key -> value, laid over the profile.
        variant: the one variant to run, or None for all of them.
        targets: stages to run; None for the variant's own, or everything.
        workers: stages side by side.
        keep: whether a finished workspace stays on disk.
    """

    root: Path
    profile: str | None = None
    overrides: Mapping[str, Any] | None = None
    variant: str | None = None
    targets: Sequence[str] | None = None
    workers: int = 2
    keep: bool = False

    @property
    def label(self) -> str:
        """The profile's name, ``custom`` without one, and a hash of the overrides if there are any."""
        name = self.profile or "custom"
        if not self.overrides:
            return name
        text = repr(sorted(self.overrides.items()))
        return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    @property
    def command(self) -> str:
        """The command line that gives the same results."""
        parts = ["python -m flows.workspace"]
        parts += [f"--profile {self.profile}"] if self.profile else []
        parts += [f"--variant {self.variant}"] if self.variant else []
        parts += [f"--set {key}={value}" for key, value in (self.overrides or {}).items()]
        return " ".join([*parts, *(self.targets or [])])


def run_request(request: Request) -> list[GraphResult]:
    """Run every variant of a request, one after the other, each in its own workspace.

    Returns:
        how the stages of each variant ended.

    Raises:
        FlowError: if the profile, a variant, an override, a target or the number of workers is wrong;
            nothing has changed on disk then.
        SfumatoError: if the merged parameters are refused.
        StageFailedError: if a stage failed; the finished stages are kept and published.
    """
    profile = read_profile(request.root, request.profile)
    variants = profile.chosen(request.variant)
    texts = {
        variant.name: merged_text(request.root, variant.params, request.overrides or {})
        for variant in variants
    }
    for name, text in texts.items():
        check_parameters(request.root, text, f"params.yaml with {request.label}/{name}")
    check_workers(request.workers)
    for variant in variants:
        check_targets(request.root, texts[variant.name], request.targets or variant.targets)
    with local_api(request.root):
        return [_run_variant(request, variant, texts[variant.name], profile.publish) for variant in variants]


def _run_variant(request: Request, variant: Variant, text: str, published: bool) -> GraphResult:
    """Run one variant and hand over what it finished, even when a later stage fails."""
    place = request.root / WORKSPACES / request.label / variant.name
    place.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(place.with_name(f".{variant.name}.lock"), timeout=0)
    try:
        with lock:
            return _run_locked(request, variant, text, published, place)
    except Timeout:
        raise FlowError(
            f"workspace {request.label}/{variant.name} is in use by another run; allowed is one at a time."
        ) from None


def _run_locked(request: Request, variant: Variant, text: str, published: bool, place: Path) -> GraphResult:
    """As ``_run_variant``, with the workspace held for this run alone."""
    from flows.mirror import mirror_quietly

    sys.stdout.write(f"workspace {request.label}/{variant.name}\n")
    folder = prepare(request.root, place, text)

    def hand_over(failed: bool) -> None:
        if published and request.profile is not None and not request.overrides:
            publish(request.root, folder, request.profile, variant.name, request.command)
        tags = {"profile": request.label, "variant": variant.name}
        mirror_quietly(folder, request.root, name="/".join(tags.values()), failed=failed, tags=tags)

    try:
        result = run_graph(folder, request.targets or variant.targets or None, request.workers)
    except Exception:
        hand_over(failed=True)
        raise
    hand_over(failed=False)
    say_where_to_look(request, variant.name, folder, published)
    if not request.keep:
        shutil.rmtree(folder)
    return result


def say_where_to_look(request: Request, variant: str, folder: Path, published: bool) -> None:
    """Print the workspace's table, if it made one, and where its figures are."""
    with suppress(OSError):
        table = (folder / "report" / "summary.txt").read_text(encoding="utf-8")
        sys.stdout.write("\n" + table.partition("\nWhere to look")[0].rstrip() + "\n")
    lines = ["", "Compare:  make ui  (MLflow and Prefect on 127.0.0.1)"]
    if published and request.profile is not None and not request.overrides:
        lines.append(f"Figures:  results/{request.profile}/*/{variant}/")
    place = folder.relative_to(request.root).as_posix()
    lines.append(f"Files:    {place}/" if request.keep else "Files:    not kept; --keep keeps the workspace")
    sys.stdout.write("\n".join(lines) + "\n")


def check_targets(root: Path, params: str, targets: Sequence[str] | None) -> None:
    """Let DVC look the targets up in the graph that these parameters give, before a workspace is made.

    Args:
        root: the main tree.
        params: text of the workspace's params.yaml.
        targets: as ``dvc repro`` takes them; None is always in the graph.

    Raises:
        FlowError: if the graph is broken, or a target is not in it.
    """
    with tempfile.TemporaryDirectory(prefix="sfumato-graph-") as name:
        folder = Path(name).resolve()
        for file in working_files(root):
            if file.endswith((".yaml", ".dvc")) or file in (".dvcignore", ".dvc/config"):
                _copy_if_other(root / file, folder / file)
        write_text(folder / "params.yaml", params)
        site = folder / ".dvc" / "site"
        write_text(
            folder / ".dvc" / "config.local", f'[core]\n    no_scm = true\n    site_cache_dir = "{site}"\n'
        )
        pipeline = Pipeline(folder)
        try:
            pipeline.plan(targets or None)
        finally:
            pipeline.close()


# ------------------------------------------------------------------------------------------------- the copy
def prepare(root: Path, folder: Path, params: str) -> Path:
    """Make or refresh a workspace: working files, the main cache, shared folders, its own params.yaml.

    Files that runs make are not copied; what an earlier run made in the workspace stays. A file that is
    gone from the main tree goes from the workspace too.

    Args:
        root: the main tree.
        folder: the workspace.
        params: text of its params.yaml.
    """
    files = working_files(root)
    manifest = folder / RUNTIME / "manifest.json"
    before = set(read_json(manifest)) if manifest.exists() else set()
    write_json(manifest, sorted(before.union(files)))
    for name in before - set(files):
        (folder / name).unlink(missing_ok=True)
    for name in files:
        if name != "params.yaml":
            _copy_if_other(root / name, folder / name)
    write_json(manifest, files)
    pipeline = Pipeline(root)
    cache = pipeline.cache_folder()
    pipeline.close()
    write_text(folder / ".dvc" / "config.local", f'[core]\n    no_scm = true\n[cache]\n    dir = "{cache}"\n')
    for name in _SHARED:
        _share(root / name, folder / name)
    if (
        not (folder / "params.yaml").exists()
        or (folder / "params.yaml").read_text(encoding="utf-8") != params
    ):
        write_text(folder / "params.yaml", params)
    return folder


def working_files(root: Path) -> list[str]:
    """Names of the files that make the tree: tracked or new, not ignored, and not made by a run."""
    listed = run_git(root, "ls-files", "-co", "--exclude-standard", "-z")
    if listed is not None and listed.returncode == 0:
        names = [os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    else:
        names = [path.relative_to(root).as_posix() for path in _walk(root)]
    kept = [
        name
        for name in names
        if (name.endswith("/.gitkeep") or not name.startswith(_MADE)) and (root / name).is_file()
    ]
    if not (root / ".dvc" / "config").is_file():
        raise FlowError(f"{root} holds no DVC repository (.dvc/config is missing).")
    return sorted({*kept, ".dvc/config"})


def _walk(root: Path) -> Iterable[Path]:
    """Files below a folder that is not in git, without caches and what DVC keeps."""
    for folder, folders, files in os.walk(root):
        inside = Path(folder)
        folders[:] = [
            name
            for name in sorted(folders)
            if name not in _SKIPPED and not (inside.name == ".dvc" and name in ("cache", "tmp"))
        ]
        yield from (inside / name for name in sorted(files) if not name.endswith(".pyc"))


def _copy_if_other(source: Path, target: Path) -> None:
    """Copy a file unless the target has its size and time; the copy appears whole or not at all."""
    facts = source.stat()
    if target.is_file() and not target.is_symlink():
        there = target.stat()
        if (there.st_size, there.st_mtime_ns) == (facts.st_size, facts.st_mtime_ns):
            return
    write_bytes(target, source.read_bytes())
    target.chmod(facts.st_mode & 0o777)
    os.utime(target, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def _share(source: Path, link: Path) -> None:
    """Let the workspace use a folder of the main tree: nothing is downloaded or charged twice."""
    source.mkdir(parents=True, exist_ok=True)
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_symlink() and link.resolve() == source.resolve():
        return
    if link.is_symlink():
        link.unlink()
    link.symlink_to(source.resolve(), target_is_directory=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: ``python -m flows.workspace --profile NAME [--set key=value] [targets]``."""
    parser = argparse.ArgumentParser(
        prog="python -m flows.workspace", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "targets", nargs="*", help="stages, groups or outputs; the profile's when none is given"
    )
    parser.add_argument("--profile", help="name of a file in profiles/, such as smoke, medium or paper")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="lay a value over the params"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--variant", help="run this variant of the profile only")
    which.add_argument("--all", action="store_true", help="run every variant (the default)")
    parser.add_argument("--keep", action="store_true", help="keep the finished workspace under .runtime")
    add_arguments(parser)
    options = parser.parse_args(arguments)

    def action() -> None:
        overrides = dict(assignment(text) for text in options.set)
        request = Request(
            check_root(options.root),
            options.profile,
            overrides,
            options.variant,
            options.targets or None,
            options.workers,
            options.keep,
        )
        run_request(request)

    return exit_status(action)


if __name__ == "__main__":
    sys.exit(main())
