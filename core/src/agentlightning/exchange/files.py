"""Files that are whole or not there at all."""

from __future__ import annotations

import gzip
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, cast

from agentlightning.errors import ExchangeError

STREAM: Final = Path("-")
"""Standard input or output, by the name that commands give them."""


@contextmanager
def whole(target: Path) -> Iterator[Path]:
    """A new path to write a file or folder at, which is moved to ``target`` when all of it is written.

    Raises:
        ExchangeError: there is something at ``target``, or it cannot be written.
    """
    if target.exists():
        raise ExchangeError(f"{target} exists already; choose a new name, or remove it first")
    try:
        beside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise ExchangeError(f"cannot write {target}: {error}") from error
    try:
        yield beside / target.name
        (beside / target.name).rename(target)
    except OSError as error:
        raise ExchangeError(f"cannot write {target}: {error}; nothing is left of it") from error
    finally:
        shutil.rmtree(beside)


@contextmanager
def written(target: Path) -> Iterator[IO[bytes]]:
    """A file to write, packed if its name ends in ``.gz``; standard output for ``-``."""
    if target == STREAM:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with whole(target) as path, path.open("xb") as raw:
        if target.suffix == ".gz":
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6) as packed:
                yield cast("IO[bytes]", packed)
        else:
            yield raw


@contextmanager
def opened(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """A file to read, unpacked if it is packed, and as it lies on the disk; stdin for ``-``."""
    if path == STREAM:
        yield sys.stdin.buffer, sys.stdin.buffer
        return
    try:
        raw = path.open("rb")
    except OSError as error:
        raise ExchangeError(f"cannot read {path}: {error}") from error
    with raw:
        is_packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        unpacked = gzip.GzipFile(fileobj=raw) if is_packed else raw
        yield cast("IO[bytes]", unpacked), raw
