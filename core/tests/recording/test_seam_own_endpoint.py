"""Our endpoint, started inside a rollout: what it sends to its models is no call of that rollout."""

import pytest
from agentlightning.endpoint import Endpoint
from agentlightning.engine import EngineInfo
from agentlightning.recording.sink import Sink
from agentlightning.records import LLM, RolloutRequest, Route
from agentlightning.server import Server, build_app

pytestmark = pytest.mark.usefixtures("installed")

HI = [{"role": "user", "content": "hi"}]


def test_a_call_through_our_endpoint_is_recorded_once_and_for_its_own_rollout(
    recording, server, client
):
    store, sink = recording.store, Sink(recording.store)
    store.publish(recording.run.run_id, {"llm": LLM(model="policy")})
    with recording.rollout() as outer:
        endpoint = Endpoint(store, sink)
        with Server(build_app(endpoint)) as ours:
            endpoint.serve(
                recording.run.run_id, LLM(model="policy"), EngineInfo(model="m", base_url=server.url)
            )
            store.enqueue(recording.run.run_id, [RolloutRequest(input="task")])
            (claim,) = store.claim(recording.run.run_id, "worker")
            key = claim.key
            base = f"{ours.url}/rollout/{key.rollout_id}/attempt/{key.number}/v1"
            route = Route(base_url=base, model="policy").with_key(claim.token)
            with recording.rollout(lambda info: route, endpoint_url=ours.url) as inner:
                reply = client().chat.completions.create(model="gpt", messages=HI)
                list(client().chat.completions.create(model="gpt", messages=HI, stream=True))
    sink.close()
    assert reply.choices[0].message.content == "ok"
    assert len(server.requests) == 2
    assert recording.spans(outer, "llm") == recording.spans(inner, "llm") == []
    calls = [span.call for span in store.spans([key.rollout_id], kinds=["llm"])]
    assert [(call.complete, call.streamed) for call in calls] == [(True, False), (True, True)]
