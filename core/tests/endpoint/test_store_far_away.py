"""The endpoint before a store behind a server: no call costs a round trip."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from agentlightning.endpoint import Endpoint
from agentlightning.recording.sink import Sink
from agentlightning.server import Server, build_app
from agentlightning.store.http.client import HttpStore
from agentlightning.store.memory import MemoryStore
from endpoint_bench import Bench, EchoEngine


class Counting:
    """An application that counts the requests to another."""

    def __init__(self, app) -> None:
        self.app = app
        self.state = app.state
        self.paths: list[str] = []

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "http":
            self.paths.append(scope["path"])
        await self.app(scope, receive, send)


@pytest.fixture
def far(bench: Bench) -> Iterator[tuple[Bench, Counting]]:
    """The endpoint of another machine, and the server of its store."""
    with MemoryStore() as behind:
        counting = Counting(build_app(store=behind))
        with (
            Server(counting) as server,
            HttpStore(server.url, token=behind.access_token("owner")) as store,
        ):
            run = store.create_run("far", {})
            sink = Sink(store)
            endpoint = Endpoint(store, sink)
            with Server(build_app(endpoint)) as own:
                yield Bench(store, sink, endpoint, own.url, run.run_id), counting
            sink.close()


def test_calls_ask_a_store_far_away_nothing_of_their_own(far: tuple[Bench, Counting]):
    bench, counting = far
    bench.serve(EchoEngine())
    claims = [bench.claim() for _ in range(4)]
    for claim in claims:
        assert bench.chat(claim).status_code == 200
    bench.sink.flush()
    before = len(counting.paths)
    for claim in claims * 5:
        assert bench.chat(claim).status_code == 200
    bench.sink.flush()
    asked = [path for path in counting.paths[before:] if "spans" not in path]
    assert len(asked) <= 4  # a look at all attempts at once, every two seconds
    assert [len(bench.calls(claim)) for claim in claims] == [6] * 4


def test_a_wrong_token_is_refused_by_a_store_far_away(far: tuple[Bench, Counting]):
    bench, _ = far
    bench.serve(EchoEngine())
    claim = bench.claim()
    headers = {"authorization": "Bearer wrong"}
    assert httpx.get(f"{bench.base(claim)}/models", headers=headers).status_code == 401
