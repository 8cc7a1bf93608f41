"""Which plug-ins are installed, and which of them the user lets in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata

from agentlightning.errors import PluginError
from agentlightning.plugins.hookspecs import PROJECT
from agentlightning.plugins.registry import canonical

ONLY = "AGENTLIGHTNING_PLUGINS"
DISABLED = "AGENTLIGHTNING_DISABLED_PLUGINS"
STRICT = "AGENTLIGHTNING_STRICT_PLUGINS"
_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"", "0", "false", "no", "off"})


@dataclass(frozen=True)
class Switches:
    """The environment variables that govern plug-ins.

    Attributes:
        only: load only these; empty = none; None = all.
        disabled: never load these.
        strict: a failure is an error at once instead of a warning.
    """

    only: frozenset[str] | None
    disabled: frozenset[str]
    strict: bool

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> Switches:
        """The switches as they are set now."""
        only = environment.get(ONLY)
        return cls(
            only=None if only is None else _names(only),
            disabled=_names(environment.get(DISABLED, "")),
            strict=_truth(STRICT, environment.get(STRICT, "")),
        )

    def block(self, plugin: str, distribution: str) -> str | None:
        """Why a plug-in is kept out; None if it is not. It may be named by its distribution too."""
        names = {canonical(plugin), canonical(distribution)}
        if names & self.disabled:
            return f"disabled by {DISABLED}"
        if self.only is not None and not names & self.only:
            return f"not among the plug-ins named in {ONLY}"
        return None


def installed() -> list[metadata.EntryPoint]:
    """The entry points of all plug-ins, in name order: what loads is no matter of install order."""
    points = metadata.entry_points(group=PROJECT)
    return sorted(points, key=lambda point: (canonical(point.name), owner_of(point)))


def owner_of(point: metadata.EntryPoint) -> str:
    """The name of the distribution that brought an entry point."""
    try:
        name = point.dist.name if point.dist else None
    # What an uninstallation left behind has no metadata, and each Python version says so with another
    # exception. Loading the plug-in reads it again and keeps the failure.
    except Exception:  # noqa: BLE001
        name = None
    return name or "unknown distribution"


def _names(text: str) -> frozenset[str]:
    return frozenset(canonical(name) for name in text.split(",") if name.strip())


def _truth(variable: str, text: str) -> bool:
    word = text.strip().lower()
    if word in _YES | _NO:
        return word in _YES
    raise PluginError(f'{variable} is "{text}"; expected 1 or 0')
