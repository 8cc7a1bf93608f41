"""The endpoint: takes an attempt's requests, sends them to the model of its run, records each call.

Every attempt has a base URL of its own, ``/rollout/<id>/attempt/<n>/v1``, so that agents in any
language are recorded without a line of ours in them. Four protocols are spoken there; whatever an
agent speaks becomes one request for chat completions (for completions, one for completions).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from agentlightning import semconv
from agentlightning.endpoint.asking import Ask, prepare
from agentlightning.endpoint.attempts import Attempts
from agentlightning.endpoint.calls import AttemptState
from agentlightning.endpoint.dialects import DIALECTS
from agentlightning.endpoint.dialects.errors import error_response
from agentlightning.endpoint.exchange import Exchange
from agentlightning.endpoint.gate import Gate
from agentlightning.endpoint.incoming import (
    attempt_key,
    decoded,
    read_body,
    tokens_of,
    whole_number,
)
from agentlightning.endpoint.kept import Kept
from agentlightning.endpoint.ledger import Begun, Ledger, Try
from agentlightning.endpoint.lookups import Lookups
from agentlightning.endpoint.replies import Refused
from agentlightning.endpoint.served import ModelVersion, ServedModel, ServedModels
from agentlightning.endpoint.upstream import upstream_for
from agentlightning.engine import EngineInfo
from agentlightning.llm_api import read_call_headers
from agentlightning.recording.sink import Sink
from agentlightning.records import JSON, LLM, Api
from agentlightning.store import Store

_BASE: Final = "/rollout/{rollout_id}/attempt/{number}/v1"
_PATHS: Final[dict[str, Api]] = {
    "chat/completions": "chat",
    "completions": "completions",
    "responses": "responses",
    "messages": "messages",
    "openai/deployments/{deployment}/chat/completions": "chat",  # where Azure's clients look
}
_KEPT_BYTES: Final = 64 * 1024 * 1024

Handler = Callable[[Request], Awaitable[ASGIApp]]


class Endpoint:
    """An endpoint for every attempt of the runs it serves, in the words of OpenAI and Anthropic.

    Each call is in the sink before the last byte of its reply leaves. Token ids and log-probabilities
    are always recorded where the engine has them, and in the reply only where the agent asked.

    Args:
        store: knows the attempts and their tokens.
        sink: takes the spans of the calls.
        timeout_s: seconds an engine may take to answer; over HTTP, seconds without a byte.
        pause_s: seconds a request waits at most while weights change.
        upload_s: seconds an agent may take to send a request.
        retry_s: seconds that the engine goes on for a client that left unheard: its next try may come.
        max_body_bytes: the largest request taken.
    """

    def __init__(
        self,
        store: Store,
        sink: Sink,
        *,
        timeout_s: float = 600.0,
        pause_s: float = 600.0,
        upload_s: float = 120.0,
        retry_s: float = 10.0,
        max_body_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        self._attempts = Attempts(store)
        self._models = ServedModels()
        self._gate = Gate()
        self._ledger = Ledger(sink)
        self._kept = Kept(_KEPT_BYTES)
        self._under_way: set[Exchange] = set()
        self._timeout_s = timeout_s
        self._pause_s = pause_s
        self._upload_s = upload_s
        self._retry_s = retry_s
        self._max_body_bytes = max_body_bytes
        self.routes: list[BaseRoute] = [
            *(
                Route(f"{_BASE}/{path}", self._calling(api), methods=["POST"])
                for path, api in _PATHS.items()
            ),
            *Lookups(self._admitted, self._models, self._ledger).routes(_BASE),
        ]

    # --- the trainer's side -----------------------------------------------------------------

    def serve(
        self,
        run_id: str,
        llm: LLM,
        engine: EngineInfo,
        *,
        api_key: str | None = None,
        sampling: Mapping[str, JSON] | None = None,
    ) -> None:
        """Serve ``llm`` to the attempts of a run; a model of the same name is replaced.

        Args:
            run_id: whose attempts may ask.
            llm: its name and version; its ``sampling`` fills in what a request leaves open.
            engine: where the requests go.
            api_key: for an engine that asks for one.
            sampling: request fields forced on training rollouts (``temperature``, ``top_p``).
        """
        upstream = upstream_for(engine, api_key, timeout_s=self._timeout_s)
        current = ModelVersion(engine.model, llm.version)
        self._models.add(run_id, ServedModel(llm, engine, upstream, dict(sampling or {}), current))

    @contextmanager
    def paused(self, *, drain_s: float) -> Iterator[None]:
        """Hold new requests back and run the body when none is under way.

        Raises:
            Deadline: some were still under way after ``drain_s`` seconds; requests go on as before.
        """
        with self._gate.closed(drain_s=drain_s):
            yield

    def stamp(self, model: str, version: int, *, new_model: str | None = None) -> None:
        """Mark calls whose request leaves from now on with ``version``.

        Args:
            model: any name of a served model.
            version: of the weights its engine has now.
            new_model: the name to ask the engine for; the earlier names lead there too.
        """
        self._models.stamp(model, version, new_model)

    def report(self) -> dict[str, int]:
        """What was counted so far: ``calls``, ``failed``, ``unauthorised``, ``late_call`` and more."""
        return {name: count for name, count in self._ledger.counts.copy().items() if count}

    async def aclose(self) -> None:
        """End the calls under way, recorded as what they are; call it on the server's event loop."""
        self._attempts.stop()
        await asyncio.gather(*(exchange.stop() for exchange in self._under_way), return_exceptions=True)
        for served in self._models:
            await served.upstream.aclose()

    # --- the agent's side -------------------------------------------------------------------

    def _calling(self, api: Api) -> Handler:
        async def call(request: Request) -> ASGIApp:
            try:
                return await self._exchange(request, api)
            except Refused as refused:
                self._ledger.counts[refused.code] += 1
                return error_response(api, refused.answer)

        return call

    async def _exchange(self, request: Request, api: Api) -> Exchange:
        """The try that answers a request: a new one, or one that an earlier request has begun.

        Raises:
            Refused: the request is not served.
        """
        start_ns = time.time_ns()
        attempt = await self._admitted(request)
        raw = await read_body(request, limit=self._max_body_bytes, timeout_s=self._upload_s)
        body = decoded(raw)
        served = self._models.find(attempt.run_id, body.get("model"))
        headers = read_call_headers(request.headers)
        retry = whole_number(request, semconv.HEADER_RETRY) or 0
        call = attempt.call(api, headers.span_id, retry=retry, seq=headers.seq, body=raw)
        if call.exchange is not None:
            self._ledger.counts["replayed" if call.exchange.is_over else "joined"] += 1
            return call.exchange
        begun = Begun(attempt=attempt, call=call, headers=headers, served=served, start_ns=start_ns)
        call.exchange = exchange = self._started(begun, self._ask(begun, api, body))
        return exchange

    def _ask(self, begun: Begun, api: Api, body: dict[str, JSON]) -> Ask:
        """What an engine is asked.

        Raises:
            Refused: it cannot be told to one; that is recorded.
        """
        served, attempt = begun.served, begun.attempt
        try:
            dialect = DIALECTS[api](body, attempt.memory)
        except Refused as refused:
            self._ledger.record_refusal(begun, api, body, str(refused))
            raise
        return prepare(dialect, defaults=served.llm.sampling, forced=served.forced_in(attempt.mode))

    def _started(self, begun: Begun, ask: Ask) -> Exchange:
        exchange = Exchange(
            Try(**vars(begun), ask=ask),
            self._gate,
            self._ledger,
            pause_s=self._pause_s,
            retry_s=self._retry_s,
            ended=self._ended,
        )
        self._under_way.add(exchange)
        return exchange

    def _ended(self, exchange: Exchange, is_good: bool) -> None:
        self._under_way.discard(exchange)
        if is_good:
            self._kept.add(exchange)
        else:
            exchange.let_go()

    async def _admitted(self, request: Request) -> AttemptState:
        return await self._attempts.admit(attempt_key(request), tokens_of(request))
