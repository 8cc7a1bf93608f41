"""What the record of a call holds, whichever way the agent asks."""

import asyncio
import json
import logging
import threading

import openai
import pytest
from agentlightning.recording import seam
from agentlightning.recording.ids import span_id_of_try
from agentlightning.recording.recorder import Recorder
from agentlightning.samples.calls import recorded_calls
from agentlightning.testing.model_bodies import responses_body
from agentlightning.testing.model_server import RawReply
from openai import NOT_GIVEN
from pydantic import BaseModel

pytestmark = pytest.mark.usefixtures("installed")

HI = [{"role": "user", "content": "hi"}]


class Answer(BaseModel):
    a: int


def test_a_call_is_recorded_with_what_was_sent_and_what_came_back(recording, server, client):
    with recording.rollout() as context:
        reply = client().chat.completions.create(model="m", messages=HI, temperature=0.5, logprobs=True,
                                                 extra_body={"return_token_ids": True})  # fmt: skip
    assert reply.choices[0].message.content == "ok"
    (call,) = recording.calls(context)
    assert call.request == server.requests[0].body
    assert (call.model, call.temperature, call.complete, call.streamed) == ("m", 0.5, True, False)
    assert call.response_id == reply.id
    assert call.usage["prompt_tokens"] == len(call.prompt_ids)
    assert bytes(call.choices[0].response_ids) == b"ok<end>"
    assert list(call.choices[0].logprobs) == [-0.25] * 7
    assert call.base_url == server.url


