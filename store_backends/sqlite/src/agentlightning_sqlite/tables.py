"""The tables of a store in one SQLite file."""

# ruff: noqa: D102  (Tables says what each method does)
# ruff: noqa: S608  (what is put into SQL text is this file's own column names, never a value)

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, get_args

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
)
from agentlightning.store.tables import Answer, Tables, read_cursor
from agentlightning.store.types import Metrics, Page, RolloutQuery, Statistics, Worker
from agentlightning.store.watching import Changed

from agentlightning_sqlite import rows

_IDS = "in (select value from json_each(?))"


class SqliteTables(Tables):
    """All tables, over one connection, for one transaction after the other."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__()
        self._connection = connection
        self._execute = connection.execute
        self._resources: dict[tuple[str, int], str] = {}

    def rolled_back(self) -> None:
        """Forget what a transaction that did not happen has left in memory."""
        self._resources.clear()

    def _one(self, sql: str, *values: object) -> Any:
        row = self._execute(sql, values).fetchone()
        return None if row is None else row[0]

    # --- runs -----------------------------------------------------------------------------

    def insert_run(self, run: Run) -> None:
        sql = f"insert into runs ({rows.RUN}) values ({rows.places(rows.RUN)})"
        self._execute(sql, rows.run_row(run))

    def update_run(self, run: Run) -> None:
        sql = "update runs set status = ?, endpoint_url = ? where run_id = ?"
        self._execute(sql, (run.status, run.endpoint_url, run.run_id))

    def run(self, run_id: str) -> Run | None:
        row = self._execute(f"select {rows.RUN} from runs where run_id = ?", (run_id,)).fetchone()
        return None if row is None else rows.run_of(row)

    def runs(self) -> list[Run]:
        return list(map(rows.run_of, self._execute(f"select {rows.RUN} from runs order by seq")))

    def open_run_named(self, name: str) -> Run | None:
        sql = (
            f"select {rows.RUN} from runs where name = ? and status = 'open' order by seq desc limit 1"
        )
        row = self._execute(sql, (name,)).fetchone()
        return None if row is None else rows.run_of(row)

    def put_state(self, run_id: str, state: Mapping[str, JSON]) -> None:
        sql = "insert or replace into states (run_id, state) values (?, ?)"
        self._execute(sql, (run_id, rows.text(state)))

    def state(self, run_id: str) -> dict[str, JSON] | None:
        found = self._one("select state from states where run_id = ?", run_id)
        return None if found is None else from_json(found, dict)

    def put_metrics(self, metrics: Metrics) -> None:
        sql = "insert or replace into metrics (run_id, step, name, value, at) values (?, ?, ?, ?, ?)"
        self._connection.executemany(
            sql,
            [
                (metrics.run_id, metrics.step, name, value, metrics.at)
                for name, value in metrics.values.items()
            ],
        )

    def metrics(self, run_id: str) -> list[Metrics]:
        sql = "select step, name, value, at from metrics where run_id = ? order by step, rowid"
        values: defaultdict[int, dict[str, float]] = defaultdict(dict)
        at: defaultdict[int, float] = defaultdict(float)
        for step, name, value, moment in self._execute(sql, (run_id,)):
            values[step][name] = value
            at[step] = max(at[step], moment)
        return [Metrics(run_id=run_id, step=n, at=at[n], values=values[n]) for n in values]

    # --- idempotency keys -----------------------------------------------------------------

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

    # --- rollouts -------------------------------------------------------------------------

    def insert_rollouts(self, rollouts: Sequence[Rollout]) -> None:
        sql = f"insert into rollouts ({rows.ROLLOUT}) values ({rows.places(rows.ROLLOUT)})"
        self._connection.executemany(sql, map(rows.rollout_row, rollouts))

    def update_rollouts(self, rollouts: Sequence[Rollout]) -> None:
        sql = (
            "update rollouts set status = ?, attempt = ?, resources_version = ?, reward = ?, "
            "finished_at = ?, output = ? where rollout_id = ?"
        )
        self._connection.executemany(
            sql,
            [
                (
                    rollout.status,
                    rollout.attempt,
                    rollout.resources_version,
                    rollout.reward,
                    rollout.finished_at,
                    rows.output_text(rollout),
                    rollout.rollout_id,
                )
                for rollout in rollouts
            ],
        )

    def rollouts(self, rollout_ids: Collection[str]) -> dict[str, Rollout]:
        sql = f"select {rows.ROLLOUT} from rollouts where rollout_id {_IDS}"
        found = self._execute(sql, (rows.text(list(rollout_ids)),))
        return {row[0]: rows.rollout_of(row) for row in found}

    def attempt_counts(self, rollout_ids: Collection[str]) -> dict[str, int]:
        sql = f"select rollout_id, attempt from rollouts where rollout_id {_IDS}"
        return dict(self._execute(sql, (rows.text(list(rollout_ids)),)).fetchall())

    def find_rollouts(self, query: RolloutQuery) -> Page[Rollout]:
        conditions = ["seq > ?"]
        values: list[object] = [read_cursor(query.cursor)]
        lists: dict[str, object] = {"rollout_id": query.rollout_ids, "status": query.status}
        for column, wanted in lists.items():
            if wanted is not None:
                conditions.append(f"{column} {_IDS}")
                values.append(rows.text(wanted))
        exact = {"+run_id": query.run_id, "mode": query.mode, "group_id": query.group_id}
        if query.rollout_ids is None:  # else their own index finds fewer rows than the run's
            exact["run_id"] = exact.pop("+run_id")
        for column, value in exact.items():
            if value is not None:
                conditions.append(f"{column} = ?")
                values.append(value)
        sql = (
            f"select {rows.ROLLOUT}, seq from rollouts where {' and '.join(conditions)} "
            "order by seq limit ?"
        )
        found = self._execute(sql, (*values, query.limit + 1)).fetchall()
        items = [rows.rollout_of(row[:-1]) for row in found[: query.limit]]
        cursor = str(found[query.limit - 1][-1]) if len(found) > query.limit else None
        return Page(items=items, cursor=cursor)

    def queued(self, run_id: str | None, limit: int) -> list[Rollout]:
        open_runs = "select run_id from runs where status = 'open' and run_id = coalesce(?, run_id)"
        sql = (
            f"select -priority, seq, {rows.ROLLOUT} from rollouts "
            "where run_id = ? and status = 'queued' order by priority desc, seq limit ?"
        )
        first = [
            row
            for (name,) in self._execute(open_runs, (run_id,)).fetchall()
            for row in self._execute(sql, (name, limit))
        ]
        first.sort(key=lambda row: row[:2])
        return [rows.rollout_of(row[2:]) for row in first[:limit]]

    # --- attempts -------------------------------------------------------------------------

    def insert_attempts(self, attempts: Sequence[Attempt]) -> None:
        sql = (
            f"insert into attempts ({rows.ATTEMPT}, run_id) values ({rows.places(rows.ATTEMPT)}, "
            "(select run_id from rollouts where rollout_id = ?))"
        )
        self._connection.executemany(
            sql,
            [
                (
                    attempt.rollout_id,
                    attempt.number,
                    attempt.status,
                    attempt.worker_id,
                    attempt.started_at,
                    attempt.lease_until,
                    attempt.finished_at,
                    attempt.error,
                    attempt.rollout_id,
                )
                for attempt in attempts
            ],
        )

    def update_attempts(self, attempts: Sequence[Attempt]) -> None:
        sql = (
            "update attempts set status = ?, lease_until = ?, finished_at = ?, error = ? "
            "where rollout_id = ? and number = ?"
        )
        self._connection.executemany(
            sql,
            [
                (
                    attempt.status,
                    attempt.lease_until,
                    attempt.finished_at,
                    attempt.error,
                    attempt.rollout_id,
                    attempt.number,
                )
                for attempt in attempts
            ],
        )

    def attempts(self, rollout_ids: Collection[str]) -> dict[str, list[Attempt]]:
        sql = f"select {rows.ATTEMPT} from attempts where rollout_id {_IDS} order by rollout_id, number"
        found: dict[str, list[Attempt]] = {name: [] for name in rollout_ids}
        for row in self._execute(sql, (rows.text(list(rollout_ids)),)):
            found[row[0]].append(rows.attempt_of(row))
        return found

    def expired(self, now: float) -> list[str]:
        sql = "select rollout_id from attempts where status = 'running' and lease_until <= ?"
        return [rollout_id for (rollout_id,) in self._execute(sql, (now,))]

    def next_expiry(self) -> float | None:
        expiry: float | None = self._one(
            "select min(lease_until) from attempts where status = 'running'"
        )
        return expiry

    # --- spans ----------------------------------------------------------------------------

    def insert_spans(self, spans: Iterable[Span]) -> int:
        sql = (
            f"insert into spans ({rows.SPAN}) values ({rows.places(rows.SPAN)}) "
            "on conflict (rollout_id, attempt, span_id) do nothing"
        )
        before = self._connection.total_changes
        self._connection.executemany(sql, map(rows.span_row, spans))
        return self._connection.total_changes - before

    def known_spans(self, key: AttemptKey, span_ids: Collection[str]) -> set[str]:
        sql = (
            "select value from json_each(?) where exists (select 1 from spans "
            "where rollout_id = ? and attempt = ? and span_id = value)"
        )
        return {name for (name,) in self._execute(sql, (rows.text(list(span_ids)), *key))}

    def spans(
        self, rollout_id: str, attempts: Collection[int], kinds: Collection[SpanKind] | None
    ) -> list[Span]:
        sql = f"select seq, {rows.SPAN} from spans where rollout_id = ? and attempt {_IDS}"
        values = [rollout_id, rows.text(list(attempts))]
        if kinds is not None:
            sql += f" and kind {_IDS}"
            values.append(rows.text(list(kinds)))
        return list(map(rows.span_of, self._execute(f"{sql} order by seq", values)))

    # --- resources ------------------------------------------------------------------------

    def insert_resources(self, version: ResourcesVersion) -> None:
        sql = "insert into resources (run_id, version, candidate, record) values (?, ?, ?, ?)"
        values = (version.run_id, version.version, version.candidate, rows.text(version))
        self._execute(sql, values)

    def resources(self, run_id: str, version: int) -> ResourcesVersion | None:
        """Every claim asks for one, so their text is kept: a version never changes."""
        record = self._resources.get((run_id, version))
        if record is None:
            sql = "select record from resources where run_id = ? and version = ?"
            record = self._one(sql, run_id, version)
            if record is None:
                return None
            self._resources[run_id, version] = record
        return from_json(record, ResourcesVersion)

    def newest_resources(self, run_id: str, *, candidates: bool) -> int:
        sql = (
            "select version from resources where run_id = ? and candidate <= ? "
            "order by version desc limit 1"
        )
        return self._one(sql, run_id, candidates) or 0

    # --- workers and counts ---------------------------------------------------------------

    def put_worker(self, worker_id: str, now: float, report: Mapping[str, JSON] | None) -> None:
        sql = (
            "insert into workers (worker_id, first_seen, last_seen, report) values (?1, ?2, ?2, "
            "coalesce(?3, '{}')) on conflict (worker_id) do update set "
            "last_seen = max(last_seen, ?2), report = coalesce(?3, report)"
        )
        self._execute(sql, (worker_id, now, None if report is None else rows.text(report)))

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

    def count_late(self, run_id: str, count: int = 1) -> None:
        self._count(run_id, "late_results", count)

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
        for run_id, change in self.changes:
            self._count(run_id, change)

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

    def data_version(self) -> int:
        """A number that differs from the last one if another connection has written meanwhile."""
        return int(self._one("pragma data_version"))

    def secret(self) -> bytes:
        """What this file's tokens are signed with."""
        return bytes(self._one("select value from settings where name = 'secret'"))

    def _count(self, run_id: str, column: str, count: int = 1) -> None:
        sql = (
            f"insert into counters (run_id, {column}) values (?1, ?2) "
            f"on conflict (run_id) do update set {column} = {column} + ?2"
        )
        self._execute(sql, (run_id, count))
