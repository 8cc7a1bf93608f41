"""Azure's clients, which find the address by the model: routed and recorded right."""

import asyncio

import openai
import pytest
from agentlightning.records import Passthrough, Route

pytestmark = pytest.mark.usefixtures("installed")

HI = [{"role": "user", "content": "hi"}]


@pytest.fixture
def azure(server, key):
    """Makes Azure clients of the scripted server."""

    def make(kind=openai.AzureOpenAI, **options):
        endpoint = {"azure_endpoint": server.url.removesuffix("/v1"), "api_version": "v"}
        return kind(**{**endpoint, "api_key": key, "max_retries": 0, **options})

    return make


def test_a_call_that_stays_is_sent_and_recorded_where_its_deployment_is(recording, server, azure, key):
    with recording.rollout() as context:
        azure().chat.completions.create(model="gpt", messages=HI)
        azure(azure_deployment="fixed").chat.completions.create(model="gpt", messages=HI)
        azure().responses.create(model="gpt", input="hi")
    paths = [seen.path for seen in server.requests]
    assert paths[:2] == [
        "/openai/deployments/gpt/chat/completions?api-version=v",
        "/openai/deployments/fixed/chat/completions?api-version=v",
    ]
    assert {seen.headers["api-key"] for seen in server.requests} == {key}
    calls = recording.calls(context)
    assert all(call.complete for call in calls)
    assert [call.base_url.partition("/openai")[2] for call in calls] == [
        "/deployments/gpt",
        "/deployments/fixed",
        "",
    ]


def test_another_model_at_azure_is_another_deployment_there(recording, server, azure, key):
    route = Route(model="tuned").with_key("second")
    with recording.rollout(lambda info: route) as context:
        azure().chat.completions.create(model="gpt", messages=HI)
    (seen,) = server.requests
    assert seen.path == "/openai/deployments/tuned/chat/completions?api-version=v"
    assert seen.headers["api-key"] == "second"
    assert key not in str(seen)
    (call,) = recording.calls(context)
    assert call.base_url.endswith("/openai/deployments/tuned")
    assert call.model == "tuned"


@pytest.mark.parametrize(
    "auth", [{}, {"api_key": None, "azure_ad_token_provider": lambda: "ad-secret"}]
)
def test_a_route_leads_away_from_azure_with_nothing_of_it(recording, server, azure, key, auth):
    model = azure(azure_endpoint="http://127.0.0.1:9", **auth)
    with recording.rollout(lambda info: Route(base_url=server.url, model="policy").with_key("t")):
        model.chat.completions.create(model="gpt", messages=HI)
        list(model.chat.completions.create(model="gpt", messages=HI, stream=True))
    for seen in server.requests:
        assert seen.path == "/v1/chat/completions"
        assert seen.headers["authorization"] == "Bearer t"
        assert "api-key" not in seen.headers
        assert key not in str(seen)
        assert "ad-secret" not in str(seen)


def test_its_awaited_client_is_the_same(recording, server, azure, key):
    async def main():
        async with azure(openai.AsyncAzureOpenAI) as model:
            await model.chat.completions.create(model="gpt", messages=HI)
            async for _ in await model.chat.completions.create(model="gpt", messages=HI, stream=True):
                pass

    def resolve(info):
        assert info.url.startswith(server.url.removesuffix("/v1"))
        return Passthrough(reason="test")

    with recording.rollout(resolve) as context:
        asyncio.run(main())
    assert [call.complete for call in recording.calls(context)] == [True, True]
    assert {call.base_url.partition("/openai")[2] for call in recording.calls(context)} == {
        "/deployments/gpt"
    }
