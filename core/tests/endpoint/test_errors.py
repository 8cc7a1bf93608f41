"""Errors as each protocol's clients expect them, and requests that were never meant to be answered."""

from __future__ import annotations

import socket
import time
from typing import Any

import anthropic
import httpx
import openai
import pytest
from agentlightning.endpoint import Endpoint
from agentlightning.server import Server, build_app
from agentlightning.testing import Fault, ModelServer, RawReply, Turn
from endpoint_bench import Bench, EchoEngine

HI = [{"role": "user", "content": "hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": HI},
    "completions": {"prompt": "hi"},
    "responses": {"input": "hi"},
    "messages": {"messages": HI, "max_tokens": 9},
}


def ask(bench: Bench, claim, api: str, *, stream: bool = False, **options: Any) -> None:
    """Ask with the official client of the protocol, which raises its own errors."""
    body = {"model": "policy", "stream": stream, **BODIES[api]}
    if api == "messages":
        reply = bench.anthropic(claim, **options).messages.create(**body)
    else:
        client = bench.openai(claim, **options)
        part = {"chat/completions": client.chat.completions, "completions": client.completions}
        reply = part.get(api, client.responses).create(**body)
    if stream:
        list(reply)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", BODIES)
def test_each_client_raises_its_own_error_for_each_status(bench: Bench, api: str, stream: bool):
    sdk = anthropic if api == "messages" else openai
    errors = {
        400: sdk.BadRequestError,
        403: sdk.PermissionDeniedError,
        429: sdk.RateLimitError,
        500: sdk.InternalServerError,
    }
    claim = bench.claim()
    with ModelServer() as server:
        bench.serve_at(server.url)
        for status, error in errors.items():
            server.reply = lambda _, status=status: Fault(status=status)
            with pytest.raises(error, match="told to fail") as raised:
                ask(bench, claim, api, stream=stream)
            assert raised.value.status_code == status
    assert [call.complete for call in bench.calls(claim)] == [False] * len(errors)
    with pytest.raises(sdk.AuthenticationError, match="wrong or missing token"):
        ask(bench, claim, api, stream=stream, api_key="wrong")
    bench.finish(claim)
    fresh = Endpoint(bench.store, bench.sink)  # that knows of no attempt yet
    with Server(build_app(fresh)) as server:
        bench.url = server.url
        with pytest.raises(sdk.APIStatusError, match="is over"):
            ask(bench, claim, api, stream=stream)


@pytest.mark.parametrize("api", BODIES)
def test_a_stream_that_breaks_in_the_middle_raises_and_is_recorded_incomplete(bench: Bench, api: str):
    sdk = anthropic if api == "messages" else openai
    claim = bench.claim()
    fault = Fault(cut_after=2, turn=Turn(text="a text of many pieces"))
    with ModelServer(reply=lambda _: fault) as server:
        bench.serve_at(server.url)
        with pytest.raises(sdk.APIError):
            ask(bench, claim, api, stream=True)
    (call,) = bench.calls(claim)
    assert not call.complete
    assert "cannot be reached" in call.error
    assert bench.endpoint.report()["incomplete"] == 1


@pytest.mark.parametrize("api", BODIES)
@pytest.mark.parametrize(
    "reply",
    [
        Fault(lost=True),
        RawReply(b"<html>busy</html>", content_type="text/html"),
        RawReply(b"[1]"),
        RawReply(b"[" * 100_000),
        RawReply(b"<html>teapot</html>", status=418),
        RawReply(b"", status=302),
    ],
    ids=["lost", "html", "no object", "deep", "error page", "redirect"],
)
def test_a_broken_model_server_is_a_readable_error(bench: Bench, api: str, reply):
    sdk = anthropic if api == "messages" else openai
    claim = bench.claim()
    with ModelServer(reply=lambda _: reply) as server:
        bench.serve_at(server.url)
        with pytest.raises(sdk.APIStatusError, match="the model server at"):
            ask(bench, claim, api)
    (call,) = bench.calls(claim)
    assert (call.complete, call.response) == (False, None)


