"""Calls that bypass the SDKs: routed and recorded by their path, once, and nothing else is touched."""

import asyncio
import gc
import gzip
import json
import logging
import weakref

import pytest
from agentlightning import semconv
from agentlightning.errors import MissingKey, RolloutCancelled, UnroutedCall
from agentlightning.recording import defaults
from agentlightning.recording.emit import emit
from agentlightning.recording.own_clients import own_client
from agentlightning.recording.recorder import Recorder
from agentlightning.recording.stand_in import STAND_IN
from agentlightning.records import Passthrough, Route
from agentlightning.testing.model_server import RawReply

pytestmark = pytest.mark.usefixtures("installed")

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
ASKED = {
    "chat": ("/chat/completions", CHAT),
    "completions": ("/completions", {"model": "m", "prompt": "hi"}),
    "responses": ("/responses", {"model": "m", "input": "hi"}),
    "messages": ("/messages", {**CHAT, "max_tokens": 9}),
}


@pytest.fixture(params=["httpx", "httpx2"])
def http(request):
    """The HTTP library of the older SDKs, and that of the newer ones."""
    return pytest.importorskip(request.param, reason=f"this environment has no {request.param}")


@pytest.mark.parametrize("api", ASKED)
def test_a_plain_post_is_recorded(recording, server, http, api):
    path, body = ASKED[api]
    with recording.rollout() as context:
        reply = http.post(server.url + path, json=body)
        with http.stream("POST", server.url + path, json={**body, "stream": True}) as streamed:
            for _ in streamed.iter_lines():
                pass
        in_one_piece = http.post(server.url + path, json={**body, "stream": True})
    assert reply.status_code == in_one_piece.status_code == 200
    calls = recording.calls(context)
    assert [(call.api, call.complete, call.streamed) for call in calls] == [
        (api, True, False),
        (api, True, True),
        (api, True, True),
    ]
    assert all("ok" in str(call.choices[0].message) for call in calls)
    assert calls[0].request == body
    assert {call.base_url for call in calls} == {server.url}


def test_it_is_recorded_when_awaited(recording, server, http):
    async def main():
        async with http.AsyncClient(base_url=server.url) as client:
            await client.post("/chat/completions", json=CHAT)
            asked = {**CHAT, "stream": True}
            async with client.stream("POST", "/chat/completions", json=asked) as reply:
                return [line async for line in reply.aiter_lines()]

    with recording.rollout() as context:
        assert asyncio.run(main())[-2] == "data: [DONE]"
    assert [call.complete for call in recording.calls(context)] == [True, True]


def test_a_route_redirects_url_model_key_headers_and_body(recording, server, http, key):
    route = Route(base_url=server.url, model="policy", headers={"x-extra": "1"}, system_prompt="new",
                  extra_body={"temperature": 1.0}).with_key("our-token")  # fmt: skip
    client = http.Client(headers={"Authorization": f"Bearer {key}", "api-key": key}, timeout=5)
    request = client.build_request(
        "POST", f"http://127.0.0.1:9/v1/chat/completions?code={key}", json={**CHAT, "temperature": 0.1}
    )
    before = bytes(request.content), list(request.headers.raw), str(request.url)
    with recording.rollout(lambda info: route) as context:
        client.send(request, auth=("user", key))
    (seen,) = server.requests
    assert seen.headers["authorization"] == "Bearer our-token"
    assert seen.headers["x-extra"] == "1"
    assert seen.headers["host"] == server.url.split("/")[2]
    assert seen.body == {
        "model": "policy",
        "messages": [{"role": "system", "content": "new"}, *CHAT["messages"]],
        "temperature": 1.0,
    }
    assert key not in str(seen)
    assert (bytes(request.content), list(request.headers.raw), str(request.url)) == before
    (call,) = recording.calls(context)
    assert call.request == seen.body
    assert key not in str(recording.spans(context))


