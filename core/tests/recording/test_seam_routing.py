"""Where a call goes, and what goes with it."""

import copy

import httpx
import openai
import pytest
from agentlightning import semconv
from agentlightning.errors import UnroutedCall
from agentlightning.llm_api import read_call_headers
from agentlightning.recording.recorder import Recorder
from agentlightning.records import Passthrough, Route

pytestmark = pytest.mark.usefixtures("installed")

HI = [{"role": "user", "content": "hi"}]


def test_outside_a_rollout_nothing_changes(recording, server, client, key):
    client().chat.completions.create(model="m", messages=HI)
    assert server.requests[0].headers["authorization"] == f"Bearer {key}"
    assert not [name for name in server.requests[0].headers if name.startswith("x-agentlightning")]


def test_a_route_redirects_url_model_key_headers_and_body(recording, server, client, key):
    route = Route(base_url=server.url, model="policy", headers={"x-extra": "1"},
                  extra_body={"return_token_ids": True, "temperature": 1.0}).with_key("our-token")  # fmt: skip
    model = client(base_url="http://127.0.0.1:9/v1")
    with recording.rollout(lambda info: route) as context:
        messages = [dict(HI[0])]
        model.chat.completions.create(model="gpt", messages=messages, temperature=0.1,
                                      extra_headers={"AUTHORIZATION": f"Bearer {key}"},
                                      extra_body={"return_token_ids": False, "top_k": 5})  # fmt: skip
    (seen,) = server.requests
    assert seen.path == "/v1/chat/completions"
    assert seen.headers["authorization"] == "Bearer our-token"
    assert seen.headers["x-extra"] == "1"
    assert key not in str(seen)
    expected = {
        "model": "policy",
        "messages": HI,
        "temperature": 1.0,
        "return_token_ids": True,
        "top_k": 5,
    }
    assert seen.body == expected
    (call,) = recording.calls(context)
    assert call.request == expected
    assert str(model.base_url) == "http://127.0.0.1:9/v1/"
    assert messages == HI


def test_the_users_key_does_not_follow_a_call_to_another_server(recording, server, client, key):
    model = client(base_url="http://127.0.0.1:9/v1")
    azure = openai.AzureOpenAI(
        azure_endpoint="http://127.0.0.1:9", api_key=key, api_version="v", max_retries=0
    )
    with recording.rollout(lambda info: Route(base_url=server.url)):
        model.chat.completions.create(model="m", messages=HI)
        azure.chat.completions.create(model="m", messages=HI)
    assert len(server.requests) == 2
    assert key not in str(server.requests)


def test_the_prompt_of_one_agent_is_replaced_and_the_others_are_untouched(recording, server, client):
    def resolve(info):
        if info.agent == "writer":
            return Route(system_prompt="new")
        return Passthrough(reason="agent not trained")

    recorder = Recorder()
    messages = [{"role": "system", "content": "old"}, *HI]
    with recording.rollout(resolve) as context:
        with recorder.agent("writer"):
            client().chat.completions.create(model="m", messages=messages)
            client().responses.create(model="m", input="hi", instructions="old")
            client().chat.completions.create(model="m", messages=HI)
        with recorder.agent("critic"):
            client().chat.completions.create(model="m", messages=messages)
    bodies = [request.body for request in server.requests]
    assert bodies[0]["messages"][0] == {"role": "system", "content": "new"}
    assert bodies[1]["instructions"] == "new"
    assert bodies[2]["messages"] == [{"role": "system", "content": "new"}, *HI]
    assert bodies[3]["messages"] == messages
    assert messages[0]["content"] == "old"
    spans = recording.spans(context, "llm")
    assert [span.call.agent for span in spans] == ["writer", "writer", "writer", "critic"]
    assert spans[3].attributes[semconv.ROUTE] == "passthrough: agent not trained"


def test_a_prompt_stands_in_for_the_first_system_message_wherever_it_is(recording, server, client):
    user, old = HI[0], {"role": "developer", "content": "old", "name": "kept"}
    with recording.rollout(lambda info: Route(system_prompt="new")):
        client().chat.completions.create(
            model="m", messages=[user, old, {"role": "system", "content": "2"}]
        )
        client().responses.create(model="m", input=[user, old])
        client().completions.create(model="m", prompt="hi")
    chat, responses, completions = (request.body for request in server.requests)
    new = {**old, "content": "new"}
    assert chat["messages"] == [user, new, {"role": "system", "content": "2"}]
    assert responses["input"] == [user, new]
    assert "instructions" not in responses
    assert completions["prompt"] == "hi"


def test_each_model_name_and_each_rollout_has_its_own_route(recording, server, client):
    routes = {"gpt": Route(model="policy"), "judge": Passthrough(reason="a judge")}
    with recording.rollout(lambda info: routes.get(info.model)) as first:
        for name in ("gpt", "judge", "other"):
            client().chat.completions.create(model=name, messages=HI)
    with recording.rollout(lambda info: Route(model="second")) as second:
        client().chat.completions.create(model="gpt", messages=HI)
    assert [request.body["model"] for request in server.requests] == [
        "policy",
        "judge",
        "other",
        "second",
    ]
    told = [span.attributes[semconv.ROUTE] for span in recording.spans(first, "llm")]
    assert told == ["routed", "passthrough: a judge", "unrouted"]
    assert [call.model for call in recording.calls(second)] == ["second"]


