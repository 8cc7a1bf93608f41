"""Runners that others start for a run: how they start them, and what is said while nobody does."""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from agentlightning.config import Config
from agentlightning.config.checks import is_loopback
from agentlightning.records import Run
from agentlightning.runner import RunSettings
from agentlightning.store import Store
from agentlightning.store.opening import without_password
from agentlightning.trainer.summary import agl_command

logger = logging.getLogger("agentlightning.trainer")

_FIRST_REMINDER_S: Final = 15.0
_LONGEST_BETWEEN_S: Final = 120.0


def command_for(config: Config, run: Run, settings: RunSettings) -> str:
    """The command that starts runners for a run."""
    is_elsewhere = urlsplit(config.store).scheme != "sqlite"
    agent = settings.agent or "MODULE:NAME"
    store = shlex.quote(without_password(config.store))
    agl = "agl" if is_elsewhere else agl_command()
    return f"{agl} run --store {store} --run {run.run_id} --agent {agent}"


def how_to_run(config: Config, run: Run, settings: RunSettings) -> Sequence[str]:
    """What to print where the run starts no workers of its own."""
    lines = ["no workers of its own (runners.count is 0); start some with:"]
    lines.append(f"  {command_for(config, run, settings)}")
    scheme = urlsplit(config.store).scheme
    if scheme in {"http", "https"}:
        store = shlex.quote(without_password(config.store))
        lines.append(
            "  with a runner's token in AGENTLIGHTNING_STORE_TOKEN; "
            f"agl store token --store {store} --run {run.run_id} prints one"
        )
    if scheme != "sqlite" and is_loopback(config.endpoint.host) and config.endpoint.url is None:
        lines.append(
            "  on this machine only, if the run serves its model: for runners on others set "
            "endpoint.host (and endpoint.url)"
        )
    return lines


class Watch:
    """Reminds, now and then, that rollouts are queued and nobody works on them."""

    def __init__(self, store: Store, run: Run, command: str) -> None:
        self._store = store
        self._run_id = run.run_id
        self._command = command
        self._pause_s = _FIRST_REMINDER_S
        self._next = time.monotonic() + self._pause_s

    def look(self) -> None:
        """Look whether it is time to."""
        if time.monotonic() < self._next:
            return
        counts = self._store.statistics(self._run_id).rollouts
        if counts.get("queued", 0) and not counts.get("running", 0):
            logger.warning(
                "%d rollouts are queued and no runner works on them; start some with: %s",
                counts["queued"],
                self._command,
            )
            self._pause_s = min(2 * self._pause_s, _LONGEST_BETWEEN_S)
        else:
            self._pause_s = _FIRST_REMINDER_S
        self._next = time.monotonic() + self._pause_s
