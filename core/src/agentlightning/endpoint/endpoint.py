"""The endpoint: takes an attempt's requests, sends them to the model of its run, records each call.

Every attempt has a base URL of its own, ``/rollout/<id>/attempt/<n>/v1``, so that agents in any
language are recorded without a line of ours in them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentlightning import semconv
from agentlightning.endpoint.asking import for_agent, outgoing, prepare
from agentlightning.endpoint.attempts import Attempts, AttemptState
from agentlightning.endpoint.gate import Gate
from agentlightning.endpoint.incoming import bearer_token, decoded, read_body, whole_number
from agentlightning.endpoint.ledger import Ledger, Try
from agentlightning.endpoint.live import LiveStream
from agentlightning.endpoint.replies import Answer, Refused, failure, json_response, response_of
from agentlightning.endpoint.served import ModelVersion, ServedModel, ServedModels
from agentlightning.endpoint.streaming import MEDIA_TYPE, as_events
from agentlightning.endpoint.upstream import OverHttp, upstream_for
from agentlightning.engine import EngineInfo
from agentlightning.errors import Deadline
from agentlightning.llm_api import read_call_headers
from agentlightning.recording.sink import Sink
from agentlightning.records import JSON, LLM, AttemptKey
from agentlightning.store import Store

_BASE: Final = "/rollout/{rollout_id}/attempt/{number:int}/v1"
_RESENDS: Final = 5
_UNREACHABLE: Final = frozenset({502, 503})


class Endpoint:
    """An OpenAI-compatible endpoint for every attempt of the runs it serves.

    Each call is in the sink before the last byte of its reply leaves. Token ids and log-probabilities
    are always recorded where the engine has them, and in the reply only where the agent asked.

    Args:
        store: knows the attempts and their tokens.
        sink: takes the spans of the calls.
        timeout_s: seconds an engine may take to answer; over HTTP, seconds without a byte.
        pause_s: seconds a request waits at most while weights change.
        max_body_bytes: the largest request taken.
    """

    def __init__(
        self,
        store: Store,
        sink: Sink,
        *,
        timeout_s: float = 600.0,
        pause_s: float = 600.0,
        max_body_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        self._attempts = Attempts(store)
        self._models = ServedModels()
        self._gate = Gate()
        self._ledger = Ledger(sink)
        self._timeout_s = timeout_s
        self._pause_s = pause_s
        self._max_body_bytes = max_body_bytes
        self.routes = [
            Route(f"{_BASE}/chat/completions", self._chat, methods=["POST"]),
            Route(f"{_BASE}/models", self._list_models, methods=["GET"]),
            Route(f"{_BASE}/{{path:path}}", _unknown_path, methods=["GET", "POST"]),
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
        """Close the connections to model servers; call it on the server's event loop."""
        for served in self._models:
            await served.upstream.aclose()

    # --- the agent's side -------------------------------------------------------------------

    async def _list_models(self, request: Request) -> Response:
        try:
            attempt = await self._admitted(request)
        except Refused as refused:
            return self._refusal(refused)
        data = [
            {
                "id": served.current.name,
                "object": "model",
                "created": 0,
                "owned_by": "agentlightning",
                "max_model_len": served.engine.max_model_len,
            }
            for served in self._models.of_run(attempt.run_id)
        ]
        return json_response({"object": "list", "data": data})

    async def _chat(self, request: Request) -> Response | LiveStream:
        start_ns = time.time_ns()
        try:
            attempt = await self._admitted(request)
            raw = await read_body(request, self._max_body_bytes)
            body = decoded(raw)
            served = self._models.find(attempt.run_id, body.get("model"))
        except Refused as refused:
            return self._refusal(refused)
        headers = read_call_headers(request.headers)
        call = attempt.call(
            headers.span_id,
            retry=whole_number(request, semconv.HEADER_RETRY) or 0,
            seq=headers.seq,
            body=raw,
        )
        ask = prepare(body, defaults=served.llm.sampling, forced=served.forced_in(attempt.mode))
        this = Try(attempt, call, headers, served, ask, start_ns)
        if ask.streamed and call.reply is None and isinstance(served.upstream, OverHttp):
            return LiveStream(this, served.upstream, self._gate, self._ledger, pause_s=self._pause_s)
        answer = await self._answer(this)
        if ask.streamed and answer.reply is not None:
            return Response(b"".join(as_events(answer.reply, ask)), media_type=MEDIA_TYPE)
        return response_of(answer)

    async def _answer(self, this: Try) -> Answer:
        """The answer to a call: of the try under way or the one that succeeded, else of a new one.

        The try runs in a task of its own, so that a client that leaves does not end it: the call is
        recorded, and the client's next try gets the same reply.
        """
        call = this.call
        if call.reply is not None:
            self._ledger.counts["replayed"] += 1
            return call.reply
        if call.under_way is None:
            call.under_way = asyncio.create_task(self._try(this))
        else:
            self._ledger.counts["joined"] += 1
        return await asyncio.shield(call.under_way)

    async def _try(self, this: Try) -> Answer:
        answer = failure(503, "the endpoint was stopped before the model replied", "stopped")
        try:
            answer = await self._sent(this)
        finally:
            self._ledger.record(this, answer)
            this.call.under_way = None
        if answer.reply is not None:
            answer = Answer(answer.status, for_agent(answer.reply, this.ask))
            this.call.reply = answer
        return answer

    async def _sent(self, this: Try) -> Answer:
        """Send a request to its engine, and again when a weight update aborted it."""
        served = this.served
        while True:
            try:
                async with self._gate.passing(timeout_s=self._pause_s):
                    closings = self._gate.closings
                    current = served.current
                    this.version = current.version
                    ids = served.engine.returns_token_ids
                    body = outgoing(this.ask, model=current.name, token_ids=ids, stream=False)
                    answer = await served.upstream.ask(body)
            except Deadline as error:
                return failure(503, str(error), "paused")
            overtaken = self._gate.closings != closings
            if this.resent >= _RESENDS or not _aborted(answer, overtaken=overtaken):
                return answer
            this.resent += 1

    async def _admitted(self, request: Request) -> AttemptState:
        key = AttemptKey(request.path_params["rollout_id"], request.path_params["number"])
        return await self._attempts.admit(key, bearer_token(request))

    def _refusal(self, refused: Refused) -> Response:
        self._ledger.counts[refused.code] += 1
        return response_of(refused.answer)


def _aborted(answer: Answer, *, overtaken: bool) -> bool:
    """Whether a weight update, and not the request, is why there is no whole reply."""
    choices = (answer.reply or {}).get("choices")
    if isinstance(choices, list):
        return any(
            isinstance(choice, dict) and choice.get("finish_reason") == "abort" for choice in choices
        )
    return overtaken and answer.status in _UNREACHABLE


async def _unknown_path(request: Request) -> Response:
    path = request.path_params["path"]
    return response_of(
        failure(404, f"this endpoint answers chat/completions and models, not {path!r}", "unknown_path")
    )