def test_the_users_client_and_arguments_are_not_changed(recording, server, client, key):
    known = {"organization": "o", "project": "p"}
    model = client(default_headers={"x-own": "1"}, default_query={"v": "1"}, **known)
    asked = {"model": "gpt", "messages": [{"role": "system", "content": "old"}, *HI],
             "extra_headers": {"x-call": "1"}, "extra_body": {"temperature": 0.1}, "extra_query": {"q": "1"}}  # fmt: skip
    before = copy.deepcopy(asked), dict(model.default_headers), str(model.base_url), model.default_query
    route = Route(base_url=server.url, model="policy", headers={"x-route": "1"}, system_prompt="new",
                  extra_body={"temperature": 1.0}).with_key("token")  # fmt: skip
    with recording.rollout(lambda info: route):
        model.chat.completions.create(**asked)
    after = asked, dict(model.default_headers), str(model.base_url), model.default_query
    assert after == before
    model.chat.completions.create(**asked)
    routed, own = server.requests
    assert routed.headers["x-route"] == routed.headers["x-own"] == routed.headers["x-call"] == "1"
    assert own.headers["authorization"] == f"Bearer {key}"
    assert "x-route" not in own.headers
    assert own.path.endswith("?v=1&q=1")


def test_a_header_of_the_route_is_stronger_than_any_other(recording, server, client, key):
    route = Route(base_url=server.url, headers={"Authorization": "Custom scheme", "X-Own": "route"})
    model = client(base_url="http://127.0.0.1:9/v1", default_headers={"x-own": "client"})
    with recording.rollout(lambda info: route):
        model.chat.completions.create(model="m", messages=HI, extra_headers={"x-OWN": "call"})
    (seen,) = server.requests
    assert seen.headers["authorization"] == "Custom scheme"
    assert seen.headers["x-own"] == "route"
    assert key not in str(seen)


def test_keys_of_the_users_http_client_do_not_follow_a_call_either(recording, server, client, key):
    http_client = httpx.Client(auth=("user", key), headers={"api-key": key})
    model = client(base_url="http://127.0.0.1:9/v1", http_client=http_client)
    with recording.rollout(lambda info: Route(base_url=server.url).with_key("token")):
        model.chat.completions.create(model="m", messages=HI)
    (seen,) = server.requests
    assert seen.headers["authorization"] == "Bearer token"
    assert "api-key" not in seen.headers


def test_strict_mode_refuses_what_nobody_routed(recording, server, client):
    with recording.rollout(lambda info: None, strict=True) as context:
        with pytest.raises(UnroutedCall, match="trained_agents"):
            client().chat.completions.create(model="m", messages=HI)
        client().models.list()
    assert not server.requests
    assert recording.calls(context) == []


def test_without_strict_mode_an_unrouted_call_goes_on_and_says_so(recording, client):
    with recording.rollout(lambda info: None) as context:
        client().chat.completions.create(model="m", messages=HI)
    (span,) = recording.spans(context, "llm")
    assert span.attributes[semconv.ROUTE] == "unrouted"


def test_a_resolver_that_breaks_does_not_break_the_agent(recording, caplog, client):
    with recording.rollout(lambda info: 1 / 0) as context:
        assert client().chat.completions.create(model="m", messages=HI).choices
    assert "ZeroDivisionError" in caplog.text
    (span,) = recording.spans(context, "llm")
    assert span.attributes[semconv.ROUTE].startswith("unrouted; the resolver failed (ZeroDivisionError")
    with (
        recording.rollout(lambda info: 1 / 0, strict=True),
        pytest.raises(UnroutedCall, match="the resolver failed"),
    ):
        client().chat.completions.create(model="m", messages=HI)


def test_a_call_to_our_endpoint_is_left_to_it_unless_it_fails_for_good(recording, server, client):
    failing = [{"role": "user", "content": "FAIL500"}]
    route = Route(base_url=server.url, model="policy").with_key("token")
    with recording.rollout(lambda info: route, endpoint_url=server.url) as context:
        model = client()
        with Recorder().agent("schön & gut"):
            model.chat.completions.create(model="m", messages=HI)
        with pytest.raises(openai.InternalServerError):
            model.chat.completions.create(model="m", messages=failing)
        server.stop()
        with pytest.raises(openai.APIConnectionError):
            model.chat.completions.create(model="m", messages=HI)
    errors = [call.error.split(":")[0] for call in recording.calls(context)]
    assert errors == ["InternalServerError", "APIConnectionError"]
    headers = server.requests[0].headers
    assert headers[semconv.HEADER_PARENT] == context.root_span_id
    assert read_call_headers(headers).agent == "schön & gut"
    assert len(headers[semconv.HEADER_SPAN]) == 16
    assert headers["authorization"] == "Bearer token"
