"""What the seam patches. Another SDK of the same generator is one more line in ``TARGETS``."""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from agentlightning.errors import SeamError
from agentlightning.recording.context import current_rollout
from agentlightning.recording.patching import Patch
from agentlightning.recording.seam.http import HttpSeam
from agentlightning.recording.seam.sdk import SdkSeam
from agentlightning.recording.seam.selftest import problems_of_http, problems_of_sdk

logger = logging.getLogger("agentlightning.recording")

Inspect: TypeAlias = Callable[[str], tuple[list[str], Callable[[], list[Patch]]]]
"""For a package that was imported: what is not as expected, and what makes the patches."""


class Target:
    """One package that the seam patches once it is imported.

    Attributes:
        problems: what the self-test found; such a package is left alone.
    """

    def __init__(self, package: str, inspect: Inspect) -> None:
        self.package: Final = package
        self.problems: list[str] = []
        self._inspect = inspect
        self._lock = threading.Lock()
        self._patches: list[Patch] = []

    def apply(self) -> None:
        """Patch the package, which is imported; harmless when repeated.

        Raises:
            SeamError: it has changed, and a rollout is active; else that is a warning.
        """
        problems, patches = self._inspect(self.package)
        with self._lock:
            if not self._patches:
                self.problems = problems
                self._patches = [] if problems else patches()
            for patch in self._patches:
                patch.apply()
        if self.problems:
            self._refuse()

    def remove(self) -> None:
        """Restore the originals."""
        with self._lock:
            for patch in self._patches:
                patch.remove()

    def _refuse(self) -> None:
        if current_rollout() is not None:
            raise SeamError(self.message())
        logger.warning(self.message())

    def message(self) -> str:
        """Why its calls cannot be recorded, and what to do."""
        return (
            f"LLM calls of the {self.package} package can't be recorded: this version of it has "
            f"changed what recording stands on ({'; '.join(self.problems)}). Install a version of "
            f"{self.package} that the agentlightning documentation names as tested"
        )


def _sdk(package: str) -> tuple[list[str], Callable[[], list[Patch]]]:
    try:
        top, base_client, models, types = (
            importlib.import_module(f"{package}{part}")
            for part in ("", "._base_client", "._models", "._types")
        )
    except ImportError as error:
        return [f"it has no module {error.name}"], list
    return problems_of_sdk(base_client, models), lambda: SdkSeam(top, types).patches(base_client)


def _http(package: str) -> tuple[list[str], Callable[[], list[Patch]]]:
    library: Any = importlib.import_module(package)
    return problems_of_http(library), HttpSeam(library).patches


TARGETS: Final = (
    Target("openai", _sdk),
    Target("anthropic", _sdk),
    Target("httpx", _http),
    Target("httpx2", _http),
)
