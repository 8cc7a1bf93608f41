"""Makes the bench beside this file importable: tests are imported by path, without packages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from agentlightning.endpoint import Endpoint
from agentlightning.recording.sink import Sink
from agentlightning.records import LLM
from agentlightning.server import Server, build_app
from agentlightning.store.memory import MemoryStore

sys.path.insert(0, str(Path(__file__).parent))

from endpoint_bench import Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    with MemoryStore() as store:
        sink = Sink(store)
        endpoint = Endpoint(store, sink)
        store_run = store.create_run("test", {})
        store.publish(store_run.run_id, {"llm": LLM(model="policy")})
        with Server(build_app(endpoint)) as server:
            made = Bench(store, sink, endpoint, server.url, store_run.run_id)
            yield made
            made.close()
        sink.close()