@pytest.mark.parametrize("api", ["responses", "messages"])
@pytest.mark.parametrize(
    "body",
    [{}, {"choices": None}, {"choices": []}, {"choices": [5]}, {"choices": "x"}],
    ids=["empty", "null", "none", "number", "text"],
)
def test_a_reply_without_choices_is_an_error_in_protocols_that_have_none(bench: Bench, api: str, body):
    sdk = anthropic if api == "messages" else openai
    claim = bench.claim()
    with ModelServer(reply=lambda _: body) as server:
        bench.serve_at(server.url)
        with pytest.raises(sdk.InternalServerError, match="no choices"):
            ask(bench, claim, api)
    assert [call.complete for call in bench.calls(claim)] == [False]


@pytest.mark.parametrize("api", BODIES)
@pytest.mark.parametrize("message", [None, 5, {}, {"content": 5}, {"tool_calls": [5]}, {"tool_calls": 5},
                                     {"tool_calls": [{"function": 5}]}, {"content": [{"text": 5}]}], ids=repr)  # fmt: skip
def test_odd_replies_never_break_the_endpoint(bench: Bench, api: str, message):
    claim = bench.claim()
    choice = {"index": 0, "message": message, "finish_reason": 5, "logprobs": 3, "token_ids": "x"}
    usage = {"prompt_tokens": "many", "prompt_tokens_details": None}
    with ModelServer(reply=lambda _: {"model": 5, "choices": [choice], "usage": usage}) as server:
        bench.serve_at(server.url)
        with bench.client(claim) as client:
            assert client.post(api, json={"model": "policy", **BODIES[api]}).status_code == 200
    assert [call.complete for call in bench.calls(claim)] == [False]


HOSTILE = [
    b"",
    b"null",
    b"[]",
    b'"text"',
    b"{",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"a":' * 300 + b"1" + b"}" * 300,
    b'{"messages": 5, "input": 5, "prompt": 5}',
    b'{"messages": [], "input": [], "prompt": []}',
    b'{"messages": [5], "input": [5], "prompt": [{}]}',
    b'{"messages": [{"role": 5}], "input": [{"role": 5}], "prompt": [[], 1]}',
    b'{"model": {"a": 1}, "messages": "x", "input": {}, "prompt": {}}',
    b'{"messages": [{"role": "user", "content": 5}], "input": [{"content": 5}], "prompt": 1.5}',
    b'{"stream": "yes", "messages": [{"role": "user", "content": "x"}], "input": "x", "prompt": "x"}',
    b'{"temperature": "hot", "messages": [{"role": "user", "content": "x"}], "input": "x", "prompt": "x"}',
    b'{"tools": [5], "messages": [{"role": "user", "content": "x"}], "input": "x", "prompt": "x"}',
    b'{"messages": [{"role": "user", "content": "\\ud800"}], "input": "\\ud800", "prompt": "\\ud800"}',
    b'{"messages": [{"role": "user", "content": "x"}], "input": "x", "prompt": "x", "top_p": 1e999}',
]


@pytest.mark.parametrize("api", BODIES)
def test_hostile_bodies_are_refused_and_reach_no_engine(bench: Bench, api: str):
    engine = bench.serve(EchoEngine())
    with bench.client(bench.claim()) as client:
        for body in HOSTILE:
            refused = client.post(api, content=body)
            assert refused.status_code == 400, body[:80]
            error = refused.json()["error"]
            assert error["message"]
            assert error["type"] == "invalid_request_error"
    assert engine.asked == []


@pytest.mark.parametrize("n", [0, -1, 10**6, 1.5, "2", True])
def test_an_impossible_number_of_replies_is_refused(bench: Bench, n):
    engine = bench.serve(EchoEngine())
    assert bench.chat(bench.claim(), n=n).status_code == 400
    assert engine.asked == []


