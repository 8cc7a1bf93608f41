"""Runs an application in a thread, on a port that is proved to be its own."""

from __future__ import annotations

import asyncio
import http.client
import ipaddress
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

import uvicorn
from starlette.applications import Starlette

from agentlightning.errors import Deadline, ServerError

logger = logging.getLogger("agentlightning.server")

# Clients keep idle connections for seconds to minutes. The server must outlast them, or the next
# request on such a connection is lost.
_KEEP_ALIVE_S: Final = 3600
_WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared with, not bound
_HEALTH_TIMEOUT_S: Final = 10.0  # a loaded machine is slow; a wrong server answers at once


class Server:
    """One application on one address, loopback and a free port unless told otherwise.

    Args:
        app: made by :func:`agentlightning.server.build_app`.
        host: the address to listen on.
        port: 0 takes a free one; :attr:`url` says which.
        start_s: seconds the application may take to answer.
    """

    def __init__(
        self, app: Starlette, host: str = "127.0.0.1", port: int = 0, *, start_s: float = 60.0
    ) -> None:
        self._app = app
        self._host = host
        self._port = port
        self._start_s = start_s
        self._running: _Running | None = None

    @property
    def url(self) -> str:
        """The root to reach it at from this machine, without a trailing slash."""
        if self._running is None:
            raise ServerError("the server is not running; call start() first")
        return self._running.url

    def start(self) -> str:
        """Listen, wait until the application answers, and return :attr:`url`.

        Raises:
            ServerError: the port is taken, somebody else answers on it, or the application did not
                start in time. Nothing is left running.
        """
        if self._running is not None:
            raise ServerError(f"the server already runs at {self._running.url}")
        running = _Running(self._app, _bind(self._host, self._port), self._host)
        try:
            running.wait_ready(self._start_s)
            _check_instance(running.address, self._app.state.instance_id)
        except BaseException:
            running.stop(0.0)
            raise
        self._running = running
        if not _is_loopback(running.address[0]) or self._host in _WILDCARDS:
            logger.warning(
                "the server listens on %s, which other machines can reach; whoever has a token may use "
                "it, and tokens go over the network unencrypted: put a proxy with TLS in front of it",
                self._host or "all addresses",
            )
        return running.url

    def stop(self, *, drain_s: float = 5.0) -> None:
        """Let requests under way finish for ``drain_s`` seconds, then free the port; repeatable."""
        running, self._running = self._running, None
        if running is not None:
            running.stop(drain_s)

    def wait(self) -> None:
        """Return when the server has ended; in the main thread, Ctrl+C interrupts this.

        Raises:
            ServerError: it ended by itself; the message says why.
        """
        if self._running is None:
            raise ServerError("the server is not running; call start() first")
        self._running.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


class _Running:
    """uvicorn in a thread of its own, with an event loop of its own."""

    def __init__(self, app: Starlette, listener: socket.socket, host: str) -> None:
        port: int = listener.getsockname()[1]
        self.address = ("127.0.0.1" if host in _WILDCARDS else host, port)
        shown = f"[{self.address[0]}]" if ":" in self.address[0] else self.address[0]
        self.url = f"http://{shown}:{port}"
        self._listener = listener
        self._ready = threading.Event()
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._uvicorn = _Uvicorn(
            _uvicorn_config(app), self._ready, getattr(app.state, "before_stop", ())
        )
        self._thread = threading.Thread(target=self._serve, name=f"server-{port}", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            asyncio.run(self._uvicorn.serve(sockets=[self._listener]))
        except BaseException as error:  # noqa: BLE001 - uvicorn even exits; wait_ready and stop report it
            self._failure = error
        finally:
            self._listener.close()
            self._ready.set()
            self._ended.set()

    def wait_ready(self, timeout_s: float) -> None:
        """Return when connections are accepted."""
        if not self._ready.wait(timeout_s):
            raise ServerError(f"the server at {self.url} did not start within {timeout_s:g} s")
        if not self._uvicorn.started:
            raise ServerError(f"the server at {self.url} failed to start: {self._failure!r}")

    def wait(self) -> None:
        """Return when the thread has ended."""
        # Not by join: an interrupted join takes the thread for ended (Python 3.11), and stop() would
        # not wait for it. And not without a timeout, which Ctrl+C does not interrupt on some systems.
        while not self._ended.wait(1.0):
            continue
        if not self._uvicorn.should_exit:
            raise ServerError(f"the server at {self.url} ended by itself: {self._failure!r}")

    def stop(self, drain_s: float) -> None:
        """Ask uvicorn to end, then make it."""
        # uvicorn takes whole seconds; 0 would mean no wait at all for a reply that is being written.
        self._uvicorn.config.timeout_graceful_shutdown = max(1, round(drain_s))
        self._uvicorn.should_exit = True
        self._thread.join(drain_s + 2.0)
        if self._thread.is_alive():
            self._uvicorn.force_exit = True
            self._thread.join(2.0)
        if self._thread.is_alive():
            raise Deadline(
                f"the server at {self.url} did not end {drain_s + 4.0:g} s after it was asked"
            )
        if self._failure is not None and self._uvicorn.started:
            raise ServerError(f"the server at {self.url} failed: {self._failure!r}")


class _Uvicorn(uvicorn.Server):
    """Tells when connections are accepted, and the application when it is about to stop."""

    def __init__(
        self,
        config: uvicorn.Config,
        ready: threading.Event,
        before_stop: Sequence[Callable[[], None]],
    ) -> None:
        super().__init__(config)
        self._ready = ready
        self._before_stop = before_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # The lifespan hears of the end only when all requests are answered; those that are held back
        # have to hear of it first.
        for release in self._before_stop:
            release()
        await super().shutdown(sockets)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return host == "localhost"


def _uvicorn_config(app: Starlette) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="asyncio",
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Naming the protocol matters: only then does asyncio turn off Nagle's algorithm on connections,
    # which would hold back each reply on a kept connection for 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if os.name == "posix":  # elsewhere this option would let two servers share the port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)  # here and not in uvicorn, so that a taken port is refused at once
    except OSError as error:
        listener.close()
        raise ServerError(
            f"cannot listen on port {port} of {host or 'all addresses'}: {error.strerror or error}. "
            f"Stop what uses the port, choose another, or use port 0 for a free one"
        ) from error
    return listener


def _check_instance(address: tuple[str, int], instance_id: str) -> None:
    """Make sure that it is our application that answers at the address."""
    host, port = address
    found = _instance_at(address)
    if found != instance_id:
        raise ServerError(
            f"port {port} of {host} is answered by another server (instance {found!r}, expected "
            f"{instance_id!r}); stop it, choose another port, or use port 0 for a free one"
        )


def _instance_at(address: tuple[str, int]) -> object:
    host, port = address
    connection = http.client.HTTPConnection(host, port, timeout=_HEALTH_TIMEOUT_S)
    started = time.monotonic()
    try:
        connection.request("GET", "/health")
        body = connection.getresponse().read()
        reply = json.loads(body)
        return reply.get("instance") if isinstance(reply, dict) else None
    except (OSError, http.client.HTTPException) as error:
        waited = time.monotonic() - started
        raise ServerError(
            f"port {port} of {host} gave no answer within {waited:.1f} s: {error}"
        ) from error
    except ValueError:  # not JSON: somebody else's page
        return None
    finally:
        connection.close()
