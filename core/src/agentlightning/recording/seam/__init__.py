"""The seam: routes and records the LLM calls of an agent, whoever made its client.

It patches methods of the SDKs and of the HTTP libraries beneath them at class level, so clients built
earlier are covered, and nothing is imported before the agent imports it.
"""

from __future__ import annotations

import sys
import threading
from typing import Any, Final

import wrapt

from agentlightning.errors import SeamError
from agentlightning.recording.seam.targets import TARGETS, Target


class _Seam:
    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._installs = 0
        self._waiting = False

    def install(self) -> None:
        with self._lock:
            self._installs += 1
            waiting, self._waiting = self._waiting, True
        for target in TARGETS:
            if not waiting:  # such a hook cannot be taken back, so there is one for good
                wrapt.register_post_import_hook(self._on_import(target), target.package)
            elif target.package in sys.modules:
                self._imported(target)

    def uninstall(self) -> None:
        with self._lock:
            self._installs = max(0, self._installs - 1)
            if self._installs == 0:
                for target in TARGETS:
                    target.remove()

    def _on_import(self, target: Target) -> Any:
        return lambda _module: self._imported(target)

    def _imported(self, target: Target) -> None:
        # Not under our lock: another thread may hold the import lock and want ours.
        if self._installs == 0:
            return
        target.apply()
        with self._lock:
            if self._installs == 0:  # uninstalled meanwhile
                target.remove()


_seam: Final = _Seam()


def install() -> None:
    """Route and record LLM calls made inside rollouts from now on; installs are counted."""
    _seam.install()


def uninstall() -> None:
    """Undo one :func:`install`; the last one restores the original methods."""
    _seam.uninstall()


def require_working() -> None:
    """Raise ``SeamError`` if the self-test found a package, imported by now, that can't be recorded."""
    broken = [target.message() for target in TARGETS if target.problems]
    if broken:
        raise SeamError(". ".join(broken))
