"""The contract of a tracer adapter: the plug-in that gives one framework's structure."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from agentlightning.recording.guard import never_raises
from agentlightning.recording.recorder import AgentToken, Recorder, SpanHandle
from agentlightning.records import JSON

__all__ = ["AgentToken", "Capability", "Recorder", "SpanHandle", "TracerAdapter", "never_raises"]


class Capability(enum.Enum):
    """What an adapter can tell or do for its framework."""

    AGENT_NAMES = "agent_names"
    TOOLS = "tools"
    HANDOFFS = "handoffs"
    STREAMING = "streaming"
    PROMPT_OVERRIDE = "prompt_override"


class TracerAdapter(ABC):
    """Adds structure (agents, tools, handoffs) to what the seam records.

    Registered as ``adapter(**options)`` with the module whose import activates it.
    LLM calls are never recorded by an adapter. Nothing it does may raise into user code: the
    :class:`Recorder` never raises, and a callback guards whatever else it touches
    (:func:`never_raises` logs and counts such a fault).
    """

    capabilities: frozenset[Capability]

    @abstractmethod
    def install(self, recorder: Recorder) -> None:
        """Hook into the framework, which is imported by now; a second call changes nothing."""

    @abstractmethod
    def uninstall(self) -> None:
        """Restore the exact originals."""

    def bind(self, agent: object) -> Callable[[JSON], Any] | None:  # noqa: ARG002 - the default binds nothing
        """The framework's own agent object as ``task -> output`` (sync or async); None = not mine."""
        return None
