"""The sink: a background thread that writes finished spans to a store in bulk.

What is guaranteed: a span is in the sink when :meth:`Sink.add` returns, and in the store when
:meth:`Sink.flush` does. The result of an attempt takes its spans along, in one transaction
(:meth:`Sink.take`), so a finished attempt is never without what its own process recorded. What lies on
disk (:mod:`.spill`) survives its process, not a loss of power.

What a killed process loses (``kill -9``) is what is in its memory: spans added within ``flush_every_s``
and the time of one call of the store or, while the store is away, those that came last, at most
:data:`~.backlog.KEPT`.

- A runner: nothing that counts. Its attempts have no result yet, so they are run again.
- A trainer, for agents in other processes: a call is in its sink before the agent has the last byte of
  the reply, and in the store up to ``flush_every_s`` and one call of the store later. If the agent's
  result is stored in between, the rollout has ended well without its last calls, and a run that is
  resumed does not repeat it. With ``flush_every_s=0`` only the one call of the store remains.
- A program with a ``Tracer``: the last spans of a rollout that stays unfinished.
"""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable
from typing import Final

from agentlightning.errors import Deadline, StoreUnavailable, Unauthorized
from agentlightning.recording.backlog import Backlog
from agentlightning.recording.guard import report_fault
from agentlightning.records import AttemptKey, Span
from agentlightning.store import Store

logger = logging.getLogger("agentlightning.recording")

_LONGEST_PAUSE_S: Final = 2.0


