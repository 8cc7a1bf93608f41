"""What a process was told is stored, written down where kill -9 cannot reach it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Journal:
    """Lines of JSON, each given to the kernel in one unbuffered write before the process goes on.

    Killing a process takes what it holds itself, never what the kernel has: no fsync is needed, and
    without one the process writes (and is killed) more often.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, entry: Mapping[str, Any]) -> None:
        """Write one entry down."""
        os.write(self._file, json.dumps(entry).encode() + b"\n")


def entries(path: Path) -> list[dict[str, Any]]:
    """What was noted so far; a process that was killed before its first entry noted nothing."""
    if not path.exists():
        return []
    return [
        json.loads(line) for line in path.read_bytes().splitlines(keepends=True) if line[-1:] == b"\n"
    ]
