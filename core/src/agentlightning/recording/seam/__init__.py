"""The seam: routes and records the LLM calls of the ``openai`` SDK, whoever made the client.

It patches two methods of the SDK's base clients at class level, so clients built earlier are
covered, and nothing is imported before the agent imports it.
"""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any, Final

import wrapt

from agentlightning.errors import SeamError
from agentlightning.recording.context import current_rollout
from agentlightning.recording.patching import Patch
from agentlightning.recording.seam.sdk import SdkSeam
from agentlightning.recording.seam.selftest import problems_of

logger = logging.getLogger("agentlightning.recording")

_PACKAGE: Final = "openai"


class _Seam:
    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._installs = 0
        self._waiting = False
        self._patches: list[Patch] = []
        self.problems: list[str] = []

    def install(self) -> None:
        with self._lock:
            self._installs += 1
            waiting, self._waiting = self._waiting, True
        if not waiting:  # such a hook cannot be taken back, so there is one for good
            wrapt.register_post_import_hook(self._imported, _PACKAGE)
        elif _PACKAGE in sys.modules:
            self._imported()

    def uninstall(self) -> None:
        with self._lock:
            self._installs = max(0, self._installs - 1)
            if self._installs == 0:
                for patch in self._patches:
                    patch.remove()

    def _imported(self, _module: Any = None) -> None:
        # Imported before our lock is taken: another thread may hold the import lock and want ours.
        import openai
        from openai import _base_client, _models, _types

        with self._lock:
            if self._installs == 0:
                return
            if not self._patches:
                self.problems = problems_of(_base_client, _models)
                if self.problems:
                    self._refuse()
                    return
                self._patches = SdkSeam(openai, _types).patches(_base_client)
            for patch in self._patches:
                patch.apply()

    def _refuse(self) -> None:
        if current_rollout() is not None:
            raise SeamError(self.message())
        logger.warning(self.message())

    def message(self) -> str:
        return (
            f"LLM calls of the {_PACKAGE} package can't be recorded: this version of it has changed "
            f"what recording stands on ({'; '.join(self.problems)}). Install a version of {_PACKAGE} "
            "that the agentlightning documentation names as tested"
        )


_seam: Final = _Seam()


def install() -> None:
    """Route and record LLM calls made inside rollouts from now on; installs are counted."""
    _seam.install()


def uninstall() -> None:
    """Undo one :func:`install`; the last one restores the SDK's original methods."""
    _seam.uninstall()


def require_working() -> None:
    """Raise ``SeamError`` if the self-test found that the imported SDK can't be recorded."""
    if _seam.problems:
        raise SeamError(_seam.message())
