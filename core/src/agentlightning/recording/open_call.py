"""One LLM call under way, recorded exactly once however it ends. Seam and ``emit`` share it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from agentlightning import semconv
from agentlightning.llm_api import (
    CallHeaders,
    base_of_url,
    error_line,
    llm_span,
    read_call,
    remember_secrets,
    scrub_body,
    scrub_text,
    write_call_headers,
)
from agentlightning.llm_api.replies import read_body
from agentlightning.recording.context import RolloutContext, current_span
from agentlightning.recording.guard import never_raises
from agentlightning.recording.ids import new_span_id, span_id_of_try
from agentlightning.recording.routing import Outgoing, decide
from agentlightning.records import Api, CallInfo, Span


class _FailedTry(NamedTuple):
    start_ns: int
    end_ns: int
    error: str


class _Place(NamedTuple):
    span_id: str
    parent_id: str | None
    start_ns: int
    end_ns: int


class Heard(NamedTuple):
    """What came back of a call; ``complete`` is false if it was not read to its end."""

    body: Mapping[str, Any] | None
    complete: bool = True
    error: str | None = None


class OpenCall:
    """A call that was decided on and is about to be sent.

    The first of :meth:`replied`, :meth:`failed` and :meth:`abandon` makes the record, the others
    then do nothing. A call to our endpoint is recorded there, under the span id sent along, and its
    failed tries beneath that id; here only if it failed for good, so that they have their parent.

    Attributes:
        choices: how many replies were asked for.
        sending: its request is on its way; one sent meanwhile, by a transport, is the same one.
        answered: a reply came, whole or as a stream.
        settle: ends the record of a stream that is being read, with the reason.
    """

    def __init__(self, context: RolloutContext, info: CallInfo, outgoing: Outgoing) -> None:
        self.outgoing = outgoing
        self.span_id = new_span_id()
        self.streamed = bool(outgoing.body.get("stream"))
        self.api = info.api
        self.choices = _choices_asked(info.api, outgoing.body)
        self.sending = False
        self.answered = False
        self.settle: Callable[[str], None] | None = None
        self._url = outgoing.url
        self._context = context
        self._agent = info.agent
        self._parent_id = current_span()
        self._seq = context.life.next_seq()
        self._start_ns = self._left_ns = time.time_ns()
        self._sent: bytes | None = None
        self._headers: Mapping[str, str] = {}
        self._request: Mapping[str, Any] = outgoing.body
        self._retries = 0
        self._failed_try: _FailedTry | None = None
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
    def leaves(self, url: str, content: bytes, headers: Mapping[str, str]) -> None:
        """A try is sent to ``url``; the try before it, if there was one, is recorded as failed.

        ``content`` is what the record says was sent: SDKs take objects and iterators of all kinds,
        and make JSON of them last of all. ``headers`` are looked at only if the call fails, for
        secrets that the server or the SDK may repeat.
        """
        failed, self._failed_try = self._failed_try, None
        if failed is not None:
            self._record_try(failed)
            self._retries += 1
        self._url, self._sent, self._headers, self._left_ns = url, content, headers, time.time_ns()

    @never_raises(lambda: None)
    def try_failed(self, error: BaseException | str) -> None:
        """The try that left last has failed; what becomes of the call is not known yet."""
        self._failed_try = _FailedTry(self._left_ns, time.time_ns(), self._told(error))

    @never_raises(lambda: None)
    def answers(self) -> None:
        """A reply begins to come."""
        self.answered = True
        if self._sent is None and not self.outgoing.by_endpoint:
            # Copied: the agent may go on to change its list of messages while the reply streams in.
            self._request = scrub_body(self._request)

    @never_raises(lambda: None)
    def replied(self, read: Callable[[], Heard], *, retries: int = 0) -> None:
        """Record the reply.

        Args:
            read: gives the reply when the record is made, in another thread, from bytes that nobody
                changes: so the agent waits for none of it.
            retries: how often the call had been tried before, as far as the caller knows.
        """
        self._retries = max(self._retries, retries)
        if self._ends() and not self.outgoing.by_endpoint:
            self._record(read)

    @never_raises(lambda: None)
    def failed(self, error: BaseException | str) -> None:
        """Record that the call failed for good."""
        if self._ends():
            self._record(_nothing(self._told(error)))

    def abandon(self) -> None:
        """Record a call that was still under way when its attempt ended."""
        told = "the attempt was over before the call had ended"
        if self.settle is not None:
            self.settle(told)
        self.replied(_nothing(told))

    def forget(self) -> None:
        """Make no record: the call was never sent as it was decided on."""
        self._ends()

    def _ends(self) -> bool:
        with self._lock:
            first, self._open = self._open, False
        self._context.life.open_calls.pop(self.span_id, None)
        return first

    def _told(self, error: BaseException | str) -> str:
        self._remember_secrets()
        secrets = [self.outgoing.api_key]
        if isinstance(error, str):
            return scrub_text(error, secrets=secrets)
        return error_line(error, secrets=secrets)

    def _remember_secrets(self) -> None:
        remember_secrets(self._url, {**self.headers, **self._headers})

    def _record_try(self, failed: _FailedTry) -> None:
        if self.outgoing.by_endpoint:
            return  # recorded there, where it failed
        own_id = span_id_of_try(self.span_id, self._retries)
        place = _Place(own_id, self.span_id, failed.start_ns, failed.end_ns)
        self._add(_nothing(failed.error), place)

    def _record(self, read: Callable[[], Heard]) -> None:
        self._add(read, _Place(self.span_id, self._parent_id, self._start_ns, time.time_ns()))

    def _add(self, read: Callable[[], Heard], place: _Place) -> None:
        """Hand in what the span is made of later: nothing of it changes any more."""
        sent = scrub_body(self._request) if self._sent is None else self._sent
        url, retries = self._url, self._retries

        def make() -> Span:
            body = read_body(sent)[0] if isinstance(sent, bytes) else sent
            heard = read()
            if heard.error is not None:
                self._remember_secrets()
            call = read_call(
                seq=self._seq,
                api=self.api,
                agent=self._agent,
                base_url=base_of_url(url),
                request=body or {},
                response=heard.body,
                streamed=self.streamed,
                complete=heard.complete,
                retries=retries,
                error=heard.error,
            )
            return llm_span(
                call,
                key=self._context.key,
                trace_id=self._context.trace_id,
                **place._asdict(),
                attributes={semconv.ROUTE: self.outgoing.how},
            )

        self._context.sink.add_later(self._context.key, make)


def _nothing(error: str) -> Callable[[], Heard]:
    return lambda: Heard(None, complete=False, error=error)


def open_call(context: RolloutContext, info: CallInfo, body: Mapping[str, Any]) -> OpenCall:
    """Decide on a call and open its record; raises what :func:`routing.decide` raises."""
    return OpenCall(context, info, decide(context, info, body))


def _choices_asked(api: Api, body: Mapping[str, Any]) -> int:
    """How many choices a whole reply has: ``n``, and that for each prompt of the completions API."""
    count, prompt = body.get("n"), body.get("prompt")
    asked = count if isinstance(count, int) and count > 0 else 1
    if api != "completions" or not isinstance(prompt, list):
        return asked
    is_tokens = any(isinstance(item, int) for item in prompt)
    return asked if is_tokens else asked * max(1, len(prompt))