WAYS = {
    "create": lambda m: m.chat.completions.create(model="m", messages=HI),
    "parse": lambda m: m.chat.completions.parse(model="m", messages=HI, response_format=Answer),
    "beta_parse": lambda m: m.beta.chat.completions.parse(
        model="m", messages=HI, response_format=Answer
    ),
    "completions": lambda m: m.completions.create(model="m", prompt="hi"),
    "raw": lambda m: m.chat.completions.with_raw_response.create(model="m", messages=HI),
    "responses": lambda m: m.responses.create(model="m", input="hi"),
    "responses_parse": lambda m: m.responses.parse(model="m", input="hi", text_format=Answer),
    "responses_raw": lambda m: m.responses.with_raw_response.create(model="m", input="hi"),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_ask_gives_one_record(recording, server, way, client):
    server.reply = lambda request: '{"a": 1}'
    _skip_what_this_line_lacks(client(), way)
    with recording.rollout() as context:
        result = WAYS[way](client())
    if "parse" in way:
        parsed = result.output_parsed if "responses" in way else result.choices[0].message.parsed
        assert parsed == Answer(a=1)
    if "raw" in way:
        assert result.parse().id
    (call,) = recording.calls(context)
    assert call.complete
    assert call.usage
    assert '{"a": 1}' in str(call.choices[0].message)


def _skip_what_this_line_lacks(model, way):
    if way == "beta_parse" and not hasattr(model.beta, "chat"):
        pytest.skip("this line of openai has no beta.chat any more")


async def _ask_async(model, way):
    async with model:
        return await WAYS[way](model)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_ask_gives_one_record_when_awaited(recording, server, way, async_client):
    server.reply = lambda request: '{"a": 1}'
    _skip_what_this_line_lacks(async_client(), way)
    with recording.rollout() as context:
        asyncio.run(_ask_async(async_client(), way))
    (call,) = recording.calls(context)
    assert call.complete
    assert '{"a": 1}' in str(call.choices[0].message)


def test_a_client_built_before_the_seam_is_covered(recording, client):
    seam.uninstall()
    early = client()
    seam.install()
    with recording.rollout() as context:
        early.chat.completions.create(model="m", messages=HI)
    assert len(recording.calls(context)) == 1


def test_sdk_retries_are_one_record_with_the_failed_tries_beneath_it(recording, server, client):
    replies = [RawReply(b"{}", status=500), RawReply(b'{"error": "busy"}', status=429), "fine"]
    server.reply = lambda request: replies[len(server.requests) - 1]
    with recording.rollout() as context:
        client(max_retries=2).chat.completions.create(model="m", messages=HI)
    call, *tries = sorted(recording.spans(context, "llm"), key=lambda span: not span.call.complete)
    assert len(server.requests) == 3
    assert (call.call.retries, call.call.complete) == (2, True)
    assert [one.parent_id for one in tries] == [call.span_id] * 2
    assert [one.span_id for one in tries] == [span_id_of_try(call.span_id, n) for n in (0, 1)]
    assert [one.call.error[:8] for one in tries] == ["HTTP 500", "HTTP 429"]
    assert {one.call.seq for one in (call, *tries)} == {1}
    assert [found.span for found in recorded_calls(recording.spans(context))] == [call]


def test_a_call_that_fails_at_every_try_is_one_failed_record(recording, server, client):
    server.reply = lambda request: RawReply(b'{"error": {"message": "down"}}', status=503)
    with recording.rollout() as context, pytest.raises(openai.InternalServerError):
        client(max_retries=1).chat.completions.create(model="m", messages=HI)
    (call,) = recorded_calls(recording.spans(context))
    assert "down" in call.call.error
    assert call.call.retries == 1
    assert len(recording.spans(context, "llm")) == 2


def test_the_users_values_are_sent_and_recorded_and_none_is_called(recording, server, client):
    class Schema(BaseModel):
        a: int

        def __init__(self, **values):
            if not values:
                raise AssertionError("the class was called")
            super().__init__(**values)

    server.reply = lambda request: '{"a": 1}'
    model = client()
    odd = {1: "x", "deep": [{"k": (1, 2)}], "none": None}
    with recording.rollout() as context:
        model.chat.completions.parse(model="m", messages=HI, response_format=Schema, metadata=odd)
        reply = model.chat.completions.create(model="m", messages=HI, temperature=NOT_GIVEN, stop=None)
        model.chat.completions.create(model="m", messages=[*HI, reply.choices[0].message])
    calls = recording.calls(context)
    assert [call.request for call in calls] == [seen.body for seen in server.requests]
    assert "temperature" not in calls[1].request
    assert calls[2].request["messages"][1]["content"] == '{"a": 1}'
    json.loads(json.dumps([call.request for call in calls], allow_nan=False))


def test_what_no_server_would_be_sent_is_the_users_own_error(recording, server, client):
    class Odd:
        def __repr__(self):
            raise RuntimeError("no text")

    for value in (b"\xff", Odd(), threading.Lock()):
        with recording.rollout() as context, pytest.raises(TypeError):
            client().chat.completions.create(model="m", messages=HI, extra_body={"odd": value})
        (call,) = recording.calls(context)
        assert not call.complete
    assert not server.requests


def test_a_list_that_grows_while_the_reply_streams_is_recorded_as_it_was_sent(recording, client):
    messages = list(HI)
    with recording.rollout() as context:
        for _ in client().chat.completions.create(model="m", messages=messages, stream=True):
            messages[0] = {"role": "user", "content": "changed"}
    (call,) = recording.calls(context)
    assert call.request["messages"] == HI


def test_output_items_of_a_kind_that_nobody_knows_are_kept(recording, server, client):
    items = [{"type": "x", "id": "i", "what": [1]}, {"type": "message", "id": "m", "role": "assistant",
             "status": "completed", "content": []}]  # fmt: skip
    server.reply = lambda request: {**responses_body(request.body), "output": items}
    given = [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
             {"type": "function_call_output", "call_id": "c", "output": "0"}]  # fmt: skip
    with recording.rollout() as context:
        client().responses.create(model="m", input=given)
    (call,) = recording.calls(context)
    assert call.choices[0].message["output"] == items
    assert call.request["input"] == given


def test_keys_are_never_recorded(recording, server, caplog, client, key):
    caplog.set_level(logging.DEBUG, "agentlightning")
    server.reply = lambda request: RawReply(
        f'{{"error": {{"message": "bad key {key}"}}}}'.encode(), status=401
    )
    with recording.rollout() as context:
        with pytest.raises(openai.AuthenticationError):
            client().chat.completions.create(
                model="m", messages=HI, extra_headers={"x-api-key": key},
                extra_body={"api_key": key, "extra_headers": {"token": key}})  # fmt: skip
        handle = Recorder().start("tool", "t", attributes={"api_key": key})
        handle.error(ValueError(f"no luck with {key}"))
        handle.end()
    assert key not in str(recording.spans(context))
    assert key not in caplog.text


def test_large_media_are_replaced_and_the_text_kept(recording, server, client):
    picture = "data:image/png;base64," + "QUJD" * 1_500_000
    content = [{"type": "text", "text": "what is this"},
               {"type": "image_url", "image_url": {"url": picture}},
               {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]  # fmt: skip
    messages = [
        {"role": "user", "content": content},
        {"role": "user", "content": f"see {picture} there"},
    ]
    server.reply = lambda request: picture
    with recording.rollout() as context:
        client().chat.completions.create(model="m", messages=messages)
    assert server.requests[0].body["messages"] == messages
    (call,) = recording.calls(context)
    parts = call.request["messages"][0]["content"]
    assert parts[0]["text"] == "what is this"
    assert parts[1]["image_url"]["url"].startswith("[removed: image/png, 4500000 bytes, sha256 ")
    assert parts[2]["image_url"]["url"] == "https://example.org/a.png"
    assert call.request["messages"][1]["content"].startswith("see [removed")
    assert call.request["messages"][1]["content"].endswith("] there")
    assert call.choices[0].message["content"].startswith("[removed")
    assert len(str(call)) < 5_000