def test_a_call_to_our_endpoint_is_left_to_it_unless_it_fails(recording, server, http):
    route = Route(base_url=server.url, model="policy").with_key("token")
    failing = {**CHAT, "messages": [{"role": "user", "content": "FAIL500"}]}
    with recording.rollout(lambda info: route, endpoint_url=server.url) as context:
        with Recorder().agent("writer"):
            http.post("http://127.0.0.1:9/v1/chat/completions", json=CHAT)
        http.post("http://127.0.0.1:9/v1/chat/completions", json=failing)
    assert server.requests[0].headers[semconv.HEADER_AGENT] == "writer"
    assert server.requests[0].headers["authorization"] == "Bearer token"
    (call,) = recording.calls(context)
    assert call.error.startswith("HTTP 500: ")
    assert "FAIL500 was asked for" in call.error


def test_an_sdks_call_is_not_counted_again(recording, client):
    with recording.rollout() as context:
        client().chat.completions.create(**CHAT)
        list(client().chat.completions.create(**CHAT, stream=True))
    assert len(recording.spans(context, "llm")) == 2


def test_a_transport_that_sends_by_another_client_is_not_counted_again(recording, server, http):
    class Relay(http.BaseTransport):
        def handle_request(self, request):
            return http.Client().send(
                http.Request("POST", server.url + "/chat/completions", content=request.content)
            )

    with recording.rollout() as context, http.Client(transport=Relay()) as client:
        client.post("http://relayed.invalid/v1/chat/completions", json=CHAT)
    assert len(recording.calls(context)) == 1


def test_nothing_but_llm_calls_is_touched(recording, server, http):
    requests = [
        ("GET", "/models", None),
        ("POST", "/embeddings", {"model": "m", "input": "hi"}),
        ("POST", "/forms/1/responses", {"answer": 1}),
        ("POST", "/chat/completions/files", CHAT),
        ("POST", "/completions", {}),
    ]
    with recording.rollout(lambda info: None, strict=True) as context, http.Client() as client:
        for method, path, body in requests:
            client.request(method, server.url + path, json=body)
    assert recording.spans(context, "llm") == []
    assert not [
        seen for seen in server.requests if any("agentlightning" in name for name in seen.headers)
    ]


def test_outside_a_rollout_nothing_is_touched(recording, server, http):
    client = http.Client()
    request = client.build_request("POST", server.url + "/chat/completions", json=CHAT)
    assert client.send(request).request is request


