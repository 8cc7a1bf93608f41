"""What every scenario stands on: the builders an adapter's test supplies, and the fixtures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pytest

from agentlightning.adapter import Capability, Recorder, TracerAdapter
from agentlightning.records import Span
from agentlightning.testing.model_server import ModelServer
from agentlightning.testing.recorded import RecordedAttempts

CALL_ADD: Final = '[[tool:add:{"a": 1, "b": 2};;say:three]]'
CALL_FAIL: Final = "[[tool:fail:{};;say:sorry]]"
CALLS_WITH_A_TOOL: Final = 2  # one that asks for the tool, one that answers


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def fail() -> str:
    """Fail."""
    raise ValueError("the tool broke")


class Stage:
    """The agents, the model they ask, and the adapter that is tested."""

    def adapter(self) -> TracerAdapter:
        """A new adapter, not installed."""
        raise NotImplementedError

    def build(
        self, base_url: str, *, name: str, instructions: str, tools: Sequence[Callable[..., Any]]
    ) -> Any:
        """An agent of that name with a system prompt and these functions as tools."""
        raise NotImplementedError

    def run(self, agent: Any, text: str) -> str:
        """Give the agent a user message and return its last reply."""
        raise NotImplementedError

    async def arun(self, agent: Any, text: str) -> str:  # noqa: ARG002 - for those who override it
        """The same, awaited; leave it out if the framework has no such way."""
        pytest.skip("no async way to run an agent")

    def stream(self, agent: Any, text: str) -> Iterator[str]:
        """The reply in pieces as they come, for adapters that declare ``STREAMING``."""
        raise NotImplementedError

    def build_handoff(self, base_url: str, *, first: str, second: str) -> Any:
        """Two agents; the first one's only tool hands the work over to the second, which has none."""
        raise NotImplementedError

    @pytest.fixture
    def model(self) -> Iterator[ModelServer]:
        """The model server the agents ask."""
        with ModelServer() as server:
            yield server

    @pytest.fixture
    def recorded(self) -> Iterator[RecordedAttempts]:
        """Attempts with the seam in place."""
        with RecordedAttempts() as recorded:
            yield recorded

    @pytest.fixture
    def installed(self, recorded: RecordedAttempts) -> Iterator[TracerAdapter]:  # noqa: ARG002 - first the seam
        """The adapter, installed for this test."""
        adapter = self.adapter()
        adapter.install(Recorder())
        yield adapter
        adapter.uninstall()

    def calculator(self, model: ModelServer, name: str = "calculator") -> Any:
        """An agent that can add, and fail."""
        return self.build(model.url, name=name, instructions=f"You are {name}.", tools=[add, fail])

    @staticmethod
    def needs(adapter: TracerAdapter, capability: Capability) -> None:
        """Skip a scenario about what the adapter does not tell."""
        if capability not in adapter.capabilities:
            pytest.skip(f"the adapter does not declare {capability.name}")

    @staticmethod
    def assert_recorded_once(spans: Sequence[Span], adapter: TracerAdapter) -> None:
        """Of a run of :data:`CALL_ADD`, what was declared is there, and once."""
        if Capability.TOOLS in adapter.capabilities:
            assert [span.name for span in spans if span.kind == "tool"] == ["add"]
        if Capability.AGENT_NAMES in adapter.capabilities:
            assert {span.call.agent for span in spans if span.call} == {"calculator"}
