"""The tables of the store in memory: dictionaries, and heaps for what has to be found in order.

Resources are kept packed, so that nobody's later change to a dict reaches them. Spans and answers have
files of their own, :mod:`~agentlightning.store.memory_spans` and ``memory_answers``.
"""

# ruff: noqa: D102  (Tables says what each method does)

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, get_args

from msgspec.structs import replace

from agentlightning.records import (
    JSON,
    Attempt,
    AttemptKey,
    AttemptStatus,
    ResourcesVersion,
    Rollout,
    RolloutStatus,
    Run,
    Span,
    SpanKind,
    from_json,
    to_json,
)
from agentlightning.store.memory_answers import MemoryAnswers
from agentlightning.store.memory_spans import MemorySpans
from agentlightning.store.tables import Answer, Tables, read_cursor
from agentlightning.store.types import Metrics, Page, RolloutQuery, Statistics, Worker


class MemoryTables(Tables):
    """All tables, for one transaction after the other."""

    def __init__(self) -> None:
        super().__init__()
        self._runs: dict[str, Run] = {}
        self._states: dict[str, bytes] = {}
        self._metrics: defaultdict[str, dict[int, Metrics]] = defaultdict(dict)
        self._answers = MemoryAnswers()
        self._rollouts: dict[str, Rollout] = {}
        self._places: dict[str, int] = {}
        self._order: list[str] = []
        self._queues: defaultdict[str, _Queue] = defaultdict(_Queue)
        self._attempts: defaultdict[str, list[Attempt]] = defaultdict(list)
        self._running: dict[AttemptKey, str] = {}
        self._leases: list[tuple[float, AttemptKey]] = []
        self._spans = MemorySpans()
        self._resources: defaultdict[str, list[bytes]] = defaultdict(list)
        self._latest: dict[str, int] = {}
        self._workers: dict[str, _Seen] = {}
        self._late: defaultdict[str, int] = defaultdict(int)

    # --- runs -----------------------------------------------------------------------------

    def insert_run(self, run: Run) -> None:
        self._runs[run.run_id] = run

    def update_run(self, run: Run) -> None:
        self._runs[run.run_id] = run

    def run(self, run_id: str) -> Run | None:
        return self._runs.get(run_id)

    def runs(self) -> list[Run]:
        return list(self._runs.values())

    def open_run_named(self, name: str) -> Run | None:
        named = (run for run in reversed(self._runs.values()) if run.name == name)
        return next((run for run in named if run.status == "open"), None)

    def put_state(self, run_id: str, state: Mapping[str, JSON]) -> None:
        self._states[run_id] = to_json(state)

    def state(self, run_id: str) -> dict[str, JSON] | None:
        packed = self._states.get(run_id)
        return None if packed is None else from_json(packed, dict)

    def put_metrics(self, metrics: Metrics) -> None:
        steps = self._metrics[metrics.run_id]
        before = steps.get(metrics.step)
        values = metrics.values if before is None else {**before.values, **metrics.values}
        steps[metrics.step] = replace(metrics, values=values)

    def metrics(self, run_id: str) -> list[Metrics]:
        steps = self._metrics.get(run_id, {})
        return [replace(steps[step], values=dict(steps[step].values)) for step in sorted(steps)]

    # --- idempotency keys -----------------------------------------------------------------

    def put_answer(self, operation: str, key: str, answer: Answer) -> None:
        self._answers.put(operation, key, answer)

    def answer(self, operation: str, key: str) -> Answer | None:
        return self._answers.get(operation, key)

    def answers(self, operation: str, *, after: str | None, limit: int) -> list[tuple[str, Answer]]:
        return self._answers.page(operation, after, limit)

    def drop_answers(self, operation: str, keys: Collection[str]) -> None:
        self._answers.drop(operation, keys)

    # --- rollouts -------------------------------------------------------------------------

    def insert_rollouts(self, rollouts: Sequence[Rollout]) -> None:
        for rollout in rollouts:
            self._places[rollout.rollout_id] = len(self._order)
            self._order.append(rollout.rollout_id)
        self.update_rollouts(rollouts)

    def update_rollouts(self, rollouts: Sequence[Rollout]) -> None:
        for rollout in rollouts:
            self._rollouts[rollout.rollout_id] = rollout
            if rollout.status == "queued":
                place = self._places[rollout.rollout_id]
                self._queues[rollout.run_id].push((-rollout.priority, place, rollout.rollout_id))

    def rollouts(self, rollout_ids: Collection[str]) -> dict[str, Rollout]:
        known = self._rollouts
        return {name: known[name] for name in rollout_ids if name in known}

    def attempt_counts(self, rollout_ids: Collection[str]) -> dict[str, int]:
        known = self._rollouts
        return {name: known[name].attempt for name in rollout_ids if name in known}

    def find_rollouts(self, query: RolloutQuery) -> Page[Rollout]:
        found = list(islice(self._matching(query), query.limit + 1))
        if len(found) <= query.limit:
            return Page(items=found)
        last = found[query.limit - 1]
        return Page(items=found[: query.limit], cursor=str(self._places[last.rollout_id] + 1))

    def _matching(self, query: RolloutQuery) -> Iterator[Rollout]:
        start = read_cursor(query.cursor)
        if query.rollout_ids is None:
            names: Iterable[str] = islice(self._order, start, None)
        else:
            places = sorted({self._places[name] for name in query.rollout_ids})
            names = (self._order[place] for place in places[bisect_right(places, start - 1) :])
        for name in names:
            rollout = self._rollouts[name]
            if (
                query.run_id in (None, rollout.run_id)
                and (query.status is None or rollout.status in query.status)
                and query.mode in (None, rollout.mode)
                and query.group_id in (None, rollout.group_id)
            ):
                yield rollout

    def queued(self, run_id: str | None, limit: int) -> list[Rollout]:
        run_ids = [run_id] if run_id is not None else list(self._queues)
        open_ids = [name for name in run_ids if self._runs[name].status == "open"]
        first = [entry for name in open_ids for entry in self._first_queued(name, limit)]
        first.sort()
        return [self._rollouts[rollout_id] for _, _, rollout_id in first[:limit]]

    def _first_queued(self, run_id: str, limit: int) -> list[_Entry]:
        """The head of a run's queue, left in place; what is no longer queued is dropped."""
        queue = self._queues.get(run_id)
        if queue is None:
            return []
        first: list[_Entry] = []
        while len(first) < limit and (entry := queue.pop()) is not None:
            if self._rollouts[entry[2]].status == "queued":
                first.append(entry)
        if not first:  # so that a claim of any run looks at those only that have work
            del self._queues[run_id]
        for entry in first:
            queue.push(entry)
        return first

    # --- attempts -------------------------------------------------------------------------

    def insert_attempts(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            self._attempts[attempt.rollout_id].append(attempt)
            self._note_lease(attempt)

    def update_attempts(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            self._attempts[attempt.rollout_id][attempt.number - 1] = attempt
            self._note_lease(attempt)

    def attempts(self, rollout_ids: Collection[str]) -> dict[str, list[Attempt]]:
        return {name: list(self._attempts.get(name, ())) for name in rollout_ids}

    def expired(self, now: float) -> list[str]:
        late = []
        while (expiry := self.next_expiry()) is not None and expiry <= now:
            late.append(heapq.heappop(self._leases)[1].rollout_id)
        return late

    def next_expiry(self) -> float | None:
        """The first lease to end; those renewed since, or of attempts that are over, are dropped."""
        while self._leases:
            until, key = self._leases[0]
            if key in self._running and self._attempt(key).lease_until == until:
                return until
            heapq.heappop(self._leases)
        return None

    def _note_lease(self, attempt: Attempt) -> None:
        key = attempt.key
        if attempt.status != "running":
            self._running.pop(key, None)
            return
        self._running[key] = attempt.worker_id
        heapq.heappush(self._leases, (attempt.lease_until, key))
        if len(self._leases) > 4 * len(self._running) + _SPARE_LEASES:  # most are of the past
            self._leases = [(self._attempt(key).lease_until, key) for key in self._running]
            heapq.heapify(self._leases)

    def _attempt(self, key: AttemptKey) -> Attempt:
        return self._attempts[key.rollout_id][key.number - 1]

    # --- spans ----------------------------------------------------------------------------

    def insert_spans(self, spans: Iterable[Span]) -> int:
        return self._spans.add(spans)

    def known_spans(self, key: AttemptKey, span_ids: Collection[str]) -> set[str]:
        return self._spans.known(key, span_ids)

    def spans(
        self, rollout_id: str, attempts: Collection[int], kinds: Collection[SpanKind] | None
    ) -> list[Span]:
        return self._spans.of([AttemptKey(rollout_id, number) for number in attempts], kinds)

    # --- resources ------------------------------------------------------------------------

    def insert_resources(self, version: ResourcesVersion) -> None:
        self._resources[version.run_id].append(to_json(version))
        if not version.candidate:
            self._latest[version.run_id] = version.version

    def resources(self, run_id: str, version: int) -> ResourcesVersion | None:
        versions = self._resources.get(run_id, [])
        if not 1 <= version <= len(versions):
            return None
        return from_json(versions[version - 1], ResourcesVersion)

    def newest_resources(self, run_id: str, *, candidates: bool) -> int:
        if candidates:
            return len(self._resources.get(run_id, ()))
        return self._latest.get(run_id, 0)

    # --- workers and counts ---------------------------------------------------------------

    def put_worker(self, worker_id: str, now: float, report: Mapping[str, JSON] | None) -> None:
        before = self._workers.get(worker_id) or _Seen(now, now, to_json({}))
        self._workers[worker_id] = _Seen(
            before.first,
            max(now, before.last),
            before.report if report is None else to_json(report),
        )

    def workers(self) -> list[Worker]:
        running = Counter(self._running.values())
        return [
            Worker(
                worker_id=name,
                first_seen=seen.first,
                last_seen=seen.last,
                report=from_json(seen.report, dict),
                running=running[name],
            )
            for name, seen in self._workers.items()
        ]

    def count_late(self, run_id: str, count: int = 1) -> None:
        self._late[run_id] += count

    def statistics(self, run_id: str | None) -> Statistics:
        rollouts = dict.fromkeys(get_args(RolloutStatus), 0)
        attempts = dict.fromkeys(get_args(AttemptStatus), 0)
        spans = 0
        for rollout in self._rollouts.values():
            if run_id not in (None, rollout.run_id):
                continue
            rollouts[rollout.status] += 1
            for attempt in self._attempts.get(rollout.rollout_id, ()):
                attempts[attempt.status] += 1
                spans += self._spans.count(attempt.key)
        late = sum(self._late.values()) if run_id is None else self._late.get(run_id, 0)
        return Statistics(rollouts=rollouts, attempts=attempts, spans=spans, late_results=late)


_Entry = tuple[int, int, str]
"""Minus priority, place in the order of making, rollout id."""


_SPARE_LEASES = 1000


class _Seen(NamedTuple):
    """When a worker was seen, and its last report as JSON."""

    first: float
    last: float
    report: bytes


class _Queue:
    """Rollouts by priority and age, each at most once."""

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._inside: set[str] = set()

    def push(self, entry: _Entry) -> None:
        if entry[2] not in self._inside:
            self._inside.add(entry[2])
            heapq.heappush(self._heap, entry)

    def pop(self) -> _Entry | None:
        if not self._heap:
            return None
        entry = heapq.heappop(self._heap)
        self._inside.discard(entry[2])
        return entry