def test_calls_of_our_own_are_no_agents(recording, server, http, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    defaults.configure(model="m")
    upstream = own_client(http.Client())
    with recording.rollout(lambda info: Route(model="policy")) as context:
        emit("hi")
        upstream.post(server.url + "/chat/completions", json=CHAT)
    (call,) = recording.calls(context)
    assert call.request["messages"] == CHAT["messages"]
    assert [seen.body["model"] for seen in server.requests] == ["policy", "m"]


def test_strict_mode_refuses_what_nobody_routed(recording, server, http):
    url = server.url + "/chat/completions"
    body = iter([json.dumps(CHAT).encode()])
    with recording.rollout(lambda info: None, strict=True):
        with pytest.raises(UnroutedCall, match="trained_agents"):
            http.post(url, json=CHAT)
        with pytest.raises(UnroutedCall, match="iterator"):
            http.post(url, content=body)
    assert not server.requests


def test_a_late_call_is_refused_and_counted(recording, server, http):
    with recording.rollout() as context:
        context.life.phase = "over"
        with pytest.raises(RolloutCancelled):
            http.post(server.url + "/chat/completions", json=CHAT)
    assert context.life.late["llm call"] == 1
    assert not server.requests


def test_the_stand_in_for_a_key_goes_to_no_other_server(recording, server, http):
    url, headers = server.url + "/chat/completions", {"Authorization": f"Bearer {STAND_IN}"}
    with pytest.raises(MissingKey):
        http.post(url, json=CHAT, headers=headers)
    with recording.rollout() as context, pytest.raises(MissingKey):
        http.post(url, json=CHAT, headers=headers)
    assert not server.requests
    assert recording.calls(context)[0].error.startswith("MissingKey")


def test_errors_are_recorded_and_come_through_unchanged(recording, server, http):
    error = http.ConnectError("no route")

    def handler(request):
        raise error

    server.reply = lambda request: RawReply(b'{"error": "busy"}', status=429)
    with recording.rollout() as context:
        client = http.Client(transport=http.MockTransport(handler))
        with pytest.raises(http.ConnectError) as raised:
            client.post("http://x.invalid/v1/chat/completions", json=CHAT)
        assert http.post(server.url + "/chat/completions", json=CHAT).status_code == 429
        asked = {**CHAT, "stream": True}
        with http.stream("POST", server.url + "/chat/completions", json=asked) as reply:
            assert reply.read() == b'{"error": "busy"}'
    assert raised.value is error
    assert raised.traceback[-1].name == "handler"
    errors = [call.error for call in recording.calls(context)]
    assert errors == ["ConnectError: no route", 'HTTP 429: {"error": "busy"}', "HTTP 429"]


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_a_stream_read_raw_is_recorded_like_one_read_as_text(recording, http, encoding):
    events = b'data: {"choices": [{"index": 0, "delta": {"content": "\xc3\xa9"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    sent = gzip.compress(events) if encoding == "gzip" else events
    headers = {"content-type": "text/event-stream", "content-encoding": encoding}

    class Pieces(http.SyncByteStream):
        def __iter__(self):
            yield from (sent[:9], sent[9:])

    def reply(request):
        return http.Response(200, headers=headers, stream=Pieces())

    url, asked = "http://x.invalid/v1/chat/completions", {**CHAT, "stream": True}
    with recording.rollout() as context, http.Client(transport=http.MockTransport(reply)) as client:
        with client.stream("POST", url, json=asked) as response:
            assert b"".join(response.iter_raw()) == sent
        with client.stream("POST", url, json=asked) as response:
            assert b"".join(response.iter_bytes()) == events
    raw, text = recording.calls(context)
    assert raw.complete
    assert raw.choices == text.choices
    assert raw.choices[0].message["content"] == "é"


def test_a_stream_in_an_encoding_nobody_knows_is_incomplete_and_says_why(recording, http):
    headers = {"content-type": "text/event-stream", "content-encoding": "strange"}

    class Pieces(http.SyncByteStream):
        def __iter__(self):
            yield b"\x00\x01"

    client = http.Client(
        transport=http.MockTransport(lambda _: http.Response(200, headers=headers, stream=Pieces()))
    )
    url = "http://x.invalid/v1/chat/completions"
    with recording.rollout() as context, client.stream("POST", url, json=CHAT) as response:
        assert list(response.iter_raw()) == [b"\x00\x01"]
    (call,) = recording.calls(context)
    assert "compressed" in call.error


def test_a_dropped_stream_is_gone_as_soon_as_without_us(recording, server, http):
    """At once with httpx2; httpx holds it until the garbage collector comes."""

    def is_gone_at_once(client):
        asked = {**CHAT, "stream": True}
        request = client.build_request("POST", server.url + "/chat/completions", json=asked)
        response = client.send(request, stream=True)
        next(response.iter_bytes())
        dropped = weakref.ref(response)
        gc.disable()
        try:
            del response
            return dropped() is None
        finally:
            gc.enable()

    with http.Client() as client:
        without_us = is_gone_at_once(client)
        with recording.rollout() as context:
            assert is_gone_at_once(client) is without_us
    gc.collect()
    (call,) = recording.calls(context)
    assert not call.complete


def test_a_body_from_an_iterator_is_sent_and_reported(recording, server, http, caplog):
    caplog.set_level(logging.WARNING, "agentlightning")
    with recording.rollout() as context:
        reply = http.post(server.url + "/chat/completions", content=iter([b"{}"]),
                          headers={"content-length": "2"})  # fmt: skip
    assert reply.status_code == 200
    assert recording.calls(context) == []
    assert "sent from an iterator" in caplog.text


def test_two_agents_of_which_one_is_trained(recording, server, http):
    def resolve(info):
        return Route(model="policy") if info.agent == "writer" else Passthrough(reason="a critic")

    with recording.rollout(resolve):
        for name in ("writer", "critic"):
            with Recorder().agent(name):
                http.post(server.url + "/chat/completions", json=CHAT)
    assert [seen.body["model"] for seen in server.requests] == ["policy", "m"]
