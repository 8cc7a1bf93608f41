"""Writes each try of a call into the sink, and counts what a run should hear about."""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass

from agentlightning import semconv
from agentlightning.endpoint.asking import Ask
from agentlightning.endpoint.attempts import AttemptState, Call
from agentlightning.endpoint.replies import Answer
from agentlightning.endpoint.served import ServedModel
from agentlightning.llm_api import CallHeaders, llm_span, read_call
from agentlightning.recording.ids import root_span_id_of, trace_id_of
from agentlightning.recording.sink import Sink
from agentlightning.records import LLMCall

_logger = logging.getLogger("agentlightning.endpoint")


@dataclass
class Try:
    """One try of a call.

    Attributes:
        version: of the weights, taken when the request left for the engine.
        resent: how often it was sent again because a weight update aborted it.
    """

    attempt: AttemptState
    call: Call
    headers: CallHeaders
    served: ServedModel
    ask: Ask
    start_ns: int
    version: int | None = None
    resent: int = 0


class Ledger:
    """Records calls; used on the server's event loop, read from anywhere."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.counts: Counter[str] = Counter()
        self._told: set[tuple[str, ...]] = set()

    def record(
        self, done: Try, answer: Answer, *, complete: bool = True, error: str | None = None
    ) -> None:
        """Write the span of a try; returns once it is in the sink.

        A try that failed gets a span of its own below the call's when the call's id came with the
        request: the id stays free for the try that succeeds, or for the sender to report the failure.
        """
        call = read_call(
            seq=done.call.seq,
            api="chat",
            agent=done.headers.agent,
            base_url=done.served.upstream.address,
            request=done.ask.body,
            response=answer.reply,
            model_version=done.version,
            streamed=done.ask.streamed,
            complete=complete and answer.ok,
            retries=done.call.tries + done.resent,
            error=error or answer.error,
        )
        parent = done.headers.parent_id or root_span_id_of(done.attempt.key)
        span_id = done.call.span_id
        if not answer.ok:
            parent = span_id if done.call.named else parent
            span_id = done.call.span_of_failed_try()
        span = llm_span(
            call,
            key=done.attempt.key,
            trace_id=trace_id_of(done.attempt.key),
            span_id=span_id,
            parent_id=parent,
            start_ns=done.start_ns,
            end_ns=time.time_ns(),
            attributes={
                f"{semconv.OVERRULED}.{name}": value for name, value in done.ask.overruled.items()
            },
        )
        self._sink.add(span)
        self._count(done, call, answer)

    def told(self, *what: str) -> bool:
        """Whether this was said before; it is from now on."""
        if what in self._told:
            return True
        self._told.add(what)
        return False

    def _count(self, done: Try, call: LLMCall, answer: Answer) -> None:
        self.counts["calls"] += 1
        self.counts["failed"] += not answer.ok
        self.counts["incomplete"] += answer.ok and not call.complete
        self.counts["resent"] += done.resent
        for name, asked in done.ask.overruled.items():
            self._count_overruled(done, name, asked)
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
