"""The adapter: it turns what Echo tells its listeners into spans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentlightning.adapter import Capability, Recorder, TracerAdapter


class EchoAdapter(TracerAdapter):
    """Records the agents and tools of Echo, and runs an Echo agent given to ``fit`` as it is."""

    capabilities = frozenset({Capability.AGENT_NAMES, Capability.TOOLS})

    def __init__(self) -> None:
        self._listener: _Listener | None = None

    def install(self, recorder: Recorder) -> None:
        """Listen to Echo."""
        import echo_agents

        if self._listener is None:
            self._listener = _Listener(recorder)
            echo_agents.listeners.append(self._listener)

    def uninstall(self) -> None:
        """Stop listening."""
        import echo_agents

        if self._listener is not None:
            echo_agents.listeners.remove(self._listener)
            self._listener = None

    def bind(self, agent: object) -> Callable[[Any], Any] | None:
        """An Echo agent is run with its ``run`` method."""
        import echo_agents

        return agent.run if isinstance(agent, echo_agents.Agent) else None


class _Listener:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._agents: dict[int, Any] = {}

    def started(self, run: int, kind: str, name: str, given: str, parent: int | None) -> None:
        self._recorder.start(kind, name, key=run, parent=parent, attributes={"echo.given": given})
        if kind == "agent":
            self._agents[run] = self._recorder.enter_agent(name)

    def ended(self, run: int, result: str | None, error: Exception | None) -> None:
        if run in self._agents:
            self._recorder.leave_agent(self._agents.pop(run))
        span = self._recorder.get(run)
        if span is None:
            return
        if error is not None:
            span.error(error)
        else:
            span.tool_result(result)
        span.end()
