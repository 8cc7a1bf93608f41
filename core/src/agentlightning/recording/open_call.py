"""One LLM call under way, recorded exactly once however it ends. Seam and ``emit`` share it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from agentlightning import semconv
from agentlightning.llm_api import (
    CallHeaders,
    base_of_url,
    error_line,
    llm_span,
    read_call,
    scrub_body,
    write_call_headers,
)
from agentlightning.recording.context import RolloutContext, current_span
from agentlightning.recording.guard import never_raises
from agentlightning.recording.ids import new_span_id
from agentlightning.recording.routing import Outgoing, decide
from agentlightning.records import CallInfo


class OpenCall:
    """A call that was decided on and is about to be sent.

    The first of :meth:`replied`, :meth:`failed` and :meth:`abandon` makes the record, the others
    then do nothing. A call to our endpoint is recorded there, under the span id sent along, and its
    failed tries beneath that id; here only if it failed for good, so that they have their parent.
    """

    def __init__(self, context: RolloutContext, info: CallInfo, outgoing: Outgoing) -> None:
        self.outgoing = outgoing
        self.span_id = new_span_id()
        self.streamed = bool(outgoing.body.get("stream"))
        self.api = info.api
        self._context = context
        self._agent = info.agent
        self._parent_id = current_span()
        self._seq = context.life.next_seq()
        self._start_ns = time.time_ns()
        # Copied now: the agent may go on to change its list of messages while the reply streams in.
        self._request = {} if outgoing.by_endpoint else scrub_body(outgoing.body)
        self._open = True
        self._lock = threading.RLock()  # a collected stream may end its call in here
        context.life.last_calls[info.agent] = self.span_id
        context.life.open_calls[self.span_id] = self

    @property
    def headers(self) -> dict[str, str]:
        """The headers to send beside the caller's own, the key's apart."""
        headers = dict(self.outgoing.headers)
        if self.outgoing.by_endpoint:
            named = CallHeaders(self.span_id, self._parent_id, self._agent, self._seq)
            headers.update(write_call_headers(named))
        return headers

    @never_raises(lambda: None)
    def replied(
        self,
        response: Mapping[str, Any] | None,
        *,
        retries: int = 0,
        complete: bool = True,
        error: str | None = None,
    ) -> None:
        """Record the reply; ``complete`` false or an ``error`` for one that was not read to its end."""
        if self._ends() and not self.outgoing.by_endpoint:
            self._record(response, retries=retries, complete=complete, error=error)

    @never_raises(lambda: None)
    def failed(self, error: BaseException, *, retries: int = 0) -> None:
        """Record that the call failed for good."""
        if self._ends():
            self._request = self._request or scrub_body(self.outgoing.body)
            text = error_line(error, secrets=[self.outgoing.api_key])
            self._record(None, retries=retries, complete=False, error=text)

    def abandon(self) -> None:
        """Record a call that was still under way when its attempt ended."""
        self.replied(None, complete=False, error="the attempt was over before the call had ended")

    def _ends(self) -> bool:
        with self._lock:
            first, self._open = self._open, False
        self._context.life.open_calls.pop(self.span_id, None)
        return first

    def _record(
        self, response: Mapping[str, Any] | None, *, retries: int, complete: bool, error: str | None
    ) -> None:
        call = read_call(
            seq=self._seq,
            api=self.api,
            agent=self._agent,
            base_url=base_of_url(self.outgoing.url),
            request=self._request,
            response=response,
            streamed=self.streamed,
            complete=complete,
            retries=retries,
            error=error,
        )
        span = llm_span(
            call,
            key=self._context.key,
            trace_id=self._context.trace_id,
            span_id=self.span_id,
            parent_id=self._parent_id,
            start_ns=self._start_ns,
            end_ns=time.time_ns(),
            attributes={semconv.ROUTE: self.outgoing.how},
        )
        self._context.sink.add(span)


def open_call(context: RolloutContext, info: CallInfo, body: Mapping[str, Any]) -> OpenCall:
    """Decide on a call and open its record; raises what :func:`routing.decide` raises."""
    return OpenCall(context, info, decide(context, info, body))
