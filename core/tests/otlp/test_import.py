"""Traces that other tracers wrote become a run: its rollouts, calls, tools and rewards."""

from __future__ import annotations

import gzip
import json

import pytest
from agentlightning.errors import ExchangeError
from agentlightning.exchange import TraceOptions, import_traces
from agentlightning.llm_api import conversation
from agentlightning.samples import Reason, transitions
from agentlightning.samples.calls import recorded_calls
from agentlightning.samples.types import CreditRules
from agentlightning.server import Limits, Server, build_app
from agentlightning.store import RolloutQuery
from agentlightning.store.opening import open_store

TASK = '[[tool:add:{"a": 1};;say:two]]'
ASKED = [{"role": "system", "content": "be brief"}, {"role": "user", "content": TASK}]
SECRET = "sk-never"


def untold(done, total):
    """A progress bar that nobody sees."""


@pytest.fixture(params=["openinference", "openllmetry"])
def files(request, traced):
    """What one of the instrumentors wrote."""
    return traced(request.param)


def imported(store, *paths, **options):
    return import_traces(store, paths, TraceOptions(**options), untold)


def rollouts(store, run_id):
    return store.rollouts(RolloutQuery(run_id=run_id)).items


def calls(store, rollout):
    return [item.call for item in recorded_calls(list(store.spans([rollout.rollout_id])))]


@pytest.mark.parametrize("shape", ["json", "protobuf", "delimited"])
def test_an_agents_trace_becomes_a_rollout_with_its_calls(store, files, shape):
    told = imported(store, files / f"assistant.{shape}")
    (rollout,) = rollouts(store, told.runs[0])
    assert (rollout.status, rollout.mode) == ("succeeded", "train")
    assert (rollout.input, rollout.output) == (TASK, "two")
    first, second = calls(store, rollout)
    assert conversation(first)[:-1] == ASKED
    (called,) = conversation(first)[-1]["tool_calls"]
    assert called["function"]["name"] == "add"
    assert json.loads(called["function"]["arguments"]) == {"a": 1}
    asked = conversation(second)[:-1]
    assert asked[:2] == ASKED
    assert asked[3] == {"role": "tool", "tool_call_id": called["id"], "content": "2"}
    assert conversation(second)[-1] == {"role": "assistant", "content": "two"}
    (tool,) = first.request["tools"]
    assert tool["function"]["parameters"]["properties"] == {"a": {"type": "number"}}
    assert (first.complete, first.temperature, first.usage["completion_tokens"]) == (True, 0.5, 30)
    spans = list(store.spans([rollout.rollout_id]))
    assert sorted(span.kind for span in spans) == ["agent", "llm", "llm", "tool"]
    (tool,) = [span for span in spans if span.kind == "tool"]
    assert tool.attributes["gen_ai.tool.call.result"] == "2"
    assert told.skipped == {}
    assert SECRET not in str(spans)


def test_such_calls_are_nothing_for_rl_and_say_so(store, files):
    told = imported(store, files / "assistant.json")
    (rollout,) = rollouts(store, told.runs[0])
    spans = list(store.spans([rollout.rollout_id]))
    assert {item.dropped for item in transitions(rollout, spans, CreditRules())} == {
        Reason.NO_TOKEN_IDS
    }


def test_other_protocols_and_streams_are_read_too(store, files):
    told = imported(store, files / "protocols.json")
    (rollout,) = rollouts(store, told.runs[0])
    said = [conversation(call) for call in calls(store, rollout)]
    reply = {"role": "assistant", "content": "ok"}
    assert said == [
        [ASKED[0], {"role": "user", "content": "hello"}, reply],
        [ASKED[0], reply],
        [{"role": "user", "content": "say"}, reply],
    ]
    assert rollout.input == {"messages": said[0][:2]}
    assert rollout.output == "ok"


def test_a_call_that_failed_is_incomplete_and_fails_its_rollout(store, files):
    told = imported(store, files / "failing.json")
    (rollout,) = rollouts(store, told.runs[0])
    (call,) = calls(store, rollout)
    assert (rollout.status, rollout.output, call.complete) == ("failed", None, False)
    assert "FAIL500 was asked for" in call.error
    assert "FAIL500 was asked for" in store.attempts(rollout.rollout_id)[0].error


def test_the_same_twice_adds_nothing_and_more_files_what_is_new(store, files):
    path = files / "assistant.json"
    first = imported(store, path)
    again = imported(store, path)
    assert (first.new, again.new) == (first.rows.total(), 0)
    more = imported(store, path, files / "longer.json", run_name="assistant")
    assert more.runs == first.runs
    assert [item.output for item in rollouts(store, first.runs[0])] == ["two", "more"]
    assert more.new == 1 + 1 + 2


def test_a_session_of_several_traces_is_one_rollout(store, files):
    told = imported(store, files / "sessions.json", group_by="session.id", run_name="mine")
    assert store.run(told.runs[0]).name == "mine"
    one, two = rollouts(store, told.runs[0])
    assert [conversation(call)[-1]["content"] for call in calls(store, one)] == ["one", "three"]
    assert len(calls(store, two)) == 1


