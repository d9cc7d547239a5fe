"""What every step shares: its command line, its parameters, and how it fails.

>>> cell_text({"dataset": "mnist", "epsilon": "3", "method": "tp_topk"})
'mnist-tp_topk-3'
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks import lifecycle

lifecycle.begin()

from sfumato.errors import SfumatoError  # noqa: E402  (threads are fixed before numpy loads)
from sfumato.params import Params, load  # noqa: E402

CELL_ORDER = ("dataset", "method", "epsilon", "block")
SYSTEMS = ("divergence", "modulated", "radiomap", "topk")
OPTIONS = (*CELL_ORDER, "attack")


@dataclass(frozen=True)
class Call:
    """One call of a step.

    Attributes:
        params: the checked parameters.
        root: the repository, all paths are below it.
        system: which system's step; empty for shared ones.
        options: the cell and the kind of attack, as text, as given.
    """

    params: Params
    root: Path
    system: str
    options: Mapping[str, str]

    @property
    def cell(self) -> str:
        """The cell's name, as in the stage's."""
        return cell_text(self.options)

    def path(self, kind: str, step: str, suffix: str) -> Path:
        """``data/<kind>/<system>/<step>/<cell><suffix>``."""
        return self.root / "data" / kind / self.system / step / f"{self.cell}{suffix}"


Handler = Callable[[Call], None]
_HERE = Path(__file__).parent


def cell_text(options: Mapping[str, str]) -> str:
    """The parts of a cell that are given, joined by hyphens in their fixed order."""
    return "-".join(options[name] for name in CELL_ORDER if name in options)


def systems_of(step: str) -> dict[str, Handler]:
    """System name -> its ``run`` of that step, loaded when it is called: a system's step needs no other system.

    >>> sorted(systems_of("warmup"))
    ['radiomap', 'topk']
    """

    def handler(system: str) -> Handler:
        def run(call: Call) -> None:
            importlib.import_module(f"tasks.{system}.{step}").run(call)

        return run

    return {system: handler(system) for system in SYSTEMS if (_HERE / system / f"{step}.py").is_file()}


def main(
    step: str, handlers: Mapping[str, Handler] | None = None, arguments: Sequence[str] | None = None
) -> int:
    """Run a step from its command line.

    Args:
        step: the step's name.
        handlers: system name -> what to call, those of ``systems_of`` by default; a single entry "" for a step
            without systems.
        arguments: the command line; the process's own by default.

    Returns:
        0, or 2 after one sentence on standard error when the input is wrong.
    """
    handlers = systems_of(step) if handlers is None else handlers
    parser = argparse.ArgumentParser(prog=f"python -m tasks.{step}")
    if "" not in handlers:
        parser.add_argument("system", choices=sorted(handlers))
    for name in OPTIONS:
        parser.add_argument(f"--{name}")
    given = vars(parser.parse_args(arguments))
    system = given.pop("system", "")
    options = {name: value for name, value in given.items() if value is not None}
    root, private = Path.cwd(), False
    try:
        params = load(root / "params.yaml")
        private = params.privacy.mode == "release"
        _check_options(options)
        handlers[system](Call(params, root, system, options))
    except SfumatoError as error:
        print(f"{step}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        name = Path(str(error.filename)).name if error.filename else "a file"
        print(
            f"{step}: {name} cannot be read or written ({error.strerror or error}); nothing was kept.",
            file=sys.stderr,
        )
        return 1
    except Exception as error:
        if not private:
            raise
        # The text of a foreign error can hold a private number, and DVC, Prefect and a terminal would keep it.
        kind = type(error).__name__
        print(
            f"{step}: an unexpected {kind}; its text is withheld in release mode, since it could hold private numbers.",
            file=sys.stderr,
        )
        return 1
    return 0


def _check_options(options: Mapping[str, str]) -> None:
    for name in OPTIONS:
        value = options.get(name)
        if value is not None and not value.replace(".", "").replace("_", "").isalnum():
            raise SfumatoError(f"--{name} is {value!r}; allowed are letters, digits, dots and underscores.")
    if "epsilon" in options:
        number(options, "epsilon")


def number(options: Mapping[str, str], name: str) -> float:
    """An option as a number.

    Raises:
        SfumatoError: if it is missing or no number.
    """
    try:
        return float(required(options, name))
    except ValueError:
        raise SfumatoError(f"--{name} is {options.get(name)!r}; allowed is a number.") from None


def whole_number(options: Mapping[str, str], name: str) -> int:
    """An option as an integer of at least 0.

    Raises:
        SfumatoError: if it is missing or no such integer.
    """
    text = required(options, name)
    if not (text.isascii() and text.isdigit()):
        raise SfumatoError(f"--{name} is {text!r}; allowed is an integer of at least 0.")
    return int(text)


def required(options: Mapping[str, str], name: str) -> str:
    """An option that must be given.

    Raises:
        SfumatoError: if it is not.
    """
    if name not in options:
        raise SfumatoError(f"--{name} is missing; allowed is one value for it.")
    return options[name]


def progress(done: int, total: int, text: str, every: int = 10) -> None:
    """A progress line on standard error, which the flow turns into bars."""
    if done % every == 0 or done == total:
        print(f"progress {done}/{total} {text}", file=sys.stderr, flush=True)
