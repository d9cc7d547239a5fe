"""Sources that are official mirrors on the web, downloaded by pooch with a checksum and a progress bar.

>>> mirror_source("https://example.org/data", {"rows.csv": ("rows.csv", "md5:0")}).description
'https://example.org/data/rows.csv'
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sfumato.datasets.fetching import Progress, RawFile, Source, SourceError

CONNECT_SECONDS = 15.0
READ_SECONDS = 60.0


def mirror_source(base_url: str, files: Mapping[str, tuple[str, str]]) -> Source:
    """Files under one address.

    Args:
        base_url: the address without a closing slash.
        files: file name -> (name under the address, ``md5:`` or ``sha256:`` checksum of what is served)
    """

    def get(work: Path, wanted: Sequence[RawFile], progress: Progress | None) -> Mapping[str, Path]:
        copies: dict[str, Path] = {}
        for file in wanted:
            if file.name in files:
                remote, checksum = files[file.name]
                copies[file.name] = download(f"{base_url}/{remote}", checksum, work / remote, progress)
        return copies

    only = next(iter(files.values()))[0] if len(files) == 1 else ""
    return Source(f"{base_url}/{only}" if only else base_url, get)


def download(url: str, checksum: str, target: Path, progress: Progress | None) -> Path:
    """Download one file and verify it; a bar is drawn when progress is wanted and stderr is a terminal.

    Raises:
        SourceError: if it cannot be reached or what comes has another checksum.
    """
    pooch = importlib.import_module("pooch")
    requests = importlib.import_module("requests")
    bar = progress is not None and sys.stderr.isatty()
    pooch.get_logger().setLevel(logging.WARNING)
    try:
        pooch.retrieve(
            url,
            known_hash=checksum,
            fname=target.name,
            path=target.parent,
            downloader=pooch.HTTPDownloader(progressbar=bar, timeout=(CONNECT_SECONDS, READ_SECONDS)),
        )
    except requests.exceptions.HTTPError as error:
        raise SourceError(f"it answers with status {error.response.status_code}") from None
    except requests.exceptions.Timeout:
        raise SourceError("it does not answer in time") from None
    except (requests.exceptions.RequestException, ConnectionError):
        raise SourceError("it cannot be reached") from None
    except ValueError:
        raise SourceError(f"{target.name} comes with another checksum than expected") from None
    return target
