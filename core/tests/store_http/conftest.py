import asyncio
import http.client
import itertools
import json
import socket
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from typing import NamedTuple

import pytest
from agentlightning.server import Server, build_app
from agentlightning.store import Store
from agentlightning.store.http.client import HttpStore
from agentlightning.store.memory import MemoryStore
from starlette.applications import Starlette
from starlette.routing import Mount


class House:
    """One real server for the stores of all tests, each under a path of its own.

    Starting a server takes a quarter of a second, and there are hundreds of tests.
    """

    def __init__(self) -> None:
        self._server = Server(build_app(routes=[Mount("/", app=self._answer)]))
        self._apps: dict[str, Starlette] = {}
        self._open: dict[str, AsyncExitStack] = {}
        self._opening: asyncio.Lock | None = None
        self._numbers = itertools.count()
        self._url = self._server.start()

    @contextmanager
    def serve(self, behind: Store, **options) -> Iterator[str]:
        """Serve a store, until the end, at the URL that this gives."""
        name = str(next(self._numbers))
        self._apps[name] = build_app(store=behind, **options)
        try:
            yield f"{self._url}/{name}"
        finally:
            app = self._apps.pop(name)
            if (opened := self._open.pop(name, None)) is not None:
                asyncio.run_coroutine_threadsafe(self._end(app, opened), self._loop).result(10)

    def stop(self) -> None:
        self._server.stop()

    async def _answer(self, scope, receive, send) -> None:
        _, name, rest = scope["path"].split("/", 2)
        self._loop = asyncio.get_running_loop()
        self._opening = self._opening or asyncio.Lock()
        async with self._opening:
            if name not in self._open:
                app = self._apps[name]
                self._open[name] = AsyncExitStack()
                await self._open[name].enter_async_context(app.router.lifespan_context(app))
        await self._apps[name]({**scope, "path": f"/{rest}", "root_path": ""}, receive, send)

    async def _end(self, app: Starlette, opened: AsyncExitStack) -> None:
        for release in app.state.before_stop:
            release()
        await opened.aclose()


class Serving:
    """A store behind a server, and clients of it with one token or another."""

    def __init__(self, behind: Store, url: str, closing: ExitStack) -> None:
        self.behind = behind
        self.url = url
        self._closing = closing

    def client(self, token: str | None = None, url: str | None = None, **options) -> HttpStore:
        """A client, by default the owner's, that is closed at the end of the test."""
        token = token or self.behind.access_token("owner")
        store = HttpStore(url or self.url, token=token, **options)
        return self._closing.enter_context(store)

    def runner(self, run_id: str | None = None, **options) -> HttpStore:
        return self.client(self.behind.access_token("runner", run_id), **options)


@pytest.fixture(scope="session")
def house() -> Iterator[House]:
    house = House()
    yield house
    house.stop()


@pytest.fixture
def serve(house) -> Iterator[Callable[..., Serving]]:
    """Put a store behind a server for the rest of the test."""
    with ExitStack() as closing:

        def serve(behind: Store, **options) -> Serving:
            closing.enter_context(behind)
            url = closing.enter_context(house.serve(behind, **options))
            return Serving(behind, url, closing)

        yield serve


@pytest.fixture
def serving(serve) -> Serving:
    return serve(MemoryStore())


@pytest.fixture
def store(serving) -> HttpStore:
    return serving.client()


@pytest.fixture
def run_id(store) -> str:
    return store.create_run("over HTTP", {}).run_id


class Sent(NamedTuple):
    """One request as it arrived."""

    operation: str
    head: bytes
    body: bytes

    def __getattr__(self, field):
        return json.loads(self.body)[field]


class Proxy:
    """Passes requests on to a server, and does to them or their replies what a test says.

    What to do to the next request of an operation: ``lose`` the reply, ``cut`` it short, ``drop`` the
    request, ``hang`` up after a whole reply, or send the bytes given instead of asking the server.
    """

    def __init__(self, url: str) -> None:
        self._upstream, _, self._path = url.removeprefix("http://").partition("/")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[Sent] = []
        self.always: str | bytes | None = None
        self._next: dict[str, deque] = defaultdict(deque)
        threading.Thread(target=self._accept, daemon=True).start()

    def do(self, operation: str, *deeds: str | bytes) -> None:
        self._next[operation].extend(deeds)

    def sent(self, operation: str) -> list[Sent]:
        return [request for request in self.requests if request.operation == operation]

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as reader, suppress(OSError):
            while request := read(reader):
                self.requests.append(request)
                queued = self._next[request.operation]
                deed = queued.popleft() if queued else self.always
                if deed == "drop":
                    return
                reply = deed if isinstance(deed, bytes) else self._passed_on(request)
                if deed == "lose":
                    return
                connection.sendall(reply[: len(reply) - 5] if deed == "cut" else reply)
                if deed in ("cut", "hang"):
                    return

    def _passed_on(self, request: Sent) -> bytes:
        upstream = http.client.HTTPConnection(self._upstream)
        lines = request.head.decode("latin-1").split("\r\n")[1:]
        headers = dict(line.split(": ", 1) for line in lines if line.startswith(("auth", "content-t")))
        upstream.request("POST", f"/{self._path}/store/v1/{request.operation}", request.body, headers)
        reply = upstream.getresponse()
        body = reply.read()
        upstream.close()
        return answer(reply.status, body)


def read(reader) -> Sent | None:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = reader.readline()
        if not line:
            return None
        head += line
    lines = head.lower().split(b"\r\n")
    (length,) = (line.split(b":")[1] for line in lines if line.startswith(b"content-length"))
    operation = head.split()[1].decode().removeprefix("/store/v1/")
    return Sent(operation, head, reader.read(int(length)))


def answer(status: int, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} It", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@pytest.fixture
def proxy(serving) -> Iterator[Proxy]:
    """A proxy in front of ``serving``."""
    proxy = Proxy(serving.url)
    yield proxy
    proxy.close()


@pytest.fixture
def proxied(serving, proxy) -> HttpStore:
    """The owner's client, behind ``proxy``."""
    return serving.client(url=proxy.url, retry_s=2.0)
