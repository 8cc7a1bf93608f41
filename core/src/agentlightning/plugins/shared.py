"""The plug-ins that a process shares, loaded at their first use."""

from __future__ import annotations

import threading
from collections.abc import Callable

from agentlightning.errors import PluginError
from agentlightning.plugins.loader import Plugins, load_plugins


class _Shared:
    """The set that :func:`plugins` shares, loaded at its first use."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.loaded: Plugins | None = None
        self.loading = False
        self.waiting: list[Callable[[Plugins], None]] = []

    def get(self) -> Plugins:
        with self.lock:
            if self.loaded is None:
                self.loaded = self._load()
            return self.loaded

    def _load(self) -> Plugins:
        if self.loading:
            raise PluginError("a plug-in asked for the plug-ins while they are being loaded")
        self.loading = True
        try:
            loaded = load_plugins()
        finally:
            self.loading = False
        for action in self.waiting:
            action(loaded)
        self.waiting.clear()
        return loaded

    def when_loaded(self, action: Callable[[Plugins], None]) -> None:
        with self.lock:
            if self.loaded is None:
                self.waiting.append(action)
            else:
                action(self.loaded)


_shared = _Shared()


def plugins() -> Plugins:
    """The plug-ins of this process, loaded once, at the first call."""
    return _shared.get()


def when_loaded(action: Callable[[Plugins], None]) -> None:
    """Call ``action(plugins())`` once they are loaded, without loading them now.

    For decorators: importing a module that uses one reads no entry point.
    """
    _shared.when_loaded(action)