class Sink:
    """Takes spans without ever making the agent wait, and writes them in the order they came.

    While the store is slow or away spans wait in memory, and on disk where they get too many; none is
    dropped. A span that the store refuses (too large, of an unknown attempt) is logged and counted in
    :attr:`refused`; it does not hold up the others. Spans that an earlier process left on disk for the
    same store are written first.

    Args:
        store: where they are written; read back through it, after a :meth:`flush`.
        flush_every_s: the longest a span waits for company before it is written.
        batch_size: the most spans written in one call.
    """

    def __init__(self, store: Store, *, flush_every_s: float = 0.05, batch_size: int = 500) -> None:
        self.store: Final = store
        self._flush_every_s = flush_every_s
        self._batch_size = batch_size
        self._backlog = Backlog(store, batch_size)
        self._changed = self._backlog.changed
        self._hurry = False
        self._closed = False
        self._gave_up = False
        self._thread: threading.Thread | None = None
        self._trouble: Exception | None = None
        if not self._backlog.is_empty:
            self._thread = self._started(self._work)

    @property
    def refused(self) -> int:
        """How many spans will never be in the store; each was logged."""
        return self._backlog.refused

    @property
    def spilled(self) -> int:
        """How many spans had to wait on disk."""
        return self._backlog.spilled

    def add(self, span: Span) -> None:
        """Take a span; returns at once."""
        self._put(AttemptKey(span.rollout_id, span.attempt), span)

    def add_later(self, key: AttemptKey, make: Callable[[], Span]) -> None:
        """Take what makes a span of attempt ``key``; returns at once.

        ``make`` is called by whoever needs the span, in another thread, once or more often: it has to
        give the same span each time, from what nobody changes any more.
        """
        self._put(key, make)

    def take(self, key: AttemptKey) -> tuple[Span, ...]:
        """Remove and return the attempt's spans that are not in the store yet, for ``Store.finish``.

        Those being written this moment, and those on disk, are returned too and written all the same;
        the store keeps one of each.
        """
        return self._backlog.take(key)

    def flush(self, *, timeout_s: float = 30) -> None:
        """Return when everything added before is in the store (or was taken, or refused).

        Raises:
            Deadline: it took longer; the spans are still kept and tried.
        """
        if not self._is_written_within(timeout_s):
            raise Deadline(
                f"{self._backlog.count()} spans were not written within {timeout_s:g} s; the store "
                f"said: {self._trouble or 'nothing yet'}. They are kept and tried again"
            )

    def close(self, *, timeout_s: float = 30) -> None:
        """Flush and stop; harmless when repeated.

        Raises:
            Deadline: the store did not take all in time. The rest is on disk now, where the next
                process that records to this store finds it; the message says where, or what is lost.
        """
        if self._closed:
            return
        written = self._is_written_within(timeout_s)
        self._stop(gave_up=not written)
        if written and self._thread is not None:
            self._thread.join(timeout=timeout_s)
            written = not self._thread.is_alive()
        try:
            if not written:  # by now, or of what was added in this very moment
                self._stop(gave_up=True)
                said = self._trouble or "nothing yet"
                left = self._backlog.leave()
                raise Deadline(f"the store did not take every span in time, and said: {said}. {left}")
        finally:
            self._backlog.close()

    def _is_written_within(self, timeout_s: float) -> bool:
        """Wait until everything added so far is in the store."""
        with self._changed:
            target = self._backlog.added
            if self._thread is None and not self._backlog.is_empty:
                self._thread = self._started(self._work)
            self._hurry = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._backlog.oldest() > target, timeout_s)

    def _put(self, key: AttemptKey, held: Span | Callable[[], Span]) -> None:
        with self._changed:
            if self._closed:
                self._backlog.refuse()
                name = held.name if isinstance(held, Span) else "llm"
                logger.error("span %r came after its sink was closed; it is lost", name)
                return
            waiting = self._backlog.put(key, held)
            if self._thread is None:
                self._thread = self._started(self._work)
            elif waiting in (1, self._batch_size):
                self._changed.notify_all()
            if self._backlog.begin_spilling() and not self._started(self._backlog.spill):
                self._backlog.put_off_spilling()

    def _started(self, work: Callable[[], None]) -> threading.Thread | None:
        thread = threading.Thread(target=work, name="agentlightning-sink", daemon=True)
        try:
            # An empty context: the thread outlives the rollout that happens to start it.
            contextvars.Context().run(thread.start)
        except RuntimeError as error:  # this runs inside the agent, which must not fail by us
            report_fault("the start of a thread that writes spans; they are kept", error)
            return None
        return thread

    def _stop(self, *, gave_up: bool = False) -> None:
        with self._changed:
            self._closed, self._gave_up = True, gave_up
            self._changed.notify_all()

    def _work(self) -> None:
        while self._is_due():
            self._write(self._backlog.next_batch())
            if self._gave_up:
                return
            self._backlog.written()

    def _is_due(self) -> bool:
        """Wait for spans, and for company for them; false when there is nothing more to do."""

        def hurry() -> bool:
            return self._hurry or self._closed or self._backlog.is_full_batch

        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._backlog.is_empty)
            self._changed.wait_for(hurry, self._flush_every_s)
            self._hurry = self._hurry and self._backlog.is_full_batch
            return not (self._gave_up or (self._closed and self._backlog.is_empty))

    def _write(self, spans: list[Span]) -> None:
        pause = 0.05
        while spans:
            try:
                self.store.add_spans(spans)
            except (StoreUnavailable, Unauthorized) as error:
                if self._waits(error, pause):
                    pause = min(2 * pause, _LONGEST_PAUSE_S)
                else:
                    return
            except Exception as error:  # noqa: BLE001 - one bad span must not stop the thread or the rest
                spans = self._without_refused(spans, error)
            else:
                self._trouble = None
                return

    def _waits(self, error: Exception, pause: float) -> bool:
        """Wait before the store is tried again; false if nobody is to try any more."""
        if self._trouble is None:
            logger.warning("the store is away, spans are kept until it is back: %s", error)
        with self._changed:
            self._trouble = error
            return not self._changed.wait_for(lambda: self._gave_up, pause)

    def _without_refused(self, spans: list[Span], error: Exception) -> list[Span]:
        """Halve a batch the store refused until the span it refuses is found and dropped."""
        if len(spans) > 1:
            half = len(spans) // 2
            self._write(spans[:half])
            return spans[half:]
        self._backlog.refuse()
        span = spans[0]
        logger.error(
            "the store refused span %r of rollout %s, attempt %d: %s",
            span.name, span.rollout_id, span.attempt, error,
        )  # fmt: skip
        return []
