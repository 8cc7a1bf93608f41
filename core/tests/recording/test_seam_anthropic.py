"""Anthropic's own SDK: recorded and routed like any other."""

import asyncio
import gc

import pytest
from agentlightning.errors import UnroutedCall
from agentlightning.recording.recorder import Recorder
from agentlightning.records import Passthrough, Route
from agentlightning.samples.calls import recorded_calls
from agentlightning.testing.model_server import RawReply

anthropic = pytest.importorskip("anthropic", reason="this environment has no anthropic SDK")
pytestmark = pytest.mark.usefixtures("installed")

HI = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
TOOL = {**HI, "messages": [{"role": "user", "content": '[[tool:add:{"a": 1, "b": [2]}]]'}]}


@pytest.fixture
def claude(server, key):
    """Makes clients of the scripted server."""

    def make(kind=anthropic.Anthropic, **options):
        base = server.url.removesuffix("/v1")
        return kind(**{"base_url": base, "api_key": key, "max_retries": 0, **options})

    return make


def streamed(model):
    return list(model.messages.create(**HI, stream=True))


def helped(model):
    with model.messages.stream(**HI) as stream:
        return stream.get_final_message()


def opened(model):
    with model.messages.with_streaming_response.create(**HI) as reply:
        return reply.parse()


