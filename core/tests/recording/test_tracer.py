import logging

import openai
import pytest
from agentlightning import semconv
from agentlightning.recording.emitters import emit_exception, emit_reward
from agentlightning.recording.tracer import Tracer
from agentlightning.store import RolloutQuery
from agentlightning.store.memory import MemoryStore
from agentlightning.store.opening import open_store
from openai import _base_client

HI = [{"role": "user", "content": "hi"}]


@pytest.fixture
def store():
    made = MemoryStore()
    yield made
    made.close()


def ask(server):
    model = openai.OpenAI(base_url=server.url, api_key="k", max_retries=0)
    return model.chat.completions.create(model="m", messages=HI)


def rollout(store, trace):
    return store.rollouts(RolloutQuery(rollout_ids=(trace.rollout_id,))).items[0]


def test_any_agent_is_recorded_as_one_rollout(store, server):
    original = _base_client.SyncAPIClient.request

    class Assistant:
        name = "helper"

    with Tracer(store).trace(Assistant(), input={"q": 1}) as trace:
        ask(server)
        assert [span.kind for span in trace.spans()] == ["llm"]
        ask(server)
        trace.reward(0.5)
        trace.output = "answer"
    assert [span.kind for span in trace.spans()] == ["llm", "llm", "reward", "agent"]
    assert trace.spans()[-1].name == "helper"
    done = rollout(store, trace)
    assert (done.status, done.reward, done.output, done.input) == ("succeeded", 0.5, "answer", {"q": 1})
    assert store.runs()[0].name == "local"
    assert _base_client.SyncAPIClient.request is original
    trace.reward(0.75)
    assert rollout(store, trace).reward == 0.75


def test_an_exception_marks_the_rollout_failed_and_goes_on(store, server):
    def run():
        nonlocal trace
        with Tracer(store).trace("agent") as trace:
            ask(server)
            emit_reward(1.0)
            raise ValueError("mine")

    trace = None
    with pytest.raises(ValueError, match="mine"):
        run()
    done = rollout(store, trace)
    assert (done.status, done.reward) == ("failed", 1.0)
    assert store.attempts(trace.rollout_id)[0].error == "ValueError: mine"
    assert [span.kind for span in trace.spans()] == ["llm", "reward", "agent"]


def test_inside_a_rollout_a_trace_is_a_span_of_it(recording, installed, server):
    with recording.rollout() as context, Tracer("memory://").trace("sub") as trace:
        ask(server)
    assert trace.rollout_id == context.key.rollout_id
    spans = recording.spans(context)
    sub = next(span for span in spans if span.name == "sub")
    (call,) = [span for span in spans if span.kind == "llm"]
    assert call.parent_id == sub.span_id
    assert call.call.agent == "sub"


def test_inside_a_rollout_a_trace_reads_and_writes_that_rollouts_store(
    recording, installed, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with recording.rollout() as context:
        with Tracer().trace("sub", input={"q": 1}) as trace:
            trace.reward(0.5)
            trace.output = "answer"
            assert [span.kind for span in trace.spans()] == ["reward"]
        assert [span.name for span in trace.spans()] == ["reward", "sub"]
        assert trace.spans() == recording.spans(context)
    sub = trace.spans()[1]
    assert sub.attributes[semconv.OPERATION_INPUT] == {"q": 1}
    assert sub.attributes[semconv.OPERATION_OUTPUT] == "answer"
    assert not list(tmp_path.iterdir())


def test_the_outcome_is_the_last_reward_of_the_whole_rollout(store):
    with Tracer(store).trace("agent") as trace:
        emit_reward(0.25)
        emit_reward(1, agent="writer")
        emit_reward(1, step=True)
        emit_reward(1, name="style")
    assert rollout(store, trace).reward == 0.25
    trace.reward(1, name="style")
    assert rollout(store, trace).reward == 0.25
    trace.reward(0.5)
    assert rollout(store, trace).reward == 0.5


def test_a_rollout_without_an_outcome_stays_unscored(store):
    with Tracer(store).trace("agent") as trace:
        emit_reward(1, agent="writer")
    assert rollout(store, trace).reward is None


def test_no_key_reaches_the_database_or_the_log(tmp_path, server, caplog):
    key = "sk-the-users-own-secret-key"
    caplog.set_level(logging.DEBUG, "agentlightning")
    file = tmp_path / "traces.db"
    model = openai.OpenAI(base_url=server.url, api_key=key, max_retries=0)
    opened = open_store(f"sqlite:///{file}")
    with Tracer(opened).trace("agent", input={"api_key": key}):
        model.chat.completions.create(model="m", messages=HI, extra_headers={"x": key})
        emit_exception(ValueError(f"could not log in with {key}"))
    opened.close()
    written = b"".join(part.read_bytes() for part in tmp_path.iterdir())
    assert b"chat m" in written
    assert key.encode() not in written
    assert key not in caplog.text
