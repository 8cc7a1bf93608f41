"""The runs a runner has met: each one's settings, made to hold in this process."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from typing import Any

from agentlightning.recording.instruments import instruments
from agentlightning.records import Run
from agentlightning.runner.settings import RunSettings, settings_of

logger = logging.getLogger("agentlightning.runner")


class KnownRuns:
    """Called with a run, returns its settings, after the adapters that they name are in place.

    What one process has only once is shared: the adapters, and the environment. A run that wants an
    adapter with other options than a run before it, or a variable that is not set, is warned about.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, RunSettings] = {}
        self._installed: list[Mapping[str, Any]] = []

    def __call__(self, run: Run) -> RunSettings:
        """The settings of a run.

        Raises:
            AgentError: they cannot be read.
            PluginError: an adapter that they name is not here, or cannot be used.
        """
        with self._lock:
            known = self._known.get(run.run_id)
            return self._meet(run) if known is None else known

    def _meet(self, run: Run) -> RunSettings:
        settings = settings_of(run)
        if settings.adapters and settings.adapters not in self._installed:
            instruments.install(settings.adapters)
            self._installed.append(settings.adapters)
        if missing := missing_variables(settings):
            logger.warning("run %s: %s", run.run_id, missing)
        self._known[run.run_id] = settings
        return settings

    def forget(self) -> None:
        """Take the adapters out again."""
        with self._lock:
            for _ in self._installed:
                instruments.uninstall()
            self._installed.clear()
            self._known.clear()


def missing_variables(settings: RunSettings) -> str | None:
    """What to do about variables that a run's agent is run with and that are not set here."""
    missing = [name for name in settings.variables if name not in os.environ]
    if not missing:
        return None
    return (
        f"its own workers run the agent with {', '.join(missing)}, not set here; set "
        f"{'it' if len(missing) == 1 else 'them'}, or give --env NAME=VALUE"
    )
