from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from agentlightning.server import Server, build_app
from agentlightning.store import Store
from agentlightning.store.http.client import HttpStore
from agentlightning.store.memory import MemoryStore


class Serving:
    """A store behind a real server, and clients of it with one token or another."""

    def __init__(self, behind: Store, url: str, closing: ExitStack) -> None:
        self.behind = behind
        self.url = url
        self._closing = closing

    def client(self, token: str | None = None) -> HttpStore:
        """A client, by default the owner's, that is closed at the end of the test."""
        store = HttpStore(self.url, token=token or self.behind.access_token("owner"))
        return self._closing.enter_context(store)

    def runner(self, run_id: str | None = None) -> HttpStore:
        return self.client(self.behind.access_token("runner", run_id))


@contextmanager
def served(behind: Store, port: int = 0) -> Iterator[Serving]:
    with behind, Server(build_app(store=behind), port=port) as server, ExitStack() as closing:
        yield Serving(behind, server.url, closing)


@pytest.fixture
def serve() -> Iterator[Callable[..., Serving]]:
    """Put a store behind a server for the rest of the test."""
    with ExitStack() as closing:
        yield lambda behind, port=0: closing.enter_context(served(behind, port))


@pytest.fixture
def serving(serve) -> Serving:
    return serve(MemoryStore())


@pytest.fixture
def store(serving) -> HttpStore:
    return serving.client()


@pytest.fixture
def run_id(store) -> str:
    return store.create_run("over HTTP", {}).run_id
