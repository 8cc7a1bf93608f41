"""Many rollouts at once, and one agent of several that is routed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from agentlightning import semconv
from agentlightning.adapter import Capability, TracerAdapter
from agentlightning.records import CallInfo, Decision, Passthrough, Route, Span
from agentlightning.testing.adapter.comparing import from_json_text
from agentlightning.testing.adapter.stage import CALLS_WITH_A_TOOL, Stage
from agentlightning.testing.model_server import ModelServer
from agentlightning.testing.recorded import RecordedAttempts


class IsolationScenarios(Stage):
    """Nothing of one rollout or agent reaches another."""

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
                assert_is_of(number, spans, installed)

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
            assert_is_of(number, spans, installed)

    def test_only_the_chosen_agent_is_routed(
        self, installed: TracerAdapter, recorded: RecordedAttempts, model: ModelServer
    ) -> None:
        """Calls of one agent go elsewhere, with another prompt; the other's are left alone."""
        self.needs(installed, Capability.AGENT_NAMES)
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


def _sum_of(number: int) -> str:
    return f'[[tool:add:{{"a": {number}, "b": 1}};;say:said {number}]]'


def assert_is_of(number: int, spans: Sequence[Span], adapter: TracerAdapter) -> None:
    """All that was recorded belongs to the rollout that said this number."""
    calls = [span.call for span in spans if span.call]
    assert len(calls) == CALLS_WITH_A_TOOL
    assert all(f"said {number}" in json.dumps(call.request) for call in calls)
    if Capability.AGENT_NAMES in adapter.capabilities:
        assert {call.agent for call in calls} == {"calculator"}
    if Capability.TOOLS in adapter.capabilities:
        [tool] = [span for span in spans if span.kind == "tool"]
        assert from_json_text(tool.attributes[semconv.TOOL_RESULT]) == number + 1
