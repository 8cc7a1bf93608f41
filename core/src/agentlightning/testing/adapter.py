"""What every tracer adapter has to pass, against its real framework and a scripted model server."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from agentlightning import semconv
from agentlightning.adapter import Capability, Recorder, TracerAdapter
from agentlightning.recording.guard import faults
from agentlightning.records import CallInfo, Decision, Passthrough, Route, Span
from agentlightning.testing.model_script import Turn
from agentlightning.testing.model_server import ModelRequest, ModelServer
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


class BrokenRecorder(Recorder):
    """A recorder whose every method raises, as none ever should."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)
        raise RuntimeError(f"the recorder's {name} broke")


class AdapterConformance:
    """Inherit, supply the builders, and every scenario runs against your framework.

    Agents have to ask their model through an OpenAI-style client of the framework's own, at the
    address they are given and without retries. A scenario of a capability that the adapter does not
    declare is skipped.

    Example:
        >>> class TestMyAdapter(AdapterConformance):
        ...     def adapter(self): return MyAdapter()
        ...     def build(self, base_url, *, name, instructions, tools): return MyAgent(…)
        ...     def run(self, agent, text): return agent.ask(text)
    """

    # --- what the test of an adapter supplies -----------------------------------------------------

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

    # --- the stage --------------------------------------------------------------------------------

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

    # --- the scenarios ----------------------------------------------------------------------------

    def test_agent_calls_and_tool_are_recorded_as_one_tree(
        self, installed: TracerAdapter, recorded: RecordedAttempts, model: ModelServer
    ) -> None:
        """Calls and tool lie below their agent, the tool with its arguments and its result."""
        agent = self.calculator(model)

        with recorded.attempt() as context:
            assert self.run(agent, CALL_ADD) == "three"

        spans = recorded.spans(context)
        calls = [span.call for span in spans if span.call]
        assert len(calls) == CALLS_WITH_A_TOOL
        assert all(call.complete for call in calls)
        if Capability.AGENT_NAMES in installed.capabilities:
            assert [call.agent for call in calls] == ["calculator", "calculator"]
            assert "calculator" in {span.attributes.get(semconv.AGENT_NAME) for span in spans}
            assert all("calculator" in _names_above(span, spans) for span in spans if span.call)
        if Capability.TOOLS in installed.capabilities:
            [tool] = [span for span in spans if span.kind == "tool"]
            assert (tool.name, tool.status) == ("add", "ok")
            assert tool.attributes[semconv.TOOL_NAME] == "add"
            assert _json(tool.attributes[semconv.TOOL_ARGUMENTS]) == {"a": 1, "b": 2}
            assert _json(tool.attributes[semconv.TOOL_RESULT]) == add(1, 2)
            assert "calculator" in _names_above(tool, spans)

    def test_a_tool_that_raises_is_recorded_and_the_agent_does_what_it_always_does(
        self, installed: TracerAdapter, recorded: RecordedAttempts, model: ModelServer
    ) -> None:
        """A broken tool is a failed span, and whatever the framework makes of it stays the same."""
        if Capability.TOOLS not in installed.capabilities:
            pytest.skip("the adapter tells no tools")
        agent = self.calculator(model)
        expected = _outcome(lambda: self.run(agent, CALL_FAIL))

        with recorded.attempt() as context:
            assert _outcome(lambda: self.run(agent, CALL_FAIL)) == expected

        [tool] = recorded.spans(context, "tool")
        assert (tool.name, tool.status) == ("fail", "error")
        assert "the tool broke" in f"{tool.events} {tool.attributes}"

    @pytest.mark.usefixtures("installed")
    def test_an_error_of_the_model_reaches_the_user_unchanged(
        self, recorded: RecordedAttempts, model: ModelServer
    ) -> None:
        """The exception is the one the user would get without us; no span is left open."""
        agent = self.calculator(model)
        expected = _outcome(lambda: self.run(agent, "FAIL500"))

        with recorded.attempt() as context:
            assert _outcome(lambda: self.run(agent, "FAIL500")) == expected

        calls = [span.call for span in recorded.spans(context) if span.call]
        assert calls
        assert not any(call.complete for call in calls)
        assert not context.life.open_spans

    def test_rollouts_in_threads_never_mix(
        self, installed: TracerAdapter, recorded: RecordedAttempts, model: ModelServer
    ) -> None:
        """Four threads, one agent object: each rollout has its own calls and tools only."""
        model.delay_s = 0.02
        agent = self.calculator(model)

        def work(number: int) -> list[Span]:
            with recorded.attempt() as context:
                assert self.run(agent, _sum_of(number)) == f"said {number}"
            return recorded.spans(context)

        with ThreadPoolExecutor(4) as pool:
            for number, spans in enumerate(pool.map(work, range(4))):
                self._assert_is_of(number, spans, installed)

    def test_rollouts_in_one_event_loop_never_mix(
        self, installed: TracerAdapter, recorded: RecordedAttempts, model: ModelServer
    ) -> None:
        """Four tasks of one event loop, one agent object."""
        model.delay_s = 0.02
        agent = self.calculator(model)

        async def work(number: int) -> list[Span]:
            with recorded.attempt() as context:
                assert await self.arun(agent, _sum_of(number)) == f"said {number}"
            return recorded.spans(context)

        async def all_at_once() -> list[list[Span]]:
            return await asyncio.gather(*(work(number) for number in range(4)))

        for number, spans in enumerate(asyncio.run(all_at_once())):
            self._assert_is_of(number, spans, installed)

    def test_only_the_chosen_agent_is_routed(
        self, installed: TracerAdapter, recorded: RecordedAttempts, model: ModelServer
    ) -> None:
        """Calls of one agent go elsewhere, with another prompt; the other's are left alone."""
        if Capability.AGENT_NAMES not in installed.capabilities:
            pytest.skip("the adapter tells no agent names")
        alice, bob = self.calculator(model, "alice"), self.calculator(model, "bob")
        overrides = Capability.PROMPT_OVERRIDE in installed.capabilities

        with ModelServer() as policy:

            def resolve(info: CallInfo) -> Decision:
                if info.agent != "bob":
                    return Passthrough(reason="not trained")
                prompt = "You are better." if overrides else None
                return Route(base_url=policy.url, model="policy", system_prompt=prompt)

            with recorded.attempt(resolve):
                self.run(alice, "hello")
                self.run(bob, "hello")

            [theirs], [ours] = model.requests, policy.requests
        assert "You are alice." in json.dumps(theirs.body)
        assert ours.body["model"] == "policy"
        assert ("You are bob." in json.dumps(ours.body)) is not overrides
        assert ("You are better." in json.dumps(ours.body)) is overrides

    def test_work_that_is_handed_over_is_the_second_agents(
        self, installed: TracerAdapter, recorded: RecordedAttempts, model: ModelServer
    ) -> None:
        """After a handoff the calls are the second agent's, and a handoff is no error."""
        if Capability.HANDOFFS not in installed.capabilities:
            pytest.skip("the adapter tells no handoffs")
        agent = self.build_handoff(model.url, first="alice", second="bob")
        model.reply = _call_the_tool_or_be_done

        with recorded.attempt() as context:
            assert self.run(agent, "hello") == "done"

        spans = recorded.spans(context)
        handoffs = [span.attributes.get(semconv.HANDOFF_TO) for span in spans]
        assert [span.call.agent for span in spans if span.call] == ["alice", "bob"]
        assert [name for name in handoffs if name] == ["bob"]
        assert [span.name for span in spans if span.status == "error"] == []

    def test_a_streamed_reply_is_the_agents(
        self, installed: TracerAdapter, recorded: RecordedAttempts, model: ModelServer
    ) -> None:
        """A stream is recorded whole and under the agent's name."""
        if Capability.STREAMING not in installed.capabilities:
            pytest.skip("the adapter tells nothing about streams")
        agent = self.calculator(model)

        with recorded.attempt() as context:
            assert "".join(self.stream(agent, "[[say:piece by piece]]")) == "piece by piece"

        [call] = [span.call for span in recorded.spans(context) if span.call]
        assert (call.streamed, call.complete, call.agent) == (True, True, "calculator")

    def test_an_agent_built_before_is_recorded(
        self, recorded: RecordedAttempts, model: ModelServer
    ) -> None:
        """Agents and clients that were built, and used, before the adapter came are recorded."""
        agent = self.calculator(model)
        self.run(agent, "hello")
        adapter = self.adapter()
        adapter.install(Recorder())
        try:
            with recorded.attempt() as context:
                self.run(agent, CALL_ADD)
        finally:
            adapter.uninstall()

        self._assert_tools(recorded.spans(context), 1, adapter)

    def test_installing_twice_records_once_and_uninstalling_leaves_no_trace(
        self, recorded: RecordedAttempts, model: ModelServer
    ) -> None:
        """A second install changes nothing; after uninstalling there are LLM calls and no structure."""
        agent, adapter = self.calculator(model), self.adapter()
        adapter.install(Recorder())
        adapter.install(Recorder())
        with recorded.attempt() as while_installed:
            self.run(agent, CALL_ADD)
        adapter.uninstall()
        adapter.uninstall()
        with recorded.attempt() as afterwards:
            assert self.run(agent, CALL_ADD) == "three"

        self._assert_tools(recorded.spans(while_installed), 1, adapter)
        kinds = [span.kind for span in recorded.spans(afterwards)]
        assert kinds == ["llm", "llm", "agent"]
        assert {span.call.agent for span in recorded.spans(afterwards) if span.call} == {None}

    def test_it_can_be_installed_again(self, recorded: RecordedAttempts, model: ModelServer) -> None:
        """Installing again after uninstalling works, and records once."""
        agent = self.calculator(model)
        for _ in range(2):
            adapter = self.adapter()
            adapter.install(Recorder())
            with recorded.attempt() as context:
                self.run(agent, CALL_ADD)
            adapter.uninstall()

            self._assert_tools(recorded.spans(context), 1, adapter)

    def test_a_recorder_that_raises_leaves_the_agent_alone_and_is_reported(
        self, recorded: RecordedAttempts, model: ModelServer
    ) -> None:
        """Our own faults are logged and counted, and never reach the agent."""
        agent, adapter = self.calculator(model), self.adapter()
        before = sum(faults().values())
        adapter.install(BrokenRecorder())
        try:
            with recorded.attempt():
                assert self.run(agent, CALL_ADD) == "three"
        finally:
            adapter.uninstall()

        assert sum(faults().values()) > before

    @pytest.mark.usefixtures("installed")
    def test_outside_a_rollout_the_agent_runs_as_ever(self, model: ModelServer) -> None:
        """Without a rollout nothing is recorded and nothing is in the way."""
        assert self.run(self.calculator(model), CALL_ADD) == "three"

    def test_its_agents_become_functions_of_a_task_and_nothing_else_does(
        self, installed: TracerAdapter, recorded: RecordedAttempts, model: ModelServer
    ) -> None:
        """``bind`` takes the framework's agents; whatever else it is given is not its own."""
        bound = installed.bind(self.calculator(model))

        assert bound is not None
        with recorded.attempt():
            assert _awaited(bound(CALL_ADD)) == "three"
        for other in (object(), "agent", None, lambda task: task):
            assert installed.bind(other) is None

    # --- what several scenarios look at -----------------------------------------------------------

    def _assert_is_of(self, number: int, spans: Sequence[Span], adapter: TracerAdapter) -> None:
        calls = [span.call for span in spans if span.call]
        assert len(calls) == CALLS_WITH_A_TOOL
        assert all(f"said {number}" in json.dumps(call.request) for call in calls)
        if Capability.AGENT_NAMES in adapter.capabilities:
            assert {call.agent for call in calls} == {"calculator"}
        if Capability.TOOLS in adapter.capabilities:
            [tool] = [span for span in spans if span.kind == "tool"]
            assert _json(tool.attributes[semconv.TOOL_RESULT]) == number + 1

    def _assert_tools(self, spans: Sequence[Span], count: int, adapter: TracerAdapter) -> None:
        if Capability.TOOLS in adapter.capabilities:
            assert sum(span.kind == "tool" for span in spans) == count
        if Capability.AGENT_NAMES in adapter.capabilities:
            assert {span.call.agent for span in spans if span.call} == {"calculator"}


def _sum_of(number: int) -> str:
    return f'[[tool:add:{{"a": {number}, "b": 1}};;say:said {number}]]'


def _call_the_tool_or_be_done(request: ModelRequest) -> Turn | str:
    tools = request.body.get("tools")
    return Turn(tool=tools[0]["function"]["name"]) if tools else "done"


def _names_above(span: Span, spans: Sequence[Span]) -> set[str]:
    by_id = {one.span_id: one for one in spans}
    names, above = set(), by_id.get(span.parent_id or "")
    while above is not None:
        names.add(above.name)
        above = by_id.get(above.parent_id or "")
    return names


def _json(value: Any) -> Any:
    """A tool's arguments or result, which some frameworks hand on as text."""
    return json.loads(value) if isinstance(value, str) else value


def _outcome(work: Callable[[], Any]) -> tuple[str, str]:
    """What a call gave or raised, to compare with another."""
    try:
        return "returned", str(work())
    except Exception as error:  # noqa: BLE001 - which one it is, is what the test looks at
        return type(error).__qualname__, str(error)


def _awaited(value: Any) -> Any:
    async def wait() -> Any:
        return await value

    return asyncio.run(wait()) if inspect.isawaitable(value) else value
