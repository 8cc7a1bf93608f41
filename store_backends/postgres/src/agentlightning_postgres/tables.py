"""All tables of a store in one transaction."""

# ruff: noqa: D102  (Tables says what each method does)

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, get_args

import psycopg
from agentlightning.records import JSON, AttemptStatus, RolloutStatus, from_json, to_json
from agentlightning.store.types import Statistics, Worker

from agentlightning_postgres import rows
from agentlightning_postgres.rollout_tables import RolloutTables
from agentlightning_postgres.run_tables import RunTables
from agentlightning_postgres.session import Remembered
from agentlightning_postgres.span_tables import SpanTables
from agentlightning_postgres.text import unescaped

CHANNEL: Final = "agentlightning"
"""Where commits are told of: ``[opening, run id, change]`` as JSON."""


class PostgresTables(RolloutTables, RunTables, SpanTables):
    """The tables of one transaction, workers and counts included.

    Args:
        connection: a connection in a transaction and in pipeline mode.
        remembered: what this opening keeps in memory.
        writes: lock what is read, for a transaction that will write.
    """

    def __init__(self, connection: psycopg.Connection, remembered: Remembered, *, writes: bool) -> None:
        super().__init__(connection, remembered, writes=writes)
        self._late: Counter[str] = Counter()

    # --- workers and counts ---------------------------------------------------------------

    def put_worker(self, worker_id: str, now: float, report: Mapping[str, JSON] | None) -> None:
        sql = (
            "insert into workers as known (worker_id, first_seen, last_seen, report) "
            "values (%(id)s, %(now)s, %(now)s, coalesce(%(report)s::json, '{}')) "
            "on conflict (worker_id) do update set "
            "last_seen = greatest(known.last_seen, excluded.last_seen), "
            "report = coalesce(%(report)s::json, known.report)"
        )
        told = None if report is None else rows.text(report)
        self._connection.execute(sql, {"id": worker_id, "now": now, "report": told})

    def workers(self) -> list[Worker]:
        running = self._execute(
            "select worker_id, count(*) from attempts where status = 'running' group by worker_id"
        )
        found = self._execute(
            "select worker_id, first_seen, last_seen, report from workers order by seq"
        )
        counts: dict[str, int] = dict(running.fetchall())
        return [
            Worker(
                worker_id=unescaped(name),
                first_seen=first_seen,
                last_seen=last_seen,
                report=from_json(report, dict),
                running=counts.get(name, 0),
            )
            for name, first_seen, last_seen, report in found
        ]

    def count_late(self, run_id: str, count: int = 1) -> None:
        self._late[run_id] += count

    def statistics(self, run_id: str | None) -> Statistics:
        self.write_new_rollouts()
        of_run = "" if run_id is None else "where run_id = %(run_id)s"
        spans = "spans" if run_id is None else "rollouts join spans using (rollout_id)"
        rollouts, attempts, span_count, late = (
            self._connection.execute(f"{question} {of_run} {end}", {"run_id": run_id})
            for question, end in (
                ("select status, count(*) from rollouts", "group by status"),
                ("select status, count(*) from attempts", "group by status"),
                (f"select 'spans', count(*) from {spans}", ""),  # noqa: S608  (see above)
                ("select 'late', coalesce(sum(count), 0)::bigint from late_results", ""),
            )
        )
        return Statistics(
            rollouts=dict.fromkeys(get_args(RolloutStatus), 0) | dict(rollouts.fetchall()),
            attempts=dict.fromkeys(get_args(AttemptStatus), 0) | dict(attempts.fetchall()),
            spans=span_count.fetchall()[0][1],
            late_results=late.fetchall()[0][1],
        )

    # --- the end of the transaction -------------------------------------------------------

    def write_last(self, opening: str) -> None:
        """Write what others would wait for, just before the commit, and tell them of the changes."""
        late = (
            "insert into late_results as known (run_id, count) values (%s, %s) "
            "on conflict (run_id) do update set count = known.count + excluded.count"
        )
        if self._late:
            self._execute_many(late, sorted(self._late.items()))
        for run_id, change in self.changes:
            payload = to_json([opening, run_id, change]).decode()
            self._execute("select pg_notify(%s, %s)", CHANNEL, payload)
        self.write_new_rollouts()

    def committed(self) -> None:
        """Keep in memory what is now sure to be stored."""
        self.packing.keep()
        self._remembered.keep(self.resources_read)
