"""Writes each try of a call into the sink, and counts what a run should hear about."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from agentlightning import semconv
from agentlightning.endpoint.asking import Ask
from agentlightning.endpoint.calls import AttemptState, Call
from agentlightning.endpoint.replies import Answer
from agentlightning.endpoint.served import ServedModel
from agentlightning.llm_api import CallHeaders, llm_span, read_call
from agentlightning.recording.ids import root_span_id_of, span_id_of_try, trace_id_of
from agentlightning.recording.sink import Sink
from agentlightning.records import JSON, Api, LLMCall

_logger = logging.getLogger("agentlightning.endpoint")


@dataclass(kw_only=True)
class Begun:
    """A request whose attempt, call and model are known."""

    attempt: AttemptState
    call: Call
    headers: CallHeaders
    served: ServedModel
    start_ns: int


@dataclass(kw_only=True)
class Try(Begun):
    """One try of a call.

    Attributes:
        ask: what is asked.
        version: of the weights, taken when the request left for the engine.
        resent: how often it was sent again because a weight update aborted it.
    """

    ask: Ask
    version: int | None = None
    resent: int = 0


class Ledger:
    """Records calls; used on the server's event loop, read from anywhere."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.counts: Counter[str] = Counter()
        self._told: set[tuple[str, ...]] = set()

    def record(self, done: Try, answer: Answer, *, given: bool) -> bool:
        """Write the span of a try; returns once it is in the sink.

        A try that failed gets a span of its own below the call's when the call's id came with the
        request: the id stays free for the try that succeeds, or for the sender to report the failure.
        So does a try after one that broke off when the agent had heard the beginning of its reply.

        Args:
            done: the try.
            answer: how it ended, in the agent's protocol; one with a reply and an ``error`` broke off.
            given: whether the agent has heard of the reply.

        Returns:
            Whether it is a complete call.
        """
        ask, call = done.ask, done.call
        is_complete = answer.ok and answer.error is None
        made = read_call(
            seq=call.seq,
            api=ask.dialect.api,
            agent=done.headers.agent,
            base_url=done.served.upstream.address,
            request=ask.body,
            response=answer.reply,
            model_version=done.version,
            streamed=ask.dialect.streamed,
            complete=is_complete,
            retries=call.tries + done.resent,
            error=answer.error,
        )
        overruled = {f"{semconv.OVERRULED}.{name}": asked for name, asked in ask.overruled.items()}
        self._write(done, made, is_call=is_complete or given, attributes=overruled)
        self._count(done, made, answer)
        return made.complete

    def record_refusal(self, begun: Begun, api: Api, request: dict[str, JSON], message: str) -> None:
        """Write the span of a request that no engine was asked for: it cannot be told to one."""
        made = read_call(
            seq=begun.call.seq,
            api=api,
            agent=begun.headers.agent,
            base_url=begun.served.upstream.address,
            request=request,
            response=None,
            streamed=request.get("stream") is True,
            retries=begun.call.tries,
            error=message,
        )
        self._write(begun, made, is_call=False)

    def _write(
        self,
        begun: Begun,
        made: LLMCall,
        *,
        is_call: bool,
        attributes: Mapping[str, JSON] | None = None,
    ) -> None:
        span_id, parent_id = self._place(begun, is_call=is_call)
        span = llm_span(
            made,
            key=begun.attempt.key,
            trace_id=trace_id_of(begun.attempt.key),
            span_id=span_id,
            parent_id=parent_id,
            start_ns=begun.start_ns,
            end_ns=time.time_ns(),
            attributes=attributes,
        )
        self._sink.add(span)

    def _place(self, begun: Begun, *, is_call: bool) -> tuple[str, str]:
        """The ids of a try's span and of its parent."""
        call = begun.call
        parent_id = begun.headers.parent_id or root_span_id_of(begun.attempt.key)
        if is_call and not call.is_recorded:
            call.is_recorded = True
            return call.span_id, parent_id
        is_known = call.is_named or call.is_recorded
        return span_id_of_try(call.span_id, call.tries), call.span_id if is_known else parent_id

    def told(self, *what: str) -> bool:
        """Whether this was said before; it is from now on."""
        if what in self._told:
            return True
        self._told.add(what)
        return False

    def _count(self, done: Try, call: LLMCall, answer: Answer) -> None:
        self.counts["calls"] += 1
        self.counts["failed"] += not answer.ok
        self.counts["client_left"] += answer.code == "client_left"
        self.counts["incomplete"] += answer.ok and not call.complete
        self.counts["resent"] += done.resent
        for name, asked in done.ask.overruled.items():
            self._count_overruled(done, name, asked)
        for name in done.ask.dialect.no_effect:
            self._count_without_effect(call, name)
        if call.complete and not _has_token_ids(call):
            self._count_without_ids(call)

    def _count_overruled(self, done: Try, name: str, asked: object) -> None:
        self.counts[f"forced_{name}"] += 1
        if not self.told("forced", done.attempt.run_id, name, repr(asked)):
            _logger.warning(
                "the agent asks for %s=%r; training rollouts are sampled with the training's own, %r. "
                "Validation rollouts keep what the agent asks for",
                name, asked, done.served.forced[name],
            )  # fmt: skip

    def _count_without_effect(self, call: LLMCall, name: str) -> None:
        self.counts[f"no_effect_{name}"] += 1
        if not self.told("no effect", call.api, name):
            _logger.warning(
                "%s of a request of the %s API has no effect: it is answered by chat completions, "
                "which have nothing like it",
                name, call.api,
            )  # fmt: skip

    def _count_without_ids(self, call: LLMCall) -> None:
        self.counts["without_token_ids"] += 1
        if not self.told("ids", call.base_url, call.model):
            _logger.warning(
                "no ids from this server: RL is off for this model, prompt optimisation and SFT work "
                "(%s at %s returned no token ids)",
                call.model, call.base_url,
            )  # fmt: skip


def _has_token_ids(call: LLMCall) -> bool:
    return call.prompt_ids is not None and all(
        choice.response_ids is not None for choice in call.choices
    )