WAYS = {
    "create": lambda model: model.messages.create(**HI),
    "beta": lambda model: model.beta.messages.create(**HI),
    "raw": lambda model: model.messages.with_raw_response.create(**HI).parse(),
    "streaming_response": opened,
    "stream": streamed,
    "stream_helper": helped,
    "copy": lambda model: model.with_options(timeout=5).messages.create(**HI),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_ask_gives_one_record(recording, server, claude, way):
    with recording.rollout() as context:
        WAYS[way](claude())
    (span,) = recording.spans(context, "llm")
    call = span.call
    assert (call.api, call.complete, call.error) == ("messages", True, None)
    assert call.choices[0].message["content"] == [{"type": "text", "text": "ok"}]
    assert call.choices[0].finish_reason == "end_turn"
    assert call.request == server.requests[0].body
    assert call.usage["output_tokens"] > 1
    assert call.base_url == server.url
    assert span.attributes["gen_ai.provider.name"] == "anthropic"


def test_it_is_recorded_when_awaited(recording, claude):
    async def main():
        async with claude(anthropic.AsyncAnthropic) as model:
            await model.messages.create(**HI)
            async with model.messages.stream(**HI) as stream:
                await stream.get_final_message()
            async for _ in await model.messages.create(**HI, stream=True):
                pass

    with recording.rollout() as context:
        asyncio.run(main())
    assert [call.complete for call in recording.calls(context)] == [True] * 3


def test_a_streamed_tool_use_is_that_of_a_reply_in_one_piece(recording, claude):
    with recording.rollout() as context:
        claude().messages.create(**TOOL)
        list(claude().messages.create(**TOOL, stream=True))
    whole, streamed = (call.choices[0] for call in recording.calls(context))
    assert streamed.message["content"][0]["input"] == {"a": 1, "b": [2]}
    assert streamed.message["content"][0].keys() == whole.message["content"][0].keys()
    assert streamed.finish_reason == whole.finish_reason == "tool_use"


def test_objects_and_iterators_are_recorded_as_they_were_sent(recording, server, claude):
    said = claude().messages.create(**HI)
    turns = [*HI["messages"], {"role": "assistant", "content": said.content}, *HI["messages"]]
    with recording.rollout() as context:
        claude().messages.create(model="m", max_tokens=9, messages=iter(turns))
    (call,) = recording.calls(context)
    assert call.request == server.requests[1].body
    assert call.request["messages"][1]["content"][0]["text"] == "ok"


def test_a_stream_left_early_is_one_incomplete_record(recording, server, claude):
    server.reply = lambda request: "aaaabbbbcccc"
    with recording.rollout() as context:
        for event in (stream := claude().messages.create(**HI, stream=True)):
            if event.type == "content_block_delta":
                break
        stream.close()
        del stream
        gc.collect()
    (call,) = recording.calls(context)
    assert not call.complete
    assert call.choices[0].message["content"][0]["text"].startswith("aaaa")


def test_a_route_redirects_url_model_key_and_prompt(recording, server, claude, key):
    route = Route(base_url=server.url, model="policy", system_prompt="new",
                  extra_body={"temperature": 1.0}).with_key("our-token")  # fmt: skip
    model = claude(base_url="http://127.0.0.1:9", default_query={"code": key})
    with recording.rollout(lambda info: route):
        for messages in (model.messages, model.beta.messages):
            messages.create(**HI, system="old", extra_body={"temperature": 0.1})
    for seen in server.requests:
        assert seen.path.partition("?")[0] == "/v1/messages"
        assert seen.headers["x-api-key"] == "our-token"
        assert seen.headers["authorization"] == "Bearer our-token"
        assert (seen.body["model"], seen.body["system"], seen.body["temperature"]) == (
            "policy",
            "new",
            1.0,
        )
        assert key not in str(seen)
    asked = len(server.requests)
    claude().beta.messages.create(**HI)  # some lines mark it in the address
    query = server.requests[asked].path.partition("?")[2]
    assert server.requests[1].path.partition("?")[2] == query
    assert str(model.base_url).rstrip("/") == "http://127.0.0.1:9"


def test_a_call_to_our_endpoint_carries_the_token_as_it_takes_it(recording, server, claude, key):
    route = Route(base_url=server.url, model="policy").with_key("token")
    with recording.rollout(lambda info: route, endpoint_url=server.url) as context:
        claude(base_url="http://127.0.0.1:9").messages.create(**HI)
    (seen,) = server.requests
    assert seen.headers["authorization"] == "Bearer token"
    assert seen.headers["x-agentlightning-span-id"]
    assert key not in str(seen)
    assert recording.calls(context) == []


def test_a_route_that_stays_puts_its_key_where_the_client_has_its_own(recording, server, claude, key):
    with recording.rollout(lambda info: Route(model="other").with_key("second")):
        claude().messages.create(**HI)
    (seen,) = server.requests
    assert "second" in {seen.headers.get("x-api-key"), seen.headers.get("authorization", "")[7:]}
    assert key not in str(seen)


def test_one_agents_system_prompt_is_replaced_and_the_others_left(recording, server, claude):
    def resolve(info):
        return Route(system_prompt="new") if info.agent == "writer" else Passthrough(reason="critic")

    with recording.rollout(resolve):
        for name in ("writer", "critic"):
            with Recorder().agent(name):
                claude().messages.create(**HI, system=[{"type": "text", "text": "old"}])
    assert server.requests[0].body["system"] == "new"
    assert server.requests[1].body["system"] == [{"type": "text", "text": "old"}]


def test_errors_are_recorded_and_raised_unchanged(recording, claude):
    failing = {**HI, "messages": [{"role": "user", "content": "FAIL500"}]}
    with recording.rollout() as context, pytest.raises(anthropic.InternalServerError) as raised:
        claude().messages.create(**failing)
    assert raised.value.response.status_code == 500
    (call,) = recording.calls(context)
    assert "FAIL500 was asked for" in call.error


def test_retries_are_one_record_with_the_failed_tries_beneath(recording, server, claude):
    replies = [RawReply(b"{}", status=529), "fine"]
    server.reply = lambda request: replies[len(server.requests) - 1]
    with recording.rollout() as context:
        claude(max_retries=2).messages.create(**HI)
    (one,) = recorded_calls(recording.spans(context))
    assert (one.call.complete, one.call.retries) == (True, 1)
    assert len(recording.spans(context, "llm")) == 2


def test_a_client_with_middleware_is_recorded_once_too(recording, server, claude):
    def middleware(request, call_next):
        return call_next(request)

    try:
        model = claude(max_retries=1, middleware=[middleware])
    except TypeError:
        pytest.skip("this line of anthropic has no middleware")
    replies = [RawReply(b"{}", status=500), "fine"]
    server.reply = lambda request: replies[len(server.requests) - 1]
    with recording.rollout() as context:
        model.messages.create(**HI)
    (one,) = recorded_calls(recording.spans(context))
    assert one.call.complete
    assert one.call.choices[0].message["content"][0]["text"] == "fine"


def test_middleware_that_answers_itself_is_recorded_as_no_reply(recording, server, claude):
    try:
        model = claude(middleware=[lambda request, call_next: "cached"])
    except TypeError:
        pytest.skip("this line of anthropic has no middleware")
    with recording.rollout() as context:
        assert model.messages.create(**HI) == "cached"
    assert not server.requests
    (call,) = recording.calls(context)
    assert "without a reply of the server" in call.error


def test_strict_mode_refuses_what_nobody_routed(recording, server, claude):
    with recording.rollout(lambda info: None, strict=True), pytest.raises(UnroutedCall):
        claude().messages.create(**HI)
    assert not server.requests
