"""Sends rollouts to a collector while a run goes on, without the run ever waiting for it."""

from __future__ import annotations

import gzip
import logging
import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from agentlightning.otlp.outgoing import request_of
from agentlightning.otlp.target import Target
from agentlightning.records import Rollout, Run, Span

if TYPE_CHECKING:
    import urllib3

logger = logging.getLogger("agentlightning.otlp")

_MOST_WAITING: Final = 50_000
_TRIES: Final = 6
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 8.0
_ANSWER_S: Final = 10.0
_PASSING: Final = frozenset({429, 502, 503, 504})
"""Answers after which the same is sent again, as OTLP has it."""


class _Finished(NamedTuple):
    run: Run
    rollout: Rollout
    spans: Sequence[Span]


class Exporter:
    """Sends what it is given from a thread of its own.

    What cannot be sent is counted, logged the first time and dropped: the store has it, and
    ``agl export --format otlp`` writes it at any time.

    Args:
        target: the collector.
        close_s: how long :meth:`close` waits for what is not sent yet.

    Attributes:
        counts: spans by what became of them: ``sent``, ``refused`` by the collector, and ``lost``
            since it could not be reached, or was too slow.
    """

    def __init__(self, target: Target, *, close_s: float = 10.0) -> None:
        self.counts: Counter[str] = Counter()
        self._target = target
        self._close_s = close_s
        self._changed = threading.Condition()
        self._waiting: deque[_Finished] = deque()
        self._waiting_spans = 0
        self._sending = False
        self._closed = False
        self._told: set[str] = set()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def add(self, run: Run, rollout: Rollout, spans: Sequence[Span]) -> None:
        """Take the spans of a rollout that is over; returns at once and never raises."""
        with self._changed:
            if self._closed or self._waiting_spans + len(spans) > _MOST_WAITING:
                self._lose(len(spans), f"more than {_MOST_WAITING} spans wait for it")
                return
            self._waiting.append(_Finished(run, rollout, spans))
            self._waiting_spans += len(spans)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="agl-otlp", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        """Wait a moment for what is not sent yet, and count the rest as lost; may be repeated."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._waiting or self._sending), self._close_s)
            self._closed = True
            left = sum(len(item.spans) for item in self._waiting)
            self._waiting.clear()
            if left:
                self._lose(left, f"it did not take them within {self._close_s:g} s of the end")
            self._changed.notify_all()

    def trouble(self) -> Mapping[str, int]:
        """What was not sent, by why."""
        return {name: count for name, count in self.counts.items() if name != "sent" and count}

    def _work(self) -> None:
        import urllib3

        with urllib3.PoolManager(retries=False) as pool:
            while (item := self._next()) is not None:
                try:
                    self._send(pool, item)
                except Exception as error:  # noqa: BLE001 - counted and told; the run must go on
                    self._lose(len(item.spans), f"{type(error).__name__}: {error}")
                with self._changed:
                    self._sending = False
                    self._changed.notify_all()

    def _next(self) -> _Finished | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return None
            item = self._waiting.popleft()
            self._waiting_spans -= len(item.spans)
            self._sending = True
            return item

    def _send(self, pool: urllib3.PoolManager, item: _Finished) -> None:
        import urllib3

        body = gzip.compress(request_of(*item).SerializeToString(), 3)
        headers = {
            **self._target.headers,
            "content-type": "application/x-protobuf",
            "content-encoding": "gzip",
        }
        pause, why = _FIRST_PAUSE_S, ""
        for number in range(_TRIES):
            if number and not self._paused(pause):
                break
            pause = min(2 * pause, _LONGEST_PAUSE_S)
            try:
                reply = pool.request(
                    "POST",
                    self._target.url,
                    body=body,
                    headers=headers,
                    timeout=_ANSWER_S,
                    redirect=False,
                )
            except urllib3.exceptions.HTTPError as error:
                why = f"it cannot be reached ({type(error).__name__})"
                continue
            if reply.status not in _PASSING:
                self._answered(reply.status, reply.data, len(item.spans))
                return
            why = f"it answers {reply.status}"
        self._lose(len(item.spans), why)

    def _paused(self, pause: float) -> bool:
        """Wait before the next try; False when there is no time left for one."""
        with self._changed:
            return not self._changed.wait_for(lambda: self._closed, pause)

    def _answered(self, status: int, body: bytes, spans: int) -> None:
        if status >= 300:  # noqa: PLR2004 - everything but the 200s
            self.counts["refused"] += spans
            self._tell("refused", f"answers {status}, {body[:200]!r}")
            return
        refused, why = _partial(body)
        self.counts["sent"] += spans - refused
        if refused:
            self.counts["refused"] += refused
            self._tell("refused", f"refused {refused} of {spans} spans: {why}")

    def _lose(self, spans: int, why: str) -> None:
        self.counts["lost"] += spans
        self._tell("lost", why)

    def _tell(self, what: str, why: str) -> None:
        """Log the first trouble of each kind; the counts tell the rest."""
        if what not in self._told:
            self._told.add(what)
            logger.warning(
                "spans were not taken by the collector at %s: %s. The store has them all; what follows "
                "of this is counted",
                self._target.url.partition("?")[0],
                why,
            )


def _partial(body: bytes) -> tuple[int, str]:
    """How many spans an answer says were refused, and why."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    try:
        partial = ExportTraceServiceResponse.FromString(body).partial_success
    except DecodeError:  # some collectors answer in JSON, or with words; their 200 is what counts
        return 0, ""
    return partial.rejected_spans, partial.error_message
