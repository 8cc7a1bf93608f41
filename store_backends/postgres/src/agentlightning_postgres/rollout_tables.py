"""Rollouts and their attempts: the queue, and what locks keep every change of one in order."""

# ruff: noqa: D102  (Tables says what each method does)
# ruff: noqa: S608  (what is put into SQL text is our own column names, never a value)

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import psycopg
from agentlightning.records import Attempt, Rollout
from agentlightning.store.tables import read_cursor
from agentlightning.store.types import Page, RolloutQuery
from agentlightning.store.watching import Changed

from agentlightning_postgres import rows
from agentlightning_postgres.locks import SHARED, Lock, number_of
from agentlightning_postgres.session import Remembered, Session
from agentlightning_postgres.text import unescaped

_LOCKED = "order by rollout_id for no key update"
_QUEUED = (
    f"select priority, seq, {rows.ROLLOUT} from rollouts where run_id = %(run_id)s "
    "and status = 'queued' and exists (select from runs where run_id = %(run_id)s and status = 'open') "
    "order by priority desc, seq limit %(limit)s for no key update of rollouts skip locked"
)


class RolloutTables(Session):
    """The tables ``rollouts`` and ``attempts``."""

    def __init__(self, connection: psycopg.Connection, remembered: Remembered, *, writes: bool) -> None:
        super().__init__(connection, remembered, writes=writes)
        self._new: dict[str, Rollout] = {}
        self._run_ids: dict[str, str] = {}

    # --- rollouts -------------------------------------------------------------------------

    def insert_rollouts(self, rollouts: Sequence[Rollout]) -> None:
        """Remember them: they are written last, since whoever adds some waits for others that do."""
        for rollout in rollouts:
            self._new[rollout.rollout_id] = rollout
            self._run_ids[rollout.rollout_id] = rollout.run_id

    def write_new_rollouts(self) -> None:
        """Number and write the rollouts added so far; nobody else does before the commit."""
        if self._new:
            sql = f"insert into rollouts ({rows.ROLLOUT}) values ({rows.places(rows.ROLLOUT)})"
            self._lock(Lock.ORDER)
            self._execute_many(sql, list(map(rows.rollout_row, self._new.values())))
            self._new = {}

    def update_rollouts(self, rollouts: Sequence[Rollout]) -> None:
        sql = (
            "update rollouts set status = %s, attempt = %s, resources_version = %s, reward = %s, "
            "finished_at = %s, output = %s where rollout_id = %s"
        )
        written = []
        for rollout in rollouts:
            if rollout.rollout_id in self._new:
                self._new[rollout.rollout_id] = rollout
                continue
            written.append(
                (
                    rollout.status,
                    rollout.attempt,
                    rollout.resources_version,
                    rollout.reward,
                    rollout.finished_at,
                    rows.output_text(rollout),
                    rollout.rollout_id,
                )
            )
        if written:
            self._execute_many(sql, written)

    def rollouts(self, rollout_ids: Collection[str]) -> dict[str, Rollout]:
        self.write_new_rollouts()
        if not rollout_ids:
            return {}
        sql = f"select {rows.ROLLOUT} from rollouts where rollout_id = any(%s) {self._locked}"
        return self._read(self._execute(sql, list(rollout_ids)).fetchall())

    def attempt_counts(self, rollout_ids: Collection[str]) -> dict[str, int]:
        self.write_new_rollouts()
        sql = f"select rollout_id, attempt from rollouts where rollout_id = any(%s) {self._locked}"
        found = self._execute(sql, list(rollout_ids))
        return {unescaped(rollout_id): attempt for rollout_id, attempt in found}

    def find_rollouts(self, query: RolloutQuery) -> Page[Rollout]:
        self.write_new_rollouts()
        conditions = ["seq > %s"]
        values: list[object] = [read_cursor(query.cursor)]
        for column, wanted in (("rollout_id", query.rollout_ids), ("status", query.status)):
            if wanted is not None:
                conditions.append(f"{column} = any(%s)")
                values.append(list(wanted))
        exact = {"run_id": query.run_id, "mode": query.mode, "group_id": query.group_id}
        for column, value in exact.items():
            if value is not None:
                conditions.append(f"{column} = %s")
                values.append(value)
        sql = (
            f"select seq, {rows.ROLLOUT} from rollouts where {' and '.join(conditions)} "
            "order by seq limit %s"
        )
        found = self._execute(sql, *values, query.limit + 1).fetchall()
        items = [rows.rollout_of(row[1:]) for row in found[: query.limit]]
        cursor = str(found[query.limit - 1][0]) if len(found) > query.limit else None
        return Page(items=items, cursor=cursor)

    def queued(self, run_id: str | None, limit: int) -> list[Rollout]:
        self.write_new_rollouts()
        wanted = self._longest_waiting(limit) if run_id is None else {run_id: limit}
        for name in sorted(wanted):
            self._execute(SHARED, number_of(Lock.RUN, name))
        cursors = [
            self._connection.execute(_QUEUED, {"run_id": name, "limit": wanted[name]})
            for name in sorted(wanted)
        ]
        for name in wanted:
            self._ask_for_newest_ahead(name)
        found = [row for cursor in cursors for row in cursor.fetchall()]
        if not found:
            self._note_skipped(wanted)
        found.sort(key=lambda row: (-row[0], row[1]))
        return list(self._read([row[2:] for row in found[:limit]]).values())

    def _longest_waiting(self, limit: int) -> dict[str, int]:
        """How many of the next rollouts to claim in any open run are in which; locks none."""
        sql = (
            "select head.run_id from runs cross join lateral (select run_id, priority, seq "
            "from rollouts where run_id = runs.run_id and status = 'queued' "
            "order by priority desc, seq limit %s) as head where runs.status = 'open' "
            "order by head.priority desc, head.seq limit %s"
        )
        return Counter(unescaped(name) for (name,) in self._execute(sql, limit, limit))

    def _note_skipped(self, wanted: Mapping[str, int]) -> None:
        """Note where something is queued that another transaction holds.

        It will most likely be claimed. But should the other fail, nobody would be told of it, so
        whoever waits has to look again.
        """
        sql = "select distinct run_id from rollouts where run_id = any(%s) and status = 'queued'"
        if wanted:
            held = self._execute(sql, list(wanted))
            self.skipped.update(Changed(unescaped(name), "queued") for (name,) in held)

    def _read(self, found: Sequence[rows.Row]) -> dict[str, Rollout]:
        read = [rows.rollout_of(row) for row in found]
        self._run_ids.update((rollout.rollout_id, rollout.run_id) for rollout in read)
        return {rollout.rollout_id: rollout for rollout in read}

    @property
    def _locked(self) -> str:
        return _LOCKED if self._writes else ""

    # --- attempts -------------------------------------------------------------------------

    def insert_attempts(self, attempts: Sequence[Attempt]) -> None:
        if unknown := {attempt.rollout_id for attempt in attempts} - self._run_ids.keys():
            self.rollouts(unknown)
        sql = f"insert into attempts ({rows.ATTEMPT}, run_id) values ({rows.places(rows.ATTEMPT)}, %s)"
        self._execute_many(
            sql, [(*rows.attempt_row(item), self._run_ids[item.rollout_id]) for item in attempts]
        )

    def update_attempts(self, attempts: Sequence[Attempt]) -> None:
        sql = (
            "update attempts set status = %s, lease_until = %s, finished_at = %s, error = %s "
            "where rollout_id = %s and number = %s"
        )
        self._execute_many(
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
        sql = (
            f"select {rows.ATTEMPT} from attempts where rollout_id = any(%s) "
            "order by rollout_id, number"
        )
        found: dict[str, list[Attempt]] = {name: [] for name in rollout_ids}
        for attempt in map(rows.attempt_of, self._execute(sql, list(rollout_ids))):
            found[attempt.rollout_id].append(attempt)
        return found

    def expired(self, now: float) -> list[str]:
        """What somebody else is working on is skipped: it may have been renewed by then."""
        sql = (
            "select rollouts.rollout_id from attempts join rollouts using (rollout_id) "
            "where attempts.status = 'running' and attempts.lease_until <= %s"
        )
        if self._writes:
            sql += " for no key update of rollouts skip locked"
        return list(dict.fromkeys(unescaped(name) for (name,) in self._execute(sql, now)))

    def next_expiry(self) -> float | None:
        expiry: float | None = self._one(
            "select min(lease_until) from attempts where status = 'running'"
        )
        return expiry
