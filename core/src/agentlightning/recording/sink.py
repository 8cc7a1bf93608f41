"""The sink: a background thread that writes finished spans to a store in bulk."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections import deque
from typing import Final

from agentlightning.errors import Deadline, StoreUnavailable
from agentlightning.records import AttemptKey, Span
from agentlightning.store import Store

logger = logging.getLogger("agentlightning.recording")

_LONGEST_PAUSE_S: Final = 2.0


class Sink:
    """Takes spans without ever making the agent wait, and writes them in the order they came.

    While the store is unavailable spans stay in memory and are tried again. A span that the store
    refuses (too large, of an unknown attempt) is logged and counted in :attr:`refused`; it does not
    hold up the others.

    Args:
        store: where they are written; read back through it, after a :meth:`flush`.
        flush_every_s: the longest a span waits for company before it is written.
        batch_size: the most spans written in one call.
    """

    def __init__(self, store: Store, *, flush_every_s: float = 0.05, batch_size: int = 500) -> None:
        self.store: Final = store
        self._flush_every_s = flush_every_s
        self._batch_size = batch_size
        self._changed = threading.Condition()
        self._pending: deque[tuple[int, Span]] = deque()
        self._writing: tuple[tuple[int, Span], ...] = ()
        self._added = 0
        self._hurry = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._trouble: Exception | None = None
        self.refused = 0

    def add(self, span: Span) -> None:
        """Take a span; returns at once."""
        with self._changed:
            if self._closed:
                self.refused += 1
                logger.error("span %r came after its sink was closed; it is lost", span.name)
                return
            self._added += 1
            self._pending.append((self._added, span))
            if self._thread is None:
                self._start()
            elif len(self._pending) == 1 or len(self._pending) >= self._batch_size:
                self._changed.notify_all()

    def take(self, key: AttemptKey) -> tuple[Span, ...]:
        """Remove and return the attempt's spans that are not in the store yet, for ``Store.finish``.

        Those being written this moment are returned too; the store keeps one of each.
        """
        with self._changed:
            mine = [item for item in self._pending if _key(item[1]) == key]
            if mine:
                self._pending = deque(item for item in self._pending if _key(item[1]) != key)
                self._changed.notify_all()
            return tuple(span for _, span in (*self._writing, *mine) if _key(span) == key)

    def flush(self, *, timeout_s: float = 30) -> None:
        """Return when everything added before is in the store (or was taken, or refused).

        Raises:
            Deadline: it took longer; the spans are still kept and tried.
        """
        with self._changed:
            target = self._added
            self._hurry = True
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._oldest() > target, timeout_s):
                waiting = len(self._pending) + len(self._writing)
                raise Deadline(
                    f"{waiting} spans were not written within {timeout_s:g} s; the store said: "
                    f"{self._trouble or 'nothing yet'}. They are kept in memory and tried again"
                )

    def close(self, *, timeout_s: float = 30) -> None:
        """Flush and stop; harmless when repeated. Raises ``Deadline`` like :meth:`flush`."""
        try:
            self.flush(timeout_s=timeout_s)
        finally:
            with self._changed:
                self._closed = True
                self._changed.notify_all()
                thread = self._thread
            if thread is not None:
                thread.join(timeout=timeout_s)

    def _oldest(self) -> int:
        """The number of the oldest span that is not dealt with; one past the last when all are."""
        waiting = self._writing or self._pending
        return waiting[0][0] if waiting else self._added + 1

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="agentlightning-sink", daemon=True)
        # An empty context: the thread outlives the rollout that happens to start it.
        contextvars.Context().run(self._thread.start)

    def _work(self) -> None:
        while self._next_batch():
            self._write([span for _, span in self._writing])
            with self._changed:
                self._writing = ()
                self._changed.notify_all()

    def _next_batch(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._closed)
            if not (self._hurry or self._closed or len(self._pending) >= self._batch_size):
                self._changed.wait_for(self._due, self._flush_every_s)
            size = min(self._batch_size, len(self._pending))
            self._writing = tuple(self._pending.popleft() for _ in range(size))
            self._hurry = self._hurry and bool(self._pending)
            return bool(self._writing) or not self._closed

    def _due(self) -> bool:
        return self._hurry or self._closed or len(self._pending) >= self._batch_size

    def _write(self, spans: list[Span]) -> None:
        pause = 0.05
        while spans:
            try:
                self.store.add_spans(spans)
            except StoreUnavailable as error:
                if self._gives_up(error, spans):
                    return
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            except Exception as error:  # noqa: BLE001 - one bad span must not stop the thread or the rest
                spans = self._without_refused(spans, error)
            else:
                self._trouble = None
                return

    def _gives_up(self, error: StoreUnavailable, spans: list[Span]) -> bool:
        if self._trouble is None:
            logger.warning("the store is unavailable, spans are kept in memory meanwhile: %s", error)
        self._trouble = error
        if self._closed:
            self.refused += len(spans)
            logger.error("%d spans are lost: the store stayed unavailable (%s)", len(spans), error)
        return self._closed

    def _without_refused(self, spans: list[Span], error: Exception) -> list[Span]:
        """Halve a batch the store refused until the span it refuses is found and dropped."""
        if len(spans) > 1:
            half = len(spans) // 2
            self._write(spans[:half])
            return spans[half:]
        self.refused += 1
        span = spans[0]
        logger.error(
            "the store refused span %r of rollout %s, attempt %d: %s",
            span.name, span.rollout_id, span.attempt, error,
        )  # fmt: skip
        return []


def _key(span: Span) -> AttemptKey:
    return AttemptKey(span.rollout_id, span.attempt)
