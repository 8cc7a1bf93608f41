from typing import Literal

import pytest
from agentlightning.errors import ConfigError, ModelCallFailed, UnroutedCall
from agentlightning.recording import defaults
from agentlightning.recording.emit import emit
from agentlightning.records import Route
from agentlightning.store import RolloutQuery
from agentlightning.testing.model_script import Turn
from agentlightning.testing.model_server import RawReply

KEY = "sk-the-key-of-the-environment"


@pytest.fixture
def local(monkeypatch, server, tmp_path):
    """What ``init`` and the environment would set: this server, and a store of its own."""
    for name in ("AGENTLIGHTNING_MODEL", "OPENAI_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(defaults, "_current", defaults._Current())
    defaults.configure(model="m", store="memory://")
    return defaults.default_store()


def test_outside_a_rollout_a_call_is_a_rollout_of_the_run_local(local, server):
    reply = emit("hello")
    assert reply.text == "ok"
    assert reply.usage["total_tokens"] > 0
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    (run,) = local.runs()
    (rollout,) = local.rollouts(RolloutQuery(run_id=run.run_id)).items
    assert (run.name, rollout.status, rollout.output) == ("local", "succeeded", "ok")
    spans = list(local.spans([rollout.rollout_id]))
    (call,) = [span.call for span in spans if span.kind == "llm"]
    assert call.request == {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    assert KEY not in str(spans)


def test_inside_a_rollout_the_call_is_that_rollouts_and_takes_its_route(local, recording, server):
    defaults.configure()
    route = Route(base_url=server.url, model="policy", extra_body={"temperature": 1.0}).with_key("t")
    with recording.rollout(lambda info: route) as context:
        emit("hello")
    (call,) = recording.calls(context)
    assert (call.model, call.temperature) == ("policy", 1.0)
    assert server.requests[0].headers["authorization"] == "Bearer t"
    assert local.runs() == []


def test_strict_mode_refuses_an_emit_that_nobody_routed(local, recording, server):
    with recording.rollout(lambda info: None, strict=True), pytest.raises(UnroutedCall):
        emit("hello")
    assert not server.requests


def test_tools_are_schemas_or_functions_and_context_comes_first(local, server):
    def weather(city: str, unit: Literal["c", "f"] = "c", days: list[int] | None = None) -> str:
        """Tell the weather.

        At length.
        """

    schema = {"type": "function", "function": {"name": "other", "parameters": {}}}
    server.reply = lambda request: Turn(tool="weather", arguments='{"city": "Rome"}')
    history = [{"role": "user", "content": "earlier"}]
    reply = emit(
        "now",
        tools=[weather, schema],
        context={"customer": "Ann", "orders": [1, 2], "history": history},
    )
    (call,) = reply.tool_calls
    assert (call.name, call.arguments, reply.text) == ("weather", {"city": "Rome"}, "")
    body = server.requests[0].body
    assert body["messages"] == [
        {"role": "system", "content": "customer: Ann\norders: [1, 2]"},
        {"role": "user", "content": "earlier"},
        {"role": "user", "content": "now"},
    ]
    function = body["tools"][0]["function"]
    assert function["description"] == "Tell the weather."
    assert function["parameters"] == {
        "type": "object",
        "required": ["city"],
        "properties": {
            "city": {"type": "string"},
            "unit": {"enum": ["c", "f"]},
            "days": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
        },
    }
    assert body["tools"][1] == schema


@pytest.mark.parametrize(
    "given",
    [
        {"tools": ...},
        {"tools": [...]},
        {"context": {"a": ...}},
        {"context": ...},
        {"tools": ["weather"]},
    ],
)
def test_a_literal_ellipsis_or_a_tool_that_is_none_says_what_belongs_there(local, server, given):
    with pytest.raises(ConfigError, match=r"function|mapping"):
        emit("x", **given)
    assert not server.requests


def test_without_a_model_it_says_how_to_name_one(local, server):
    defaults.configure(store="memory://")
    with pytest.raises(ConfigError, match="AGENTLIGHTNING_MODEL"):
        emit("x")
    assert local.runs() == []


def test_the_environments_model_is_taken(local, server, monkeypatch):
    defaults.configure(store="memory://")
    monkeypatch.setenv("OPENAI_MODEL", "second")
    emit("x")
    monkeypatch.setenv("AGENTLIGHTNING_MODEL", "first")
    emit("x")
    assert [request.body["model"] for request in server.requests] == ["second", "first"]


def test_a_failed_call_is_recorded_and_told(local, server):
    replies = iter(
        [RawReply(f"no {KEY}".encode(), status=500), RawReply(b"<html>"), RawReply(b'{"choices": []}')]
    )
    server.reply = lambda request: next(replies)
    for message in ("answered 500", "not JSON", "no choices"):
        with pytest.raises(ModelCallFailed, match=message) as raised:
            emit("x")
        assert KEY not in str(raised.value)
    rollouts = local.rollouts(RolloutQuery()).items
    assert [rollout.status for rollout in rollouts] == ["failed"] * 3
    for rollout in rollouts:
        spans = list(local.spans([rollout.rollout_id]))
        (call,) = [span.call for span in spans if span.kind == "llm"]
        assert not call.complete
        assert KEY not in str(spans)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"prompt": 3}, "prompt is 3"),
        ({"prompt": ["hello"]}, "prompt is ['hello']"),
        ({"prompt": "hello", "context": "Ann"}, "context is 'Ann'"),
        ({"prompt": "hello", "tools": len}, "tools is <built-in"),
        ({"prompt": "hello", "tools": {"type": "function"}}, "tools is {"),
    ],
)
def test_an_argument_of_another_kind_is_named_before_anything_is_sent(local, server, arguments, named):
    with pytest.raises(ConfigError) as refusal:
        emit(**arguments)
    assert named in str(refusal.value)
    assert "expected" in str(refusal.value)
    assert not server.requests
    assert local.runs() == []
