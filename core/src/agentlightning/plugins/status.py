"""What became of each plug-in: the records behind ``agl plugins`` and behind warnings."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from agentlightning.plugins.requirements import Need


class State(enum.Enum):
    """What became of a plug-in."""

    BUILTIN = "built-in"
    ACTIVE = "active"
    INACTIVE = "inactive"
    DISABLED = "disabled"
    FAILED = "failed"


@dataclass(frozen=True)
class PluginFailure:
    """A plug-in that could not be used, and why.

    Attributes:
        name: its entry point's name.
        stage: what was being done: ``select``, ``metadata``, ``import``, ``register``, ``validate``,
            or the hook that was called.
        reason: what went wrong, in one line.
    """

    name: str
    distribution: str
    version: str
    stage: str
    reason: str
    error: BaseException | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        """One line that names plug-in, distribution, stage and reason."""
        owner = f" of {self.distribution} {self.version}".rstrip() if self.distribution else ""
        return f'plug-in "{self.name}"{owner} failed at {self.stage}: {self.reason}'


@dataclass(frozen=True)
class PluginInfo:
    """A plug-in as listings show it.

    Attributes:
        reason: why it is not active; None if it is.
        needs: the framework range and the versions found.
        offers: kind and name of all it offers.
    """

    name: str
    distribution: str
    version: str
    state: State
    reason: str | None = None
    needs: tuple[Need, ...] = ()
    offers: tuple[tuple[str, str], ...] = ()
