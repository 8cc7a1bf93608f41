"""A server is on its own port or fails at once."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator

import httpx
import pytest
from agentlightning.endpoint import Endpoint
from agentlightning.errors import ServerError
from agentlightning.recording.sink import Sink
from agentlightning.server import Server, build_app
from agentlightning.store.memory import MemoryStore
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route


@pytest.fixture
def app() -> Iterator[Starlette]:
    with MemoryStore() as store:
        sink = Sink(store)
        yield build_app(Endpoint(store, sink))
        sink.close()


def answering(instance: str, health: object, **options: object) -> Starlette:
    async def answer(_request):
        return JSONResponse(health)

    app = Starlette(routes=[Route("/health", answer)], **options)
    app.state.instance_id = instance
    return app


def test_port_0_takes_a_free_port_and_says_which(app: Starlette):
    with Server(app) as server:
        assert server.url.startswith("http://127.0.0.1:")
        health = httpx.get(f"{server.url}/health").json()
    assert health["status"] == "ok"
    assert health["instance"] == app.state.instance_id


def test_a_port_in_use_is_named_at_once_and_its_owner_goes_on():
    first = Server(answering("a", {"instance": "a"}))
    with first:
        port = int(first.url.rpartition(":")[2])
        started = time.monotonic()
        with pytest.raises(ServerError, match=rf"port {port} of 127.0.0.1"):
            Server(answering("b", {"instance": "b"}), port=port).start()
        assert time.monotonic() - started < 2
        assert httpx.get(f"{first.url}/health").json() == {"instance": "a"}


def test_a_port_that_somebody_else_holds_without_http_is_refused_too():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ServerError, match=f"port {port}"):
            Server(answering("a", {"instance": "a"}), port=port).start()


@pytest.mark.parametrize("health", [{"instance": "somebody else"}, ["no object"], {}])
def test_an_answer_of_another_instance_is_not_taken_for_our_own(health: object):
    server = Server(answering("mine", health))
    with pytest.raises(ServerError, match="answered by another server"):
        server.start()
    with pytest.raises(ServerError, match="not running"):
        _ = server.url


def test_an_application_that_cannot_start_is_reported():
    class Lifespan:
        def __init__(self, _app):
            pass

        async def __aenter__(self):
            raise RuntimeError("no disk")

        async def __aexit__(self, *_):
            pass

    with pytest.raises(ServerError, match="failed to start"):
        Server(answering("a", {"instance": "a"}, lifespan=Lifespan)).start()


def test_stopping_frees_the_port_and_may_be_repeated():
    server = Server(answering("a", {"instance": "a"}))
    port = int(server.start().rpartition(":")[2])
    server.stop()
    server.stop()
    again = Server(answering("b", {"instance": "b"}), port=port)
    with again:
        assert httpx.get(f"{again.url}/health").json() == {"instance": "b"}


def test_a_server_runs_once_at_a_time_and_again_after_a_stop(app: Starlette):
    server = Server(app)
    with server, pytest.raises(ServerError, match="already runs"):
        server.start()
    with server:
        assert httpx.get(f"{server.url}/health").status_code == 200


def test_stopping_does_not_wait_for_idle_connections():
    server = Server(answering("a", {"instance": "a"}))
    server.start()
    with httpx.Client(base_url=server.url) as client:
        client.get("/health")
        started = time.monotonic()
        server.stop()
        assert time.monotonic() - started < 2


def test_replies_on_a_kept_connection_are_not_held_back():
    with Server(answering("a", {"instance": "a"})) as server, httpx.Client() as client:
        url = f"{server.url}/health"
        client.get(url)
        slowest_but_few = sorted(_seconds(client, url) for _ in range(20))[15]
    assert slowest_but_few < 0.035  # delayed acknowledgements would make it 0.04 and more


def _seconds(client: httpx.Client, url: str) -> float:
    started = time.perf_counter()
    client.get(url)
    return time.perf_counter() - started


def test_an_idle_connection_outlasts_common_client_pauses():
    with Server(answering("a", {"instance": "a"})) as server:
        host, port = server.url.removeprefix("http://").split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=5)
        connection.request("GET", "/health")
        connection.getresponse().read()
        socket_before = connection.sock
        time.sleep(5.5)  # many servers close after 5
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
        assert connection.sock is socket_before
        connection.close()


def test_one_address_serves_an_endpoint_and_a_store(app: Starlette):
    with MemoryStore() as store:
        sink = Sink(store)
        both = build_app(Endpoint(store, sink), store=store)
        with Server(both) as server, httpx.Client(base_url=server.url) as client:
            assert client.get("/health").json()["instance"] == both.state.instance_id
            assert client.post("/store/v1/runs", json={}).status_code == 401
            owner = {"authorization": f"Bearer {store.access_token('owner')}"}
            assert client.post("/store/v1/runs", json={}, headers=owner).json() == {"runs": []}
            assert client.get("/rollout/ro-1/attempt/1/v1/models").status_code == 401
            assert client.get("/openapi.json").status_code == 200
        sink.close()
    with Server(app) as server:  # the endpoint alone
        assert httpx.post(f"{server.url}/store/v1/runs", json={}).status_code == 404
