"""What a sink holds that is not in the store yet: in memory, and on disk where that gets too much."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from agentlightning.recording.guard import report_fault
from agentlightning.recording.spill import SPILL_VARIABLE, Spill, SpillFile
from agentlightning.records import AttemptKey, Span
from agentlightning.store import Store

logger = logging.getLogger("agentlightning.recording")

KEPT: Final = 2000
"""Spans that wait in memory; beyond that they go to disk.

A store that keeps up is never that far behind: it is four batches, a tenth of a second's worth for the
slowest of ours. And it is some ten megabytes, or two hundred with conversations of 30,000 tokens,
which a process that runs agents can spare.
"""

_SPILL_AGAIN_S: Final = 5.0


class _Waiting(NamedTuple):
    """A span that is not written yet, or what makes it."""

    number: int
    key: AttemptKey
    held: Span | Callable[[], Span]


class Backlog:
    """Spans in order of age: those being written, on disk, on the way there, and in memory.

    Whoever writes takes the oldest with :meth:`next_batch` and ends with :meth:`written`; until then
    they still count as waiting.

    Args:
        store: where they are to go.
        batch_size: the most spans of one batch.

    Attributes:
        changed: guards everything here, and is notified of every change.
        refused: spans that will never be in the store.
        spilled: spans that had to wait on disk.
        added: the number of the newest span.
    """

    def __init__(self, store: Store, batch_size: int) -> None:
        self.changed: Final = threading.Condition()
        self.refused = 0
        self.spilled = 0
        self.added = 0
        self._batch_size = batch_size
        self._spill = Spill(store)
        self._writing: tuple[_Waiting, ...] = ()
        self._writing_is_kept = False
        self._files = deque(self._spill.left_behind())
        self._moving: tuple[_Waiting, ...] = ()
        self._pending: deque[_Waiting] = deque()
        self._is_moving = False
        self._no_spill_before = 0.0

    def put(self, key: AttemptKey, held: Span | Callable[[], Span]) -> int:
        """Add a span, or what makes it; returns how many wait in memory. ``changed`` is held."""
        self.added += 1
        self._pending.append(_Waiting(self.added, key, held))
        return len(self._pending)

    def take(self, key: AttemptKey) -> tuple[Span, ...]:
        """Remove and return an attempt's spans; those that are past removing are returned too."""
        with self.changed:
            mine = [item for item in self._pending if item.key == key]
            if mine:
                self._pending = deque(item for item in self._pending if item.key != key)
                self.changed.notify_all()
            writing = [item for item in self._only_in_memory() if item.key == key]
            moving = [item for item in self._moving if item.key == key]
            files = [file for file in self._files if key in file.keys]
        on_disk = [span for file in files for span in self._read(file, of=key)]
        return (*self._made(writing), *on_disk, *self._made((*moving, *mine)))

    def oldest(self) -> int:
        """The number of the oldest span that waits; one past the newest when none does."""
        if self._writing:
            return self._writing[0].number
        if self._files:
            return self._files[0].first
        in_memory = self._moving or self._pending
        return in_memory[0].number if in_memory else self.added + 1

    def count(self) -> int:
        """How many wait."""
        on_disk = sum(file.count for file in self._files)
        return len(self._only_in_memory()) + on_disk + len(self._moving) + len(self._pending)

    def refuse(self, count: int = 1) -> None:
        """Count spans that are lost."""
        with self.changed:
            self.refused += count

    # --- writing --------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self._pending or self._files or self._moving)

    @property
    def is_full_batch(self) -> bool:
        """Whether no more need come before the next batch is written."""
        return bool(self._files) or len(self._pending) >= self._batch_size

    def next_batch(self) -> list[Span]:
        """The oldest spans."""
        with self.changed:
            self.changed.wait_for(lambda: self._files or not self._moving)
            if not self._files:
                size = min(self._batch_size, len(self._pending))
                self._writing = tuple(self._pending.popleft() for _ in range(size))
                self._writing_is_kept = False
            file = self._files[0] if self._files else None
        return self._made(self._writing) if file is None else self._read(file)

    def written(self) -> None:
        """The batch is dealt with."""
        with self.changed:
            file = None if self._writing or not self._files else self._files.popleft()
            self._writing = ()
            self.changed.notify_all()
        if file is not None:
            self._spill.remove(file)

    # --- on disk --------------------------------------------------------------------------

    def begin_spilling(self) -> bool:
        """Whether :meth:`spill` is to be called, for too much is in memory. ``changed`` is held."""
        due = len(self._pending) > KEPT and time.monotonic() >= self._no_spill_before
        if not due or self._is_moving:
            return False
        self._is_moving = True
        return True

    def put_off_spilling(self) -> None:
        """:meth:`spill` cannot be called now. ``changed`` is held."""
        self._is_moving = False
        self._no_spill_before = time.monotonic() + _SPILL_AGAIN_S

    def spill(self) -> None:
        """Move what waits in memory to disk, while the writer waits for the store."""
        try:
            while self._gathered():
                self._move()
        except OSError as error:
            self._no_spill_before = time.monotonic() + _SPILL_AGAIN_S
            logger.error(  # noqa: TRY400 - the message says it all
                "the store does not keep up, and its spans cannot be put on disk in %s meanwhile: %s. "
                "They stay in memory; make room there, or name another folder in %s",
                self._spill.folder, error, SPILL_VARIABLE,
            )  # fmt: skip
        with self.changed:
            self._pending.extendleft(reversed(self._moving))
            self._moving = ()
            self._is_moving = False
            self.changed.notify_all()

    def leave(self) -> str:
        """Put everything on disk for a later process, and say what became of it."""
        with self.changed:
            self.changed.wait_for(lambda: not self._is_moving)
            count = self.count()
            self._gather()
        if not self._spill.outlives:
            self.refuse(count)
            for file in self._files:
                self._spill.remove(file)
            return f"{count} spans are lost: this store ends with its process"
        try:
            self._move()
        except OSError as error:
            lost = len(self._moving)
            self.refuse(lost)
            return f"{lost} of {count} spans are lost: {self._spill.folder} cannot be written: {error}"
        return (
            f"{count} spans lie in {self._spill.folder}; the next process that records to this store "
            "writes them"
        )

    def close(self) -> None:
        """Let others have what lies on disk."""
        self._spill.close()

    def _only_in_memory(self) -> tuple[_Waiting, ...]:
        """What is being written, unless it waits elsewhere too."""
        return () if self._writing_is_kept else self._writing

    def _gathered(self) -> bool:
        """Take what waits in memory to be put on disk, if it is too much."""
        with self.changed:
            if len(self._pending) <= KEPT:
                return False
            self._gather()
            return True

    def _gather(self) -> None:
        # What is being written goes along, to be written again: the store may never have got it.
        self._moving = (*self._only_in_memory(), *self._pending)
        self._writing_is_kept = bool(self._writing)
        self._pending.clear()

    def _move(self) -> None:
        while self._moving:
            batch = self._moving[: self._batch_size]
            spans = [(item.number, span) for item in batch if (span := self._span_of(item)) is not None]
            file = self._spill.write(spans) if spans else None
            with self.changed:
                self._moving = self._moving[len(batch) :]
                self.spilled += len(spans)
                if file is not None:
                    self._files.append(file)
                self.changed.notify_all()

    def _read(self, file: SpillFile, of: AttemptKey | None = None) -> list[Span]:
        try:
            return self._spill.read(file, of)
        except FileNotFoundError:
            return []  # written and removed since it was looked for
        except OSError as error:
            self.refuse(file.count)
            logger.error("%d spans cannot be read back from %s: %s", file.count, file.path, error)  # noqa: TRY400
            return []

    def _made(self, items: Sequence[_Waiting]) -> list[Span]:
        return [span for item in items if (span := self._span_of(item)) is not None]

    def _span_of(self, item: _Waiting) -> Span | None:
        if isinstance(item.held, Span):
            return item.held
        try:
            return item.held()
        except Exception as error:  # noqa: BLE001 - one span that can't be made must not stop the others
            self.refuse()
            report_fault(f"the making of a span of rollout {item.key.rollout_id}", error)
            return None
