"""An endpoint in front of a scripted model, for agents that are no Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from agentlightning.endpoint import Endpoint
from agentlightning.engine import EngineInfo
from agentlightning.recording.sink import Sink
from agentlightning.records import LLM, LLMCall, RolloutRequest
from agentlightning.server import Server, build_app
from agentlightning.store import Claim
from agentlightning.store.memory import MemoryStore
from agentlightning.testing import ModelServer


@dataclass
class Served:
    """One attempt, where it finds its model, and what was recorded of it."""

    model: ModelServer
    endpoint: Endpoint
    sink: Sink
    claim: Claim
    base_url: str

    def calls(self) -> list[LLMCall]:
        self.sink.flush()
        key = self.claim.key
        spans = self.sink.store.spans([key.rollout_id], attempt=key.number)
        return [span.call for span in spans if span.call]


@pytest.fixture
def served() -> Iterator[Served]:
    with MemoryStore() as store, ModelServer() as model:
        sink = Sink(store)
        endpoint = Endpoint(store, sink)
        run = store.create_run("clients", {})
        store.enqueue(run.run_id, [RolloutRequest(input="task")])
        (claim,) = store.claim(run.run_id, "worker")
        endpoint.serve(run.run_id, LLM(model="policy"), EngineInfo(model="m", base_url=model.url))
        with Server(build_app(endpoint)) as server:
            base = f"{server.url}/rollout/{claim.key.rollout_id}/attempt/{claim.key.number}/v1"
            yield Served(model, endpoint, sink, claim, base)
        sink.close()
