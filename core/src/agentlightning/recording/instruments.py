"""What must be in place before an agent runs: seam, threads that keep their rollout, adapters."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import wrapt

from agentlightning.errors import PluginError
from agentlightning.plugins import plugins
from agentlightning.recording import seam, threads
from agentlightning.recording.recorder import Recorder

if TYPE_CHECKING:
    from agentlightning.adapter import TracerAdapter

logger = logging.getLogger("agentlightning.recording")

Options = Mapping[str, Mapping[str, Any]]
"""Options of adapters by the adapter's name."""


class Instruments:
    """The process's one set of them; two of an adapter would record everything twice.

    An adapter is made when its framework is imported, never before: what is installed costs nothing
    to an agent that does not use it. One that fails, or does not support the version that was imported,
    is reported and left out; agents then run without the structure it would have told.

    Attributes:
        failures: why an adapter was left out, by its name.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._installs = 0
        self._options: dict[str, dict[str, Any]] = {}
        self._adapters: dict[str, TracerAdapter] = {}
        self._awaited: set[str] = set()
        self._starting: set[str] = set()
        self.failures: dict[str, str] = {}

    @property
    def adapters(self) -> Sequence[TracerAdapter]:
        """The adapters of the frameworks that have been imported so far."""
        with self._lock:
            return list(self._adapters.values())

    def install(self, options: Options | None = None) -> None:
        """Put everything in place; installs are counted.

        Args:
            options: options by adapter name. Adapters that are not named are used with their defaults.

        Raises:
            UnknownName: options for an adapter that is not installed.
            PluginError: options for an adapter that cannot be used with what is installed.
        """
        registry = plugins().adapters
        given = {registry.usable(name).name: dict(values) for name, values in (options or {}).items()}
        with self._lock:
            self._installs += 1
            self._take(given)
        seam.install()
        threads.install()
        for entry in registry.entries(inactive=True):  # one that cannot be used has to say so
            self._await_import(entry.name, entry.facts["trigger"])

    def uninstall(self) -> None:
        """Undo one :meth:`install`; the last one restores the originals."""
        with self._lock:
            if self._installs == 0:
                return
            self._installs -= 1
            removed = [] if self._installs else list(self._adapters.items())
            if not self._installs:
                self._adapters.clear()
                self._options.clear()
        threads.uninstall()
        seam.uninstall()
        for name, adapter in removed:
            try:
                adapter.uninstall()
            except Exception:  # one broken adapter must not keep the others installed
                logger.exception("the adapter %r could not be uninstalled", name)

    def _take(self, options: dict[str, dict[str, Any]]) -> None:
        for name, values in options.items():
            if name in self._adapters and values != self._options.get(name, {}):
                logger.warning(
                    "the adapter %r is in use already, the options %s have no effect on it",
                    name,
                    values,
                )
            else:
                self._options[name] = values

    def _await_import(self, name: str, trigger: str) -> None:
        if trigger in sys.modules:
            self._activate(name)
            return
        with self._lock:
            awaited = name in self._awaited
            self._awaited.add(name)
        if not awaited:  # such a hook cannot be taken back, so there is one for good
            wrapt.register_post_import_hook(lambda _module: self._activate(name), trigger)

    def _activate(self, name: str) -> None:
        with self._lock:
            if self._installs == 0 or name in self._adapters or name in self._starting:
                return
            self._starting.add(name)
            options = self._options.get(name, {})
        try:  # without our lock: another thread may hold the import lock and want ours
            adapter = plugins().adapters.get(name)(**options)
            adapter.install(Recorder())
        except Exception as error:  # noqa: BLE001 - this runs inside the user's import, which must not fail by us
            self._leave_out(name, error)
        else:
            with self._lock:
                self._adapters[name] = adapter
        finally:
            with self._lock:
                self._starting.discard(name)

    def _leave_out(self, name: str, error: Exception) -> None:
        """Say why an adapter is not used; once for each reason, however often it is asked for."""
        ours = isinstance(error, PluginError)
        reason = str(error) if ours else f"{type(error).__name__}: {error}"
        with self._lock:
            said = self.failures.get(name) == reason
            self.failures[name] = reason
        if not said:
            logger.warning(
                "the adapter %r was left out, agents are recorded without the structure it tells: %s",
                name,
                reason,
                exc_info=error.__cause__ if ours else error,
            )


instruments: Final = Instruments()
"""Those of this process."""