def test_named_attributes_become_rewards(store, files):
    path = files / "scored.json"
    told = imported(store, path)
    assert [item.reward for item in rollouts(store, told.runs[0])] == [None] * 4
    assert len({item.group_id for item in rollouts(store, told.runs[0])}) == 1  # one task, four times
    scored = imported(store, path, rewards={"eval.correct": "reward"})
    assert [item.reward for item in rollouts(store, told.runs[0])] == [0.25, 1.0, 0.5, None]
    assert scored.new == 3
    assert scored.skipped == {"values of eval.correct that are no finite number": 1}


def test_a_call_that_two_tracers_told_of_is_one_call(store, traced):
    told = imported(store, traced("openinference+openllmetry") / "assistant.json")
    (rollout,) = rollouts(store, told.runs[0])
    assert [conversation(call)[-1]["content"] for call in calls(store, rollout)] == [None, "two"]
    assert told.skipped == {"LLM spans of a call that another span told of: kept as structure": 2}


def test_a_trace_without_content_says_what_to_switch_on(store, traced):
    told = imported(store, traced("openllmetry") / "silent.json")
    (rollout,) = rollouts(store, told.runs[0])
    assert calls(store, rollout) == []
    ((reason, count),) = told.skipped.items()
    assert count == 2
    assert "capture of content" in reason


JUNK = (
    b'{"resourceLogs": []}\nno json\n{"resourceSpans": [{"scopeSpans": 3}]}\n'
    b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"00","spanId":"1"}]}]}]}\n'
    b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"00","spanId":"11"}]}]}]}\n'
)


def test_what_cannot_be_read_is_counted(store, files, tmp_path):
    path = tmp_path / "traces.json"
    path.write_bytes((files / "assistant.json").read_bytes() + JUNK)
    told = imported(store, path)
    assert told.rows["rollout"] == 1
    assert told.skipped.total() == 5
    assert any("span id" in reason for reason in told.skipped)


def line(number, **told):
    """A trace of one span, as a line."""
    attributes = [{"key": key, "value": {"stringValue": text}} for key, text in told.items()]
    span = {"traceId": f"{number:032x}", "spanId": f"{number:016x}", "attributes": attributes}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}) + "\n"


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ('{"args": ["question"], "kwargs": {}}', "question"),
        ('{"args": [], "kwargs": {"a": 1}}', {"a": 1}),
        ('{"args": [1, 2], "kwargs": {}}', {"args": [1, 2], "kwargs": {}}),
        ('{"inputs": {"q": 1}, "tags": []}', {"q": 1}),
        ('"text"', "text"),
        ("no json", "no json"),
        ('{"api_key": "abcdefghijk"}', {"api_key": "[removed: secret]"}),
        ('"\\ud800"', "\\ud800"),  # half a character, which no store takes
    ],
)
def test_the_task_is_what_the_root_was_given(store, tmp_path, told, kept):
    (tmp_path / "one.json").write_text(line(1, **{"traceloop.entity.input": told}))
    (rollout,) = rollouts(store, imported(store, tmp_path / "one.json").runs[0])
    assert rollout.input == kept


def test_a_rollout_that_the_store_refuses_keeps_no_other_out(store, tmp_path, monkeypatch):
    server = Server(build_app(store=store, limits=Limits(body_bytes=20_000)))
    monkeypatch.setenv("AGENTLIGHTNING_STORE_TOKEN", store.access_token("owner"))
    path = tmp_path / "traces.json"
    long = "x" * 30_000
    path.write_text("".join(line(number, text=text) for number, text in enumerate(("a", long, "c"), 1)))
    with open_store(server.start()) as behind:
        told = imported(behind, path)
    server.stop()
    assert told.rows["rollout"] == len(rollouts(store, told.runs[0])) == 2
    ((reason, count),) = told.skipped.items()
    assert count == 1
    assert reason.startswith("rollouts that the store refused")


@pytest.mark.parametrize("body", [b'{"resourceLogs": []}', b"\x07abc", b"\n\xff", b"", b"[1, 2]"])
def test_a_file_without_spans_is_refused_and_leaves_nothing(store, tmp_path, body):
    (tmp_path / "some").write_bytes(body)
    with pytest.raises(ExchangeError, match="no span in"):
        imported(store, tmp_path / "some")
    with pytest.raises(ExchangeError, match="cannot read"):
        imported(store, tmp_path / "missing")
    assert store.runs() == []


def test_a_document_over_many_lines_and_a_packed_file_are_read(store, files, tmp_path):
    lines = (files / "assistant.json").read_bytes().splitlines()
    whole = json.dumps([json.loads(line) for line in lines], indent=2).encode()
    (tmp_path / "whole.json.gz").write_bytes(gzip.compress(whole))
    assert imported(store, tmp_path / "whole.json.gz").rows["rollout"] == 1
