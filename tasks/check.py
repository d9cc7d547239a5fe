"""One check of a monitored population: ``python -m tasks.check divergence --record ledger/monitoring/NAME/CHECK.json``.

Each check is a new release, so this is no stage of dvc.yaml: DVC would not run a stage that did not change, and would
restore an old release from its cache. The flow ``flows.drift`` writes the record and calls this step.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tasks import lifecycle

lifecycle.begin()

from sfumato.errors import SfumatoError  # noqa: E402  (threads are fixed before numpy loads)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the step from its command line.

    Returns:
        0, or 2 after one sentence on standard error when the input is wrong or the budget spent.
    """
    parser = argparse.ArgumentParser(prog="python -m tasks.check")
    parser.add_argument("system", choices=["divergence"])
    parser.add_argument("--record", type=Path, required=True, help="the record that the flow has begun")
    options = parser.parse_args(arguments)
    from tasks.divergence import check

    try:
        check.run(Path.cwd(), options.record)
    except SfumatoError as error:
        print(f"check: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        name = Path(str(error.filename)).name if error.filename else "a file"
        print(f"check: {name} cannot be read or written ({error.strerror or error}).", file=sys.stderr)
        return 1
    except Exception as error:
        # The text of a foreign error can hold a private number, and a flow would log it.
        kind = type(error).__name__
        print(
            f"check: an unexpected {kind}; its text is withheld, since it could hold private numbers.",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
