"""The key that stands in for a missing one goes to no server but ours."""

import asyncio
import os

import openai
import pytest
from agentlightning.errors import MissingKey
from agentlightning.recording import defaults
from agentlightning.recording.emit import emit
from agentlightning.recording.stand_in import STAND_IN, stand_in_key
from agentlightning.records import Passthrough, Route

pytestmark = pytest.mark.usefixtures("installed", "stood_in")

HI = [{"role": "user", "content": "hi"}]


@pytest.fixture
def stood_in(monkeypatch):
    """No key is set, so that clients are made with the stand-in."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with stand_in_key():
        yield


@pytest.fixture
def judge(client):
    """A client that the agent makes without naming a key."""
    return client(api_key=None)


REQUESTS = {
    "chat": lambda m: m.chat.completions.create(model="judge", messages=HI),
    "stream": lambda m: m.chat.completions.create(model="judge", messages=HI, stream=True),
    "embeddings": lambda m: m.embeddings.create(model="e", input="hi"),
    "models": lambda m: m.models.list(),
}


@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize("decision", [Passthrough(reason="a judge"), None, Route(model="other")])
def test_a_request_that_would_carry_it_is_refused_with_the_reason(
    recording, server, judge, request_, decision
):
    with (
        recording.rollout(lambda info: decision),
        pytest.raises(MissingKey, match=r"OPENAI_API_KEY is not set.*/v1/.*Set OPENAI_API_KEY"),
    ):
        REQUESTS[request_](judge)
    assert not server.requests


def test_a_refused_call_is_recorded_as_failed_for_that_reason(recording, judge):
    with recording.rollout() as context, pytest.raises(MissingKey):
        REQUESTS["chat"](judge)
    (call,) = recording.calls(context)
    assert not call.complete
    assert call.error.startswith("MissingKey: OPENAI_API_KEY is not set")


def test_a_judge_outside_of_any_rollout_is_refused_too(server, judge, async_client):
    with pytest.raises(MissingKey):
        REQUESTS["chat"](judge)
    with pytest.raises(MissingKey):
        asyncio.run(REQUESTS["chat"](async_client(api_key=None)))
    assert not server.requests


def test_it_is_refused_as_the_key_of_a_route(recording, server, client):
    route = Route(base_url=server.url, api_key_env="OPENAI_API_KEY")
    with recording.rollout(lambda info: route), pytest.raises(MissingKey):
        REQUESTS["chat"](client(base_url="http://127.0.0.1:9/v1"))
    assert not server.requests


def test_a_client_with_a_key_or_header_of_its_own_is_left_alone(recording, server, client, judge):
    with recording.rollout():
        REQUESTS["chat"](client(api_key="own"))
        REQUESTS["chat"](client(api_key=None, default_headers={"authorization": "Bearer own"}))
        judge.chat.completions.create(
            model="judge", messages=HI, extra_headers={"Authorization": "Bearer own"}
        )
    assert [seen.headers["authorization"] for seen in server.requests] == ["Bearer own"] * 3


def test_a_call_to_our_endpoint_carries_the_token_or_is_the_endpoints_to_refuse(
    recording, server, judge
):
    route = Route(base_url=server.url, model="policy").with_key("token")
    with recording.rollout(lambda info: route, endpoint_url=server.url):
        REQUESTS["chat"](judge)
    with recording.rollout(endpoint_url=server.url):
        REQUESTS["chat"](judge)
    assert [seen.headers["authorization"] for seen in server.requests] == [
        "Bearer token",
        f"Bearer {STAND_IN}",
    ]


def test_emit_sends_no_key_instead(recording, server, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    defaults.configure(model="m")
    with recording.rollout():
        emit("hi")
    with recording.rollout(lambda info: Route(base_url=server.url, api_key_env="OPENAI_API_KEY")):
        emit("hi")
    assert len(server.requests) == 2
    assert not [seen for seen in server.requests if "authorization" in seen.headers]


def test_a_key_that_is_set_is_sent(recording, server, monkeypatch, key):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with stand_in_key(), recording.rollout():
        REQUESTS["chat"](openai.OpenAI(base_url=server.url, max_retries=0))
    assert os.environ["OPENAI_API_KEY"] == key
    assert server.requests[0].headers["authorization"] == f"Bearer {key}"
