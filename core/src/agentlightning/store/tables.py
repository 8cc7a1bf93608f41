"""What a backend keeps, as tables: the small surface that a new transactional backend implements.

:class:`~agentlightning.store.backend.TableStore` is the whole contract, written once over this. A
backend opens a transaction, hands out its ``Tables``, and commits or rolls back; no decision is taken
below this line. Inside a writing transaction what was read does not change until it ends (one lock, or
locked rows).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from agentlightning.errors import BadValue
from agentlightning.records import (
    JSON,
    Attempt,
    AttemptKey,
    ResourcesVersion,
    Rollout,
    Run,
    Span,
    SpanKind,
)
from agentlightning.store.types import Change, Metrics, Page, RolloutQuery, Statistics, Worker
from agentlightning.store.watching import Changed

_LONGEST_CURSOR: Final = 18
"""Digits; every number of so many has less than 64 bits."""


def read_cursor(cursor: str | None) -> int:
    """The place a page starts at, from the cursor of the page before it."""
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= _LONGEST_CURSOR):
        raise BadValue(f"the cursor {cursor[:40]!r} is none that a page came with")
    return int(cursor)


class Answer(NamedTuple):
    """What a call with an idempotency key was given and made, so that it can be answered again."""

    fingerprint: str
    made: list[str]


class Tables(ABC):
    """The tables of one store within one transaction. Nothing is checked here and nothing decided."""

    def __init__(self) -> None:
        self.changes: set[Changed] = set()

    def changed(self, run_id: str, *changes: Change) -> None:
        """Note what waiters are to be woken for once the transaction is committed."""
        self.changes.update(Changed(run_id, change) for change in changes)

    # --- runs -----------------------------------------------------------------------------

    def lock_run(self, run_id: str, *, shared: bool = False) -> None:  # noqa: B027  (see its words)
        """Let nobody change a run or number its resources until this transaction ends.

        Asked for before the run is looked at. A backend whose writers take turns has nothing to do.

        Args:
            run_id: which; it need not exist.
            shared: this transaction changes nothing about the run either, and only relies on it: others
                that do the same need not wait.
        """

    @abstractmethod
    def insert_run(self, run: Run) -> None:
        """Add a run."""

    @abstractmethod
    def update_run(self, run: Run) -> None:
        """Replace a run."""

    @abstractmethod
    def run(self, run_id: str) -> Run | None:
        """One run."""

    @abstractmethod
    def runs(self) -> list[Run]:
        """All runs in the order they were added."""

    @abstractmethod
    def open_run_named(self, name: str) -> Run | None:
        """The latest open run of that name."""

    @abstractmethod
    def put_state(self, run_id: str, state: Mapping[str, JSON]) -> None:
        """Replace the state of a run's algorithm."""

    @abstractmethod
    def state(self, run_id: str) -> dict[str, JSON] | None:
        """The state of a run's algorithm."""

    @abstractmethod
    def put_metrics(self, metrics: Metrics) -> None:
        """Add or replace values of one step."""

    @abstractmethod
    def metrics(self, run_id: str) -> list[Metrics]:
        """All values of a run, by step; ``at`` is when the step was last written."""

    # --- idempotency keys -----------------------------------------------------------------

    @abstractmethod
    def put_answer(self, operation: str, key: str, answer: Answer) -> None:
        """Keep what a call with this key made."""

    @abstractmethod
    def answer(self, operation: str, key: str) -> Answer | None:
        """What the call with this key made."""

    @abstractmethod
    def answers(self, operation: str, *, after: str | None, limit: int) -> list[tuple[str, Answer]]:
        """Keys and answers of an operation, by key (in any order that stays), from the one after."""

    @abstractmethod
    def drop_answers(self, operation: str, keys: Collection[str]) -> None:
        """Forget the answers to calls with these keys, in the order given; some may be gone already."""

    # --- rollouts -------------------------------------------------------------------------

    @abstractmethod
    def insert_rollouts(self, rollouts: Sequence[Rollout]) -> None:
        """Add rollouts, after all there are."""

    @abstractmethod
    def update_rollouts(self, rollouts: Sequence[Rollout]) -> None:
        """Replace what changes in a rollout: status, output, reward, attempt, times, resources."""

    @abstractmethod
    def rollouts(self, rollout_ids: Collection[str]) -> dict[str, Rollout]:
        """Those of these rollouts that exist."""

    @abstractmethod
    def attempt_counts(self, rollout_ids: Collection[str]) -> dict[str, int]:
        """How many attempts those of these rollouts had that exist; reads no rollout whole."""

    @abstractmethod
    def find_rollouts(self, query: RolloutQuery) -> Page[Rollout]:
        """A page of rollouts in the order they were added."""

    @abstractmethod
    def queued(self, run_id: str | None, limit: int) -> list[Rollout]:
        """The next rollouts to claim in an open run (or any), by priority, then oldest first."""

    # --- attempts -------------------------------------------------------------------------

    @abstractmethod
    def insert_attempts(self, attempts: Sequence[Attempt]) -> None:
        """Add attempts."""

    @abstractmethod
    def update_attempts(self, attempts: Sequence[Attempt]) -> None:
        """Replace what changes in an attempt: status, error, times, lease."""

    @abstractmethod
    def attempts(self, rollout_ids: Collection[str]) -> dict[str, list[Attempt]]:
        """The attempts of each of these rollouts, first to last."""

    @abstractmethod
    def expired(self, now: float) -> list[str]:
        """The rollouts whose running attempt has a lease that ends at ``now`` or before."""

    @abstractmethod
    def next_expiry(self) -> float | None:
        """When the first lease of a running attempt ends."""

    # --- spans ----------------------------------------------------------------------------

    @abstractmethod
    def insert_spans(self, spans: Iterable[Span]) -> int:
        """Add the spans whose (rollout, attempt, span id) is new, in this order; how many were.

        :mod:`agentlightning.store.compact` keeps their calls small.
        """

    def known_spans(self, key: AttemptKey, span_ids: Collection[str]) -> set[str]:
        """Which of these spans an attempt has; a backend that need not read them for it overrides."""
        kept = self.spans(key.rollout_id, [key.number], None)
        return {span.span_id for span in kept}.intersection(span_ids)

    @abstractmethod
    def spans(
        self, rollout_id: str, attempts: Collection[int], kinds: Collection[SpanKind] | None
    ) -> list[Span]:
        """The spans of these attempts of a rollout, in order of arrival."""

    # --- resources ------------------------------------------------------------------------

    @abstractmethod
    def insert_resources(self, version: ResourcesVersion) -> None:
        """Add a version."""

    @abstractmethod
    def resources(self, run_id: str, version: int) -> ResourcesVersion | None:
        """One version, a copy of its own."""

    @abstractmethod
    def newest_resources(self, run_id: str, *, candidates: bool) -> int:
        """The highest version number, counting candidates or not; 0 if there is none."""

    # --- workers and counts ---------------------------------------------------------------

    @abstractmethod
    def put_worker(self, worker_id: str, now: float, report: Mapping[str, JSON] | None) -> None:
        """Note that a worker was seen, to the second at least; a report replaces its last one."""

    @abstractmethod
    def workers(self) -> list[Worker]:
        """All workers, with the number of their running attempts, first seen first."""

    @abstractmethod
    def count_late(self, run_id: str, count: int = 1) -> None:
        """Count results that came too late."""

    @abstractmethod
    def statistics(self, run_id: str | None) -> Statistics:
        """Counts by status, of every status there is."""
