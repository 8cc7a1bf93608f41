"""Who may call: the attempt's own token, and only while the attempt runs."""

from __future__ import annotations

import time

import httpx
import openai
import pytest
from agentlightning.endpoint import Endpoint, attempts
from agentlightning.recording.sink import Sink
from agentlightning.server import Server, build_app
from agentlightning.store import RolloutQuery
from endpoint_bench import Bench, EchoEngine

BODY = {"model": "policy", "messages": [{"role": "user", "content": "x"}]}


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic abc", "Bearer", "Bearer \u00e9"])
def test_a_wrong_token_is_refused_and_counted(bench: Bench, header: str | None):
    engine = bench.serve(EchoEngine())
    claim = bench.claim()
    bench.chat(claim)  # the right token is known by now
    headers = {} if header is None else {"authorization": header.encode()}
    refused = httpx.post(f"{bench.base(claim)}/chat/completions", json=BODY, headers=headers)
    assert refused.status_code == 401
    assert claim.key.rollout_id in refused.json()["error"]["message"]
    assert bench.endpoint.report()["unauthorised"] == 1
    assert len(engine.asked) == 1


def test_the_token_of_one_attempt_opens_no_other(bench: Bench):
    bench.serve(EchoEngine())
    mine, other = bench.claim(), bench.claim()
    headers = {"authorization": f"Bearer {mine.token}"}
    assert (
        httpx.post(f"{bench.base(mine)}/chat/completions", json=BODY, headers=headers).status_code
        == 200
    )
    assert httpx.get(f"{bench.base(other)}/models", headers=headers).status_code == 401


def test_an_unknown_rollout_is_refused(bench: Bench):
    claim = bench.claim()
    url = f"{bench.url}/rollout/nobody/attempt/1/v1/models"
    assert httpx.get(url, headers={"authorization": f"Bearer {claim.token}"}).status_code in {401, 404}


def test_a_call_of_an_attempt_that_is_over_is_refused_without_retries(bench: Bench):
    engine = bench.serve(EchoEngine())
    claim = bench.claim()
    bench.finish(claim)
    with (
        openai.OpenAI(base_url=bench.base(claim), api_key=claim.token) as client,
        pytest.raises(openai.APIStatusError, match="is over") as raised,
    ):
        client.chat.completions.create(**BODY)
    assert raised.value.status_code == 410
    assert bench.endpoint.report()["late_call"] == 1
    assert engine.asked == []


def test_a_known_attempt_that_ends_is_noticed(bench: Bench, monkeypatch):
    monkeypatch.setattr(attempts, "_LOOK_AGAIN_S", 0.02)
    bench.serve(EchoEngine())
    claim = bench.claim()
    assert bench.chat(claim).status_code == 200
    bench.finish(claim)
    deadline = time.monotonic() + 10
    while (status := bench.chat(claim).status_code) == 200 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert status == 410


def test_calls_of_a_known_attempt_do_not_wait_for_the_store(bench: Bench, monkeypatch):
    monkeypatch.setattr(attempts, "_LOOK_AGAIN_S", 0.05)
    bench.serve(EchoEngine())
    claims = [bench.claim() for _ in range(3)]
    for claim in claims:
        bench.chat(claim)
    asked = []
    for name in ("check_token", "rollouts"):
        real = getattr(bench.store, name)
        monkeypatch.setattr(
            bench.store, name, lambda *given, real=real: asked.append(given) or real(*given)
        )
    started = time.monotonic()
    for claim in claims * 10:
        assert bench.chat(claim).status_code == 200
    # Only the look at all of them together, however many they are and however often they call.
    assert len(asked) <= (time.monotonic() - started) / 0.05 + 1
    assert all(isinstance(given[0], RolloutQuery) for given in asked)


def test_a_store_that_is_gone_is_a_503(bench: Bench):
    bench.serve(EchoEngine())
    claim = bench.claim()
    bench.store.close()
    refused = bench.chat(claim)
    assert refused.status_code == 503
    assert "the store cannot be asked" in refused.json()["error"]["message"]


def test_a_request_over_the_limit_is_refused(bench: Bench):
    small = Endpoint(bench.store, Sink(bench.store), max_body_bytes=1000)
    claim = bench.claim()
    with Server(build_app(small)) as server:
        url = bench.base(claim).replace(bench.url, server.url)
        refused = httpx.post(
            f"{url}/chat/completions",
            content=b"x" * 100_000,
            headers={"authorization": f"Bearer {claim.token}"},
        )
    assert refused.status_code == 413
