"""How a request reaches an engine: a coroutine of this process, or HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

import msgspec

from agentlightning.endpoint.replies import Answer, failure
from agentlightning.engine import ChatHandler, EngineInfo
from agentlightning.errors import EngineError
from agentlightning.llm_api import url_for
from agentlightning.records import JSON, Api

if TYPE_CHECKING:
    import httpx

_logger = logging.getLogger("agentlightning.endpoint")

_PASSED_ON: Final = ("retry-after", "retry-after-ms", "x-should-retry", "x-request-id")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_SHOWN: Final = 200
_ERRORS: Final = 400


class Upstream(Protocol):
    """Where the requests for one model go. Failures are answers, never exceptions."""

    address: str

    async def ask(self, api: Api, body: dict[str, JSON]) -> Answer:
        """One request without streaming, for chat completions or completions."""

    async def aclose(self) -> None:
        """Release connections; the next request opens new ones."""


class InProcess:
    """An engine that lives in this process.

    Args:
        chat: answers a request.
        timeout_s: seconds after which a request is given up.
    """

    address = "in-process"

    def __init__(self, chat: ChatHandler, *, timeout_s: float) -> None:
        self._chat = chat
        self._timeout_s = timeout_s

    async def ask(self, api: Api, body: dict[str, JSON]) -> Answer:
        """Call the engine; an ``EngineError`` is the request's fault, all else the engine's.

        On the trainer's live weights a request waits for as long as the trainer holds them.
        """
        if api != "chat":
            message = f"the engine of {body['model']!r} answers chat completions only, not {api}"
            return failure(400, message, "unsupported")
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                reply = await self._chat(body)
        except EngineError as error:
            return failure(400, str(error), "bad_request")
        except Exception as error:  # whatever a model's code raises is this one call's failure
            if limit.expired():
                return self._too_late()
            _logger.exception("the engine failed on a request")
            return failure(500, f"the engine failed: {type(error).__name__}: {error}", "engine_failed")
        return Answer(200, reply)

    async def aclose(self) -> None:
        """Nothing to release."""

    def _too_late(self) -> Answer:
        message = (
            f"the engine gave no answer in {self._timeout_s:g} s: the trainer may hold the weights, as "
            "it does between rollouts, or replies take that long. Limit the tokens of a reply, or run "
            "fewer rollouts at once"
        )
        return failure(504, message, "upstream_timeout")


class OverHttp:
    """An OpenAI-compatible server.

    Args:
        base_url: its API, ending in ``/v1``.
        api_key: sent as bearer token; None sends none.
        timeout_s: seconds without a byte after which a request is given up.
    """

    def __init__(self, base_url: str, api_key: str | None, *, timeout_s: float) -> None:
        self.address = base_url.rstrip("/")
        self._api_key = api_key
        self._timeout_s = timeout_s
        self._client: httpx.AsyncClient | None = None

    async def ask(self, api: Api, body: dict[str, JSON]) -> Answer:
        """Send a request; a server that cannot be reached is a 502, one that is silent a 504."""
        async with self.opened(api, body) as response:
            return response if isinstance(response, Answer) else await self._read(response)

    @asynccontextmanager
    async def opened(self, api: Api, body: dict[str, JSON]) -> AsyncIterator[httpx.Response | Answer]:
        """A stream that is still to be read; an answer where there is none."""
        import httpx

        client = self._connected()
        request = client.build_request(
            "POST", url_for(self.address, api), content=msgspec.json.encode(body)
        )
        try:
            response = await client.send(request, stream=True)
        except httpx.HTTPError as error:
            yield self.broken(error)
            return
        try:
            streams = response.is_success and body.get("stream") is True
            # A server that cannot stream answers with the whole reply.
            whole = "json" in response.headers.get("content-type", "")
            yield response if not whole and streams else await self._read(response)
        finally:
            await response.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def broken(self, error: httpx.HTTPError) -> Answer:
        """What to answer when the connection failed."""
        import httpx

        what = f"{type(error).__name__}: {error}".rstrip(": ")
        if isinstance(error, httpx.TimeoutException):
            message = (
                f"the model server at {self.address} gave no answer in {self._timeout_s:g} s ({what})"
            )
            return failure(504, message, "upstream_timeout")
        return failure(
            502, f"the model server at {self.address} cannot be reached ({what})", "upstream"
        )

    async def _read(self, response: httpx.Response) -> Answer:
        import httpx

        try:
            content = await response.aread()
        except httpx.HTTPError as error:
            return self.broken(error)
        headers = {name: response.headers[name] for name in _PASSED_ON if name in response.headers}
        if not response.is_success:
            return self._refused(response.status_code, content, headers)
        try:
            reply = msgspec.json.decode(content, type=dict)
        except (msgspec.DecodeError, RecursionError) as error:
            message = f"the model server at {self.address} replied with what is not JSON: {error}"
            return failure(502, message, "upstream")
        return Answer(response.status_code, reply, content, headers)

    def _refused(self, status: int, content: bytes, headers: dict[str, str]) -> Answer:
        text = content[:_SHOWN].decode("utf-8", "replace")
        told = f"the model server at {self.address} answered {status}: {text}"
        # A redirect is followed by nobody here, and would lead an agent past us.
        passed_on = status if status >= _ERRORS else 502
        return Answer(passed_on, None, content, headers, error=told, message=told)

    def _connected(self) -> httpx.AsyncClient:
        """The client, made on the event loop it is used on."""
        import httpx

        if self._client is None:
            headers = {"content-type": "application/json"}
            if self._api_key is not None:
                headers["authorization"] = f"Bearer {self._api_key}"
            self._client = httpx.AsyncClient(
                headers=headers,
                timeout=httpx.Timeout(self._timeout_s, connect=10.0),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=256),
                # A proxy from the environment must not get between us and an engine of this machine.
                trust_env=urlsplit(self.address).hostname not in _LOOPBACK,
            )
        return self._client


def upstream_for(engine: EngineInfo, api_key: str | None, *, timeout_s: float) -> InProcess | OverHttp:
    """Where the requests for ``engine`` go.

    Raises:
        EngineError: it offers neither a coroutine nor an address.
    """
    if engine.chat is not None:
        return InProcess(engine.chat, timeout_s=timeout_s)
    if engine.base_url is not None:
        return OverHttp(engine.base_url, api_key, timeout_s=timeout_s)
    raise EngineError(
        f"the engine of {engine.model!r} has neither `chat` nor `base_url`; it must offer one of them"
    )
