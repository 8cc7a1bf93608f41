"""One trainer a folder: two would cancel each other's rollouts and overwrite their checkpoints.

A store does not know who trains in it, and could only guess from how long ago a trainer was heard of:
that would keep out whoever goes on right after a crash. So a folder tells, of the processes of its
machine; and where it does not, whoever goes on with a run that was never ended is warned.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

from agentlightning.errors import ConfigError

OWNER_FILE: Final = "trainer.json"
"""Names the process that trains in the folder; one that was killed leaves it, which does no harm."""

_CLOCK_S: Final = 1.0
"""How exactly the start of a process is known."""


@contextmanager
def occupied(run_dir: Path, run_id: str) -> Iterator[None]:
    """Say in the folder that this process trains there."""
    me = psutil.Process()
    owner = {
        "run": run_id,
        "host": socket.gethostname(),
        "pid": me.pid,
        "started": me.create_time(),
    }
    path = run_dir / OWNER_FILE
    path.write_text(json.dumps(owner) + "\n", encoding="utf-8")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def check_free(run_dir: Path) -> str | None:
    """Refuse a folder that a living process of this machine trains in.

    Returns:
        The run whose trainer was killed there, if one of this machine was.

    Raises:
        ConfigError: there is one; the message names it.
    """
    try:
        owner = json.loads((run_dir / OWNER_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # nobody, or killed while it wrote
        return None
    if owner["host"] != socket.gethostname():
        return None
    if _lives(owner["pid"], owner["started"]):
        raise ConfigError(
            f"run_dir: process {owner['pid']} is training run {owner['run']} in {run_dir}; stop it "
            f"first (kill -INT {owner['pid']}), or give another run_dir"
        )
    return str(owner["run"])


def _lives(pid: int, started: float) -> bool:
    """Whether it is that very process, and not one that got its number later."""
    try:
        return abs(psutil.Process(pid).create_time() - started) < _CLOCK_S
    except psutil.NoSuchProcess:
        return False
