"""A store behind a real server, and a client that sends exactly what a test says."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from agentlightning.records import AttemptKey, to_json
from agentlightning.server import Limits, Server, build_app
from agentlightning.store import Store
from agentlightning.store.http.operations import PREFIX, Operation
from agentlightning.store.memory import MemoryStore
from agentlightning.store.opening import open_store
from agentlightning.testing.store.making import request


class Client:
    """One kept connection."""

    def __init__(self, url: str, token: str | None) -> None:
        host, port = url.removeprefix("http://").split(":")
        self.address = (host, int(port))
        self.token = token
        self.connection = http.client.HTTPConnection(host, int(port), timeout=40)

    def send(
        self,
        path: str,
        body: bytes = b"{}",
        *,
        method: str = "POST",
        token: str | None = None,
        **headers: str | None,
    ) -> tuple[int, bytes, dict[str, str]]:
        """Any request; a header given as None is left out."""
        token = token or self.token
        sent = {"content_type": "application/json", **headers}
        if token and "authorization" not in headers:
            sent["authorization"] = f"Bearer {token}"
        named = {name.replace("_", "-"): text for name, text in sent.items() if text is not None}
        self.connection.request(method, path, body, named)
        reply = self.connection.getresponse()
        return reply.status, reply.read(), {name.lower(): text for name, text in reply.getheaders()}

    def ask(
        self, operation: Operation[Any, Any] | str, body: Any = None, *, token: str | None = None
    ) -> tuple[int, Any]:
        """An operation, with its answer as plain JSON."""
        name = operation if isinstance(operation, str) else operation.name
        status, reply, _ = self.send(f"{PREFIX}/{name}", to_json(body or {}), token=token)
        return status, json.loads(reply)

    def ok(self, operation: Operation[Any, Any] | str, body: Any = None, **options: Any) -> Any:
        """The answer of an operation that has to be carried out."""
        status, reply = self.ask(operation, body, **options)
        assert status == 200, reply
        return reply


class Served:
    """A store and its server."""

    def __init__(self, store: Store, server: Server) -> None:
        self.store = store
        self.server = server
        self.url = server.url
        self.owner = store.access_token("owner")
        self._closing = contextlib.ExitStack()

    def client(self, token: str | None = "owner") -> Client:
        """A new connection, with the owner's token unless told otherwise."""
        client = Client(self.url, self.owner if token == "owner" else token)
        self._closing.callback(client.connection.close)
        return client

    def close(self) -> None:
        self._closing.close()
        self.server.stop()


@contextlib.contextmanager
def serving() -> Iterator[Callable[..., Served]]:
    with contextlib.ExitStack() as closing:

        def start(store: Store, port: int = 0, **limits: int) -> Served:
            server = Server(build_app(store=store, limits=Limits(**limits)), port=port)
            server.start()
            served = Served(store, server)
            closing.callback(served.close)
            return served

        yield start


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Puts a server in front of a store."""
    with serving() as start:
        yield start


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path) -> Iterator[Store]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/store.db"
    with open_store(url) as opened:
        yield opened


@pytest.fixture
def served(serve, store) -> Served:
    """The store in memory, then the one in a file, behind a server."""
    return serve(store)


@pytest.fixture(scope="module")
def fast() -> Iterator[Served]:
    """A store in memory behind one server for all tests of a file, each with runs of its own."""
    with MemoryStore() as store, serving() as start:
        yield start(store)


@pytest.fixture
def run_id(fast) -> str:
    return fast.store.create_run("run", {}).run_id


@pytest.fixture
def claim_one(fast) -> Callable[..., tuple[AttemptKey, str]]:
    """Queues and claims a rollout: its key and its token."""

    def claim(run_id: str, **fields: Any) -> tuple[AttemptKey, str]:
        fast.store.enqueue(run_id, [request(**fields)])
        (claim,) = fast.store.claim(run_id, "worker")
        return claim.key, claim.token

    return claim
