"""Gathers requests into batches: one thread, one batch at a time."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final

from agentlightning_transformers.sampling import Prompt, Sampled

_logger = logging.getLogger("agentlightning.engines.transformers")

_MEMORY: Final = 4  # batches after which a crowd that has left is no longer waited for

Generate = Callable[[Sequence[Prompt]], Sequence[Sampled | Exception]]
_Waiting = tuple[Prompt, "Future[Sampled]", float]


class Batcher:
    """Answers prompts from any thread, many at a time.

    A batch starts at once when everybody who was seen asking at the same time lately has asked again,
    and otherwise ``wait_s`` after its first prompt: a lone caller never waits, and a crowd is answered
    together.

    Args:
        generate: answers a batch; an exception in place of a reply is that prompt's own failure.
        max_batch: the largest batch.
        wait_s: the longest time a prompt waits for others.
    """

    def __init__(self, generate: Generate, *, max_batch: int, wait_s: float) -> None:
        self._generate = generate
        self._max_batch = max_batch
        self._wait_s = wait_s
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._asking = 0
        self._peak = 0
        self._peaks: deque[int] = deque(maxlen=_MEMORY)  # most callers at once, batch by batch
        self._stopped = False
        self._thread = threading.Thread(target=self._work, name="transformers-engine", daemon=True)
        self._thread.start()

    def submit(self, prompt: Prompt) -> Future[Sampled]:
        """Queue a prompt; a future that is cancelled before its batch starts is not generated."""
        future: Future[Sampled] = Future()
        with self._changed:
            if self._stopped:
                raise RuntimeError("the engine has been stopped; it answers no more requests")
            self._asking += 1
            self._peak = max(self._peak, self._asking)
            self._waiting.append((prompt, future, time.monotonic()))
            self._changed.notify_all()
        return future

    def stop(self) -> None:
        """Finish the batch under way, fail what is queued, end the thread; harmless when repeated."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while (batch := self._gather()) is not None:
            live = [
                (prompt, future) for prompt, future, _ in batch if future.set_running_or_notify_cancel()
            ]
            try:
                self._answer(live)
            finally:
                with self._changed:
                    self._asking -= len(batch)
                    self._peaks.append(self._peak)
                    self._peak = self._asking
        for _, future, _ in self._waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(
                    RuntimeError("the engine was stopped before it answered this request")
                )

    def _gather(self) -> list[_Waiting] | None:
        """The next batch; None once stopped."""
        with self._changed:
            while not self._stopped:
                if not self._waiting:
                    self._changed.wait()
                    continue
                left = self._waiting[0][2] + self._wait_s - time.monotonic()
                expected = max(self._peak, *self._peaks) if self._peaks else self._peak
                if left <= 0 or len(self._waiting) >= min(expected, self._max_batch):
                    size = min(len(self._waiting), self._max_batch)
                    return [self._waiting.popleft() for _ in range(size)]
                self._changed.wait(left)
            return None

    def _answer(self, batch: Sequence[tuple[Prompt, Future[Sampled]]]) -> None:
        """Answer a batch; one that fails is halved until the prompt at fault stands alone."""
        if not batch:
            return
        try:
            replies = self._generate([prompt for prompt, _ in batch])
        except Exception as error:  # noqa: BLE001 - anything a model's code raises, memory running out included
            if len(batch) == 1:
                batch[0][1].set_exception(error)
                return
            _logger.warning(
                "a batch of %d failed and is tried in halves: %s: %s",
                len(batch),
                type(error).__name__,
                error,
            )
            middle = len(batch) // 2
            self._answer(batch[:middle])
            self._answer(batch[middle:])
            return
        for (_, future), reply in zip(batch, replies, strict=True):
            if isinstance(reply, Exception):
                future.set_exception(reply)
            else:
                future.set_result(reply)
