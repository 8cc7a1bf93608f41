"""A scripted, OpenAI-compatible model server on loopback, for tests and offline examples."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from agentlightning.llm_api import api_of_path
from agentlightning.records import JSON, Api
from agentlightning.testing.model_bodies import (
    chat_body,
    chat_chunks,
    completion_body,
    completion_chunks,
    responses_body,
    responses_events,
)
from agentlightning.testing.model_faults import Fault
from agentlightning.testing.model_message_bodies import message_body, message_events
from agentlightning.testing.model_script import Turn


@dataclass(frozen=True)
class ModelRequest:
    """A request as the server saw it; header names are lower-case."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, JSON]


@dataclass(frozen=True)
class RawReply:
    """A reply sent as it is, for what a well-behaved server would not send."""

    body: bytes = b""
    status: int = 200
    content_type: str = "application/json"


ReplyHook: TypeAlias = Callable[
    [ModelRequest], "str | Turn | Fault | dict[str, JSON] | RawReply | None"
]
"""Text or a turn to say, a fault, a whole body, a raw reply, or None for the scripted behaviour."""

_FAIL: Final = re.compile(r"FAIL([45]\d\d)")
_LONGEST_WAIT_S: Final = 30.0
_IDS: Final = ("return_token_ids", "logprobs")

_BODIES: Final[Mapping[Api | None, Callable[..., dict[str, JSON]]]] = {
    "chat": chat_body,
    "completions": completion_body,
    "responses": responses_body,
    "messages": message_body,
}


class ModelServer:
    """Chat completions, completions, Responses and Messages, streamed or not, below any path prefix.

    What it says comes from a marker in the prompt (see
    :func:`~agentlightning.testing.model_script.scripted_turn`) or from ``reply``. ``FAIL500`` (or any
    other error status) anywhere in a request's body is answered with that status. As with vLLM, token
    ids and log-probabilities come for chat completions and completions, and only when asked for
    (``return_token_ids``, ``logprobs``).

    Args:
        reply: decides replies itself, faults included; see :data:`ReplyHook`.
        delay_s: seconds every reply takes.
        token_ids: false for a server that knows none, as OpenAI's and Ollama's do not.

    Attributes:
        requests: every request so far. ``left``: how many streams a client did not read to their end.

    Example:
        >>> with ModelServer(reply=lambda request: "hello") as server:
        ...     OpenAI(base_url=server.url, api_key="unused")
    """

    def __init__(
        self, reply: ReplyHook | None = None, *, delay_s: float = 0.0, token_ids: bool = True
    ) -> None:
        self.reply = reply
        self.delay_s = delay_s
        self.token_ids = token_ids
        self.requests: list[ModelRequest] = []
        self.left = 0
        self._server = _HTTPServer(("127.0.0.1", 0), _Handler, self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name="model-server", daemon=True
        )

    @property
    def url(self) -> str:
        """The base URL, ending in ``/v1``."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def start(self) -> Self:
        """Start answering; used as a context manager this happens by itself."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop answering and close every connection."""
        self._server.shutdown()
        self._server.server_close()
        self._server.hang_up()
        self._thread.join(timeout=5)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def answer(self, request: ModelRequest) -> tuple[RawReply | dict[str, JSON], Fault]:
        """The reply to one request, before it is cut into a stream, and what goes wrong with it."""
        self.requests.append(request)
        if self.delay_s:
            time.sleep(self.delay_s)
        api = api_of_path(request.path)
        if asked := _FAIL.search(json.dumps(request.body)):
            return _error(api, int(asked[1]), f"{asked[0]} was asked for"), Fault()
        chosen = self.reply(request) if self.reply else None
        if isinstance(chosen, RawReply | dict):
            return chosen, Fault()
        fault = chosen if isinstance(chosen, Fault) else Fault()
        if fault.status is not None:
            return _error(api, fault.status, "the model server was told to fail"), fault
        turn = Turn(text=chosen) if isinstance(chosen, str) else chosen
        turn = fault.turn if isinstance(turn, Fault) else turn
        write = _BODIES.get(api)
        if write is None:
            return _error(api, 404, f"no such path: {request.path}"), fault
        hides = fault.without_ids or not self.token_ids
        body = {k: v for k, v in request.body.items() if not (hides and k in _IDS)}
        return write(body, turn), fault


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: Any, handler: Any, model: ModelServer) -> None:
        super().__init__(address, handler)
        self.model = model
        self._connections: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End kept-alive connections, whose threads would wait for the next request."""
        for connection in list(self._connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:  # the client was first
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves early is what some tests are about, and no error of ours."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the body waits 40 ms for the headers to be acknowledged
    server: _HTTPServer

    def do_GET(self) -> None:
        self._send(RawReply(json.dumps({"object": "list", "data": []}).encode()))

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = json.loads(self.rfile.read(length) or b"{}")
        request = ModelRequest(self.path, headers, body)
        reply, fault = self.server.model.answer(request)
        if fault.lost:
            self._hang_up()
        elif isinstance(reply, RawReply):
            self._send(reply)
        elif body.get("stream"):
            self._stream(_events(request, reply), fault)
        else:
            self._send(RawReply(json.dumps(reply).encode()))

    def _send(self, reply: RawReply) -> None:
        self.send_response(reply.status)
        self.send_header("content-type", reply.content_type)
        self.send_header("content-length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    def _stream(self, events: Iterator[bytes], fault: Fault) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for number, event in enumerate(events):
                if number == fault.cut_after:
                    self._hang_up()
                    return
                if number == fault.wait_after and fault.wait_for is not None:
                    fault.wait_for.wait(_LONGEST_WAIT_S)
                if number == fault.malformed_after:
                    self._chunk(b"data: {this is no JSON\n\n")
                time.sleep(fault.piece_s)
                self._chunk(event)
            self._chunk(b"")
        except OSError:
            self.server.model.left += 1

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base's
        """Keep quiet; requests are in ``ModelServer.requests``."""


def _events(request: ModelRequest, body: dict[str, JSON]) -> Iterator[bytes]:
    api = api_of_path(request.path)
    if api in {"responses", "messages"}:
        for event in responses_events(body) if api == "responses" else message_events(body):
            yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
        return
    options = request.body.get("stream_options") or {}
    cut = completion_chunks if api == "completions" else chat_chunks
    for chunk in cut(body, include_usage=bool(options.get("include_usage"))):
        yield f"data: {json.dumps(chunk)}\n\n".encode()
    yield b"data: [DONE]\n\n"


def _error(api: Api | None, status: int, message: str) -> RawReply:
    error = {"message": message, "type": "scripted", "code": None}
    body = {"type": "error", "error": error} if api == "messages" else {"error": error}
    return RawReply(json.dumps(body).encode(), status=status)
