"""Files written whole or not at all, and read with a sentence when they are damaged.

>>> import tempfile
>>> path = Path(tempfile.mkdtemp()) / "note.txt"
>>> write_text(path, "whole")
>>> path.read_text()
'whole'
"""

from __future__ import annotations

import os
import re
import struct
import threading
import zipfile
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TypeAlias, TypeVar

from sfumato.errors import SfumatoError

PathLike: TypeAlias = str | os.PathLike[str]
T = TypeVar("T")


@contextmanager
def atomic_file(path: PathLike) -> Generator[IO[bytes]]:
    """A writable binary file that becomes ``path`` when the block ends, and vanishes when it raises.

    Args:
        path: the final name; its folder is made when it is missing.

    Yields:
        the open temporary file, in the same folder.

    Raises:
        OSError: from the operating system, such as a full disk; the old file, if any, is untouched and
            no temporary file is left.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_stale_temporaries(target)
    temporary = target.with_name(_temporary_name(target.name))
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def remove_stale_temporaries(path: PathLike) -> None:
    """Remove the temporary files of ``path`` whose process has died; those of living processes stay."""
    target = Path(path)
    pattern = re.compile(re.escape(f".{target.name}.") + r"(\d+)(\.\d+)?\.tmp")
    for entry in os.scandir(target.parent):
        match = pattern.fullmatch(entry.name)
        if match and not _is_alive(int(match.group(1))):
            with suppress(OSError):
                os.unlink(entry.path)


def _temporary_name(name: str) -> str:
    """``.name.<pid>.tmp``, with the thread's number added outside of the main thread."""
    thread = threading.current_thread()
    suffix = "" if thread is threading.main_thread() else f".{thread.native_id}"
    return f".{name}.{os.getpid()}{suffix}.tmp"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _sync_folder(folder: Path) -> None:
    """Flush a rename to the disk, where folders can be opened at all."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_bytes(path: PathLike, content: bytes) -> None:
    """Write bytes atomically; see `atomic_file` for what a failure leaves."""
    with atomic_file(path) as file:
        file.write(content)


def write_text(path: PathLike, text: str) -> None:
    """Write text atomically as UTF-8, newlines as given."""
    write_bytes(path, text.encode("utf-8"))


def read_checked(path: PathLike, kind: str, reader: Callable[[Path], T]) -> T:
    """Run a reader and turn every way in which a file can be bad into one sentence."""
    source = Path(path)
    try:
        return reader(source)
    except FileNotFoundError:
        raise SfumatoError(f"{source} is missing; run the step that makes it.") from None
    except MemoryError:
        raise SfumatoError(f"{source} does not fit into memory or is damaged; make it anew.") from None
    except (OSError, ValueError, KeyError, EOFError, TypeError, struct.error, zlib.error) as error:
        raise damaged(source, kind, error) from error
    except (zipfile.BadZipFile, NotImplementedError, RecursionError) as error:
        raise damaged(source, kind, error) from error


def damaged(source: Path, kind: str, error: BaseException) -> SfumatoError:
    """The sentence for a file that exists but cannot be read as what it should be."""
    reason = (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__
    return SfumatoError(
        f"{source} is not a readable {kind} file ({reason}); delete it and rerun the step that makes it."
    )
