"""What an agent, its tools and a handoff look like once recorded."""

from __future__ import annotations

from collections.abc import Sequence

from agentlightning import semconv
from agentlightning.adapter import Capability, TracerAdapter
from agentlightning.records import Span
from agentlightning.testing.adapter.comparing import from_json_text, outcome_of
from agentlightning.testing.adapter.stage import CALL_ADD, CALL_FAIL, CALLS_WITH_A_TOOL, Stage, add
from agentlightning.testing.model_script import Turn
from agentlightning.testing.model_server import ModelRequest, ModelServer
from agentlightning.testing.recorded import RecordedAttempts


class StructureScenarios(Stage):
    """Agents, tools, handoffs and streams as one tree."""

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
            assert from_json_text(tool.attributes[semconv.TOOL_ARGUMENTS]) == {"a": 1, "b": 2}
            assert from_json_text(tool.attributes[semconv.TOOL_RESULT]) == add(1, 2)
            assert "calculator" in _names_above(tool, spans)

    def test_a_tool_that_raises_is_recorded_and_the_agent_does_what_it_always_does(
        self, installed: TracerAdapter, recorded: RecordedAttempts, model: ModelServer
    ) -> None:
        """A broken tool is a failed span, and whatever the framework makes of it stays the same."""
        self.needs(installed, Capability.TOOLS)
        agent = self.calculator(model)
        expected = outcome_of(lambda: self.run(agent, CALL_FAIL))

        with recorded.attempt() as context:
            assert outcome_of(lambda: self.run(agent, CALL_FAIL)) == expected

        [tool] = recorded.spans(context, "tool")
        assert (tool.name, tool.status) == ("fail", "error")
        assert "the tool broke" in f"{tool.events} {tool.attributes}"

    def test_work_that_is_handed_over_is_the_second_agents(
        self, installed: TracerAdapter, recorded: RecordedAttempts, model: ModelServer
    ) -> None:
        """After a handoff the calls are the second agent's, and a handoff is no error."""
        self.needs(installed, Capability.HANDOFFS)
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
        self.needs(installed, Capability.STREAMING)
        agent = self.calculator(model)

        with recorded.attempt() as context:
            assert "".join(self.stream(agent, "[[say:piece by piece]]")) == "piece by piece"

        [call] = [span.call for span in recorded.spans(context) if span.call]
        assert (call.streamed, call.complete, call.agent) == (True, True, "calculator")


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