@pytest.mark.parametrize(
    "path",
    [
        "/rollout/x/attempt/1/v1/models",
        "/rollout/%00/attempt/1/v1/models",
        "/rollout/%FF%FE/attempt/1/v1/models",
        f"/rollout/{'x' * 5000}/attempt/1/v1/models",
        "/rollout/x/attempt/-1/v1/models",
        "/rollout/x/attempt/one/v1/models",
        f"/rollout/x/attempt/{'9' * 5000}/v1/models",
        f"/rollout/x/attempt/{10**12}/v1/models",
    ],
)
def test_odd_addresses_lead_nowhere(bench: Bench, path: str):
    headers = {"authorization": f"Bearer {bench.claim().token}"}
    refused = httpx.get(bench.url + path, headers=headers)
    assert refused.status_code in {401, 404}
    assert refused.json()["error"]["message"]


@pytest.mark.parametrize(
    "headers",
    [
        {"x-agentlightning-seq": "9" * 5000},
        {"x-agentlightning-seq": "-1"},
        {"x-stainless-retry-count": "9" * 5000},
        {"x-stainless-retry-count": "\u0661".encode()},
        {"x-agentlightning-span-id": "%00", "x-agentlightning-parent-id": "x" * 5000},
        {"x-agentlightning-agent": "a%00b" + "x" * 5000},
    ],
    ids=repr,
)
def test_odd_headers_are_left_out(bench: Bench, headers):
    bench.serve(EchoEngine())
    claim = bench.claim()
    assert bench.chat(claim, headers=headers).status_code == 200
    (span,) = bench.spans(claim)
    assert (span.call.seq, span.call.complete) == (1, True)
    assert len(span.span_id) == 16
    assert "\0" not in (span.call.agent or "")
    assert len(span.call.agent or "") <= 200


@pytest.mark.parametrize("api", BODIES)
def test_a_request_too_large_or_too_slow_is_refused_in_the_protocols_words(bench: Bench, api: str):
    bench.endpoint = strict = Endpoint(bench.store, bench.sink, max_body_bytes=1000, upload_s=0.2)
    engine = bench.serve(EchoEngine())
    claim = bench.claim()
    with Server(build_app(strict)) as server:
        bench.url = server.url
        with bench.client(claim) as client:
            large = client.post(api, json={"model": "x" * 2000, **BODIES[api]})
        slow = half_sent(bench, claim, api)
    kinds = (large.json()["error"]["type"], slow.split()[1])
    assert kinds == ("request_too_large" if api == "messages" else "invalid_request_error", "408")
    assert (large.status_code, engine.asked) == (413, [])
    assert strict.report() == {"request_too_large": 1, "request_too_slow": 1}


def half_sent(bench: Bench, claim, api: str) -> str:
    """The first line of the answer to a request whose body never comes."""
    host, port = bench.url.removeprefix("http://").split(":")
    path = bench.base(claim).removeprefix(bench.url)
    head = (
        f"POST {path}/{api} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {claim.token}\r\n"
        "content-length: 100\r\n\r\n{"
    )
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(head.encode())
        return connection.recv(4096).decode().splitlines()[0]


def test_an_engine_that_takes_too_long_is_a_504_in_the_protocols_words(bench: Bench):
    bench.endpoint = hurried = Endpoint(bench.store, bench.sink, timeout_s=0.3)
    claim = bench.claim()
    with Server(build_app(hurried)) as server, ModelServer(delay_s=3) as model:
        bench.url = server.url
        bench.serve_at(model.url)
        started = time.monotonic()
        with pytest.raises(anthropic.InternalServerError, match="gave no answer in") as raised:
            ask(bench, claim, "messages")
        assert raised.value.status_code == 504
        assert raised.value.body["error"]["type"] == "timeout_error"
        assert time.monotonic() - started < 3
    assert [call.complete for call in bench.calls(claim)] == [False]
