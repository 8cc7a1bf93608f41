"""Idempotency keys, workers, and counts; what waiters of other processes look at."""

# ruff: noqa: D102  (Tables says what each method does)
# ruff: noqa: S608  (what is put into SQL text is this package's own column names, never a value)

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import Final, get_args

from agentlightning.records import JSON, AttemptStatus, RolloutStatus, from_json
from agentlightning.store.tables import Answer
from agentlightning.store.types import Change, Statistics, Worker
from agentlightning.store.watching import Changed

from agentlightning_sqlite import rows
from agentlightning_sqlite.span_tables import SpanTables

SEEN_EVERY_S: Final = 1.0
"""A worker that is seen again so soon, with nothing to report, is not written down again."""

_PUT_WORKER: Final = (
    "insert into workers (worker_id, first_seen, last_seen, report) values (?1, ?2, ?2, "
    "coalesce(?3, '{}')) on conflict (worker_id) do update set "
    "last_seen = max(last_seen, ?2), report = coalesce(?3, report)"
)
_COUNT: Final = (
    "insert into counters (run_id, queued, over, late_results) values (?1, ?2, ?3, ?4) "
    "on conflict (run_id) do update set "
    "queued = queued + ?2, over = over + ?3, late_results = late_results + ?4"
)


class Housekeeping(SpanTables):
    """``answers``, ``workers`` and ``counters``."""

    def put_answer(self, operation: str, key: str, answer: Answer) -> None:
        sql = "insert into answers (operation, key, fingerprint, made) values (?, ?, ?, ?)"
        self._execute(sql, (operation, key, answer.fingerprint, rows.text(answer.made)))

    def answer(self, operation: str, key: str) -> Answer | None:
        sql = "select fingerprint, made from answers where operation = ? and key = ?"
        row = self._execute(sql, (operation, key)).fetchone()
        return None if row is None else Answer(row[0], from_json(row[1], list[str]))

    def answers(self, operation: str, *, after: str | None, limit: int) -> list[tuple[str, Answer]]:
        values = (operation,) if after is None else (operation, after)
        sql = (
            "select key, fingerprint, made from answers where operation = ? "
            f"{'' if after is None else 'and key > ?'} order by key limit ?"
        )
        found = self._execute(sql, (*values, limit))
        return [(key, Answer(mark, from_json(made, list[str]))) for key, mark, made in found]

    def drop_answers(self, operation: str, keys: Collection[str]) -> None:
        sql = "delete from answers where operation = ? and key = ?"
        self._executemany(sql, [(operation, key) for key in keys])

    # --- workers --------------------------------------------------------------------------

    def put_worker(self, worker_id: str, now: float, report: Mapping[str, JSON] | None) -> None:
        seen = self._known.seen
        if report is None and 0 <= now - seen.get(worker_id, -SEEN_EVERY_S) < SEEN_EVERY_S:
            return
        self._execute(_PUT_WORKER, (worker_id, now, None if report is None else rows.text(report)))
        seen[worker_id] = now

    def workers(self) -> list[Worker]:
        sql = "select worker_id, first_seen, last_seen, report from workers order by rowid"
        running = Counter(
            name for (name,) in self._execute("select worker_id from attempts where status = 'running'")
        )
        return [
            Worker(
                worker_id=name,
                first_seen=first_seen,
                last_seen=last_seen,
                report=from_json(report, dict),
                running=running[name],
            )
            for name, first_seen, last_seen, report in self._execute(sql)
        ]

    # --- counts ---------------------------------------------------------------------------

    def count_late(self, run_id: str, count: int = 1) -> None:
        self._execute(_COUNT, (run_id, 0, 0, count))

    def statistics(self, run_id: str | None) -> Statistics:
        rollouts = dict.fromkeys(get_args(RolloutStatus), 0)
        attempts = dict.fromkeys(get_args(AttemptStatus), 0)
        of_run = "where run_id = coalesce(?, run_id)"
        for name, counts in (("rollouts", rollouts), ("attempts", attempts)):
            sql = f"select status, count(*) from {name} {of_run} group by status"
            counts.update(self._execute(sql, (run_id,)).fetchall())
        late = self._one(f"select sum(late_results) from counters {of_run}", run_id)
        return Statistics(
            rollouts=rollouts,
            attempts=attempts,
            spans=self._count_spans(run_id),
            late_results=late or 0,
        )

    def _count_spans(self, run_id: str | None) -> int:
        if run_id is None:
            return int(self._one("select count(*) from spans"))
        sql = "select count(*) from rollouts join spans using (rollout_id) where rollouts.run_id = ?"
        return int(self._one(sql, run_id))

    # --- what other processes look at -----------------------------------------------------

    def count_changes(self) -> None:
        """Count this transaction's changes where the waiters of other processes will see them."""
        by_run: defaultdict[str, set[Change]] = defaultdict(set)
        for run_id, change in self.changes:
            by_run[run_id].add(change)
        for run_id, changes in by_run.items():
            self._execute(_COUNT, (run_id, "queued" in changes, "over" in changes, 0))

    def counted_changes(self) -> dict[Changed, int]:
        """How often each kind of change happened in each run so far."""
        found = self._execute("select run_id, queued, over from counters").fetchall()
        return {
            changed: count
            for run_id, queued, over in found
            for changed, count in (
                (Changed(run_id, "queued"), queued),
                (Changed(run_id, "over"), over),
            )
        }
