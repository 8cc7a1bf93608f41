"""A run goes out as OTLP and comes back as the same rollouts, less what OTLP has no place for."""

from __future__ import annotations

import json

import agentlightning as agl
import openai
import pytest
from agentlightning.exchange import EXPORTS, IMPORTS
from agentlightning.llm_api import conversation
from agentlightning.recording.attempt import reward_span
from agentlightning.recording.recorder import Recorder
from agentlightning.records import Outcome, RolloutConfig, RolloutRequest
from agentlightning.samples.calls import recorded_calls
from agentlightning.store import Result, RolloutQuery
from agentlightning.store.memory import MemoryStore
from agentlightning.testing.recorded import RecordedAttempts

SECRET = "sk-never-stored-anywhere"
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
TASK = {"question": '[[tool:add:{"a": 1};;say:two]]', "list": [1, None, {"x": 0.5}]}


def untold(done, total):
    """A progress bar that nobody sees."""


def agent(server, task):
    """Calls a model over three protocols, a tool, and tells of everything else there is."""
    client = openai.OpenAI(base_url=server.url, api_key=SECRET)
    recorder = Recorder()
    with recorder.agent("adder"):
        handle = recorder.start("agent", "adder")
        client.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": task["question"]}],
            tools=[TOOL],
            temperature=0.5,
            n=2,
            extra_headers={"authorization": f"Bearer {SECRET}"},
        )
        tool = recorder.start("tool", "add", attributes={"gen_ai.tool.call.arguments": {"a": 1}})
        tool.tool_result([2, {"exact": True}])
        tool.end()
        client.responses.create(model="m", input="hello", instructions="be brief")
        handle.end()
    client.completions.create(model="m", prompt="say")
    agl.emit_message("[1]")
    agl.emit_object({"a": [None, 1.5]}, name="thing")
    agl.emit_exception(ValueError("dealt with"))
    agl.emit_annotation({"hard": True})
    agl.emit_reward(0.25, name="style", agent="adder")


@pytest.fixture
def source(model_server):
    """A store with one rollout."""
    with RecordedAttempts() as recorded:
        with recorded.attempt() as context:
            agent(model_server, TASK)
        recorded.spans(context)
        reward = reward_span(context, 0.75, source="function")
        outcome = Outcome(status="succeeded", output={"answer": "two"})
        recorded.store.finish([Result(key=context.key, outcome=outcome, spans=(reward,))])
        recorded.store.set_rewards({context.key.rollout_id: 0.75})
        yield recorded.store


@pytest.fixture
def there(source, tmp_path):
    """The file, and the store it was read into."""
    (run,) = source.runs()
    exported = EXPORTS["otlp"].write(source, run.run_id, tmp_path / "run.otlp", untold)
    assert exported.rows["rollout"] == 1
    with MemoryStore() as store:
        told = IMPORTS["otlp"].read(store, tmp_path / "run.otlp", untold)
        assert told.skipped == {}
        yield tmp_path / "run.otlp", store


def _output_tokens(call):
    return call.usage.get("completion_tokens") or call.usage.get("output_tokens")


def rollout_of(store):
    (run,) = store.runs()
    (rollout,) = store.rollouts(RolloutQuery(run_id=run.run_id)).items
    return rollout, list(store.spans([rollout.rollout_id]))


def test_the_rollout_is_the_same(source, there):
    before, _ = rollout_of(source)
    after, _ = rollout_of(there[1])
    for name in ("input", "output", "status", "mode", "reward", "attempt"):
        assert getattr(after, name) == getattr(before, name), name


def test_spans_keep_their_ids_parents_kinds_times_and_events(source, there):
    def shape(spans):
        return {
            span.span_id: (span.parent_id, span.trace_id, span.kind, span.name, span.start_ns,
                           span.end_ns, span.status, span.events)
            for span in spans
        }  # fmt: skip

    _, before = rollout_of(source)
    _, after = rollout_of(there[1])
    assert shape(after) == shape(before)
    assert {span.kind for span in after} > {"agent", "tool", "message", "object", "reward"}


def test_what_the_spans_say_stays_exact(source, there):
    _, before = rollout_of(source)
    after = {span.span_id: span for span in rollout_of(there[1])[1]}
    for span in before:
        if span.call is None:
            assert span.attributes.items() <= after[span.span_id].attributes.items()


def test_calls_are_the_same_conversations_by_the_same_agents(source, there):
    def told(store):
        return [
            (item.call.seq, item.agent, conversation(item.call), _output_tokens(item.call),
             item.call.temperature, [choice.finish_reason for choice in item.call.choices])
            for item in recorded_calls(rollout_of(store)[1])
        ]  # fmt: skip

    assert len(told(source)) == 3
    assert told(there[1]) == told(source)


def test_no_secret_goes_out_and_ids_are_hexadecimal(there):
    text = there[0].read_text()
    assert SECRET not in text
    (line,) = text.splitlines()
    (of_resource,) = json.loads(line)["resourceSpans"]
    for span in of_resource["scopeSpans"][0]["spans"]:
        assert len(bytes.fromhex(span["traceId"])) == 16
        assert len(bytes.fromhex(span["spanId"])) == 8


def test_attempts_before_the_last_come_along(model_server, tmp_path):
    with RecordedAttempts() as recorded:
        store = recorded.store
        (run,) = store.runs()
        config = RolloutConfig(max_attempts=2)
        store.enqueue(run.run_id, [RolloutRequest(input=1, config=config)])
        for status in ("failed", "succeeded"):
            (claim,) = store.claim(run.run_id, "worker")
            span = reward_span(claim.key, 1.0, source="emitted")
            store.finish([Result(key=claim.key, outcome=Outcome(status=status), spans=(span,))])
        EXPORTS["otlp"].write(store, run.run_id, tmp_path / "run.otlp", untold)
    with MemoryStore() as other:
        IMPORTS["otlp"].read(other, tmp_path / "run.otlp", untold)
        rollout, spans = rollout_of(other)
        assert rollout.attempt == 2
        assert len(spans) == 1
        assert len(list(other.spans([rollout.rollout_id], attempt="all"))) == 2
