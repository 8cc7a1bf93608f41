"""What an adapter must leave as it was: the user's agent, its errors and its framework."""

from __future__ import annotations

from typing import Any

import pytest

from agentlightning.adapter import Recorder, TracerAdapter
from agentlightning.recording.guard import faults
from agentlightning.testing.adapter.comparing import awaited, outcome_of
from agentlightning.testing.adapter.stage import CALL_ADD, Stage
from agentlightning.testing.model_server import ModelServer
from agentlightning.testing.recorded import RecordedAttempts


class BrokenRecorder(Recorder):
    """A recorder whose every method raises, as none ever should."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)
        raise RuntimeError(f"the recorder's {name} broke")


class MannersScenarios(Stage):
    """Installing, uninstalling, faults and errors."""

    @pytest.mark.usefixtures("installed")
    def test_an_error_of_the_model_reaches_the_user_unchanged(
        self, recorded: RecordedAttempts, model: ModelServer
    ) -> None:
        """The exception is the one the user would get without us; no span is left open."""
        agent = self.calculator(model)
        expected = outcome_of(lambda: self.run(agent, "FAIL500"))

        with recorded.attempt() as context:
            assert outcome_of(lambda: self.run(agent, "FAIL500")) == expected

        calls = [span.call for span in recorded.spans(context) if span.call]
        assert calls
        assert not any(call.complete for call in calls)
        assert not context.life.open_spans

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

        self.assert_recorded_once(recorded.spans(context), adapter)

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

        self.assert_recorded_once(recorded.spans(while_installed), adapter)
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

            self.assert_recorded_once(recorded.spans(context), adapter)

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
            assert awaited(bound(CALL_ADD)) == "three"
        for other in (object(), "agent", None, lambda task: task):
            assert installed.bind(other) is None
