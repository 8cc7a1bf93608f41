"""Runs, and what belongs to one: its state, metrics, resources and the answers to repeated calls."""

# ruff: noqa: D102  (Tables says what each method does)
# ruff: noqa: S608  (what is put into SQL text is our own column names, never a value)

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

import psycopg
from agentlightning.records import JSON, ResourcesVersion, Run, from_json
from agentlightning.store.tables import Answer
from agentlightning.store.types import Metrics

from agentlightning_postgres import rows
from agentlightning_postgres.locks import ALONE, SHARED, Lock, number_of
from agentlightning_postgres.session import Remembered, Session
from agentlightning_postgres.text import unescaped


class RunTables(Session):
    """The tables ``runs``, ``states``, ``metrics``, ``answers`` and ``resources``."""

    def __init__(self, connection: psycopg.Connection, remembered: Remembered, *, writes: bool) -> None:
        super().__init__(connection, remembered, writes=writes)
        self._runs: dict[str, Run] = {}
        self.resources_read: dict[tuple[str, int], str] = {}

    # --- runs -----------------------------------------------------------------------------

    def lock_run(self, run_id: str, *, shared: bool = False) -> None:
        self._execute(SHARED if shared else ALONE, number_of(Lock.RUN, run_id))
        self._runs.pop(run_id, None)  # it may have been read before others changed it

    def insert_run(self, run: Run) -> None:
        sql = f"insert into runs ({rows.RUN}) values ({rows.places(rows.RUN)})"
        self._execute(sql, *rows.run_row(run))
        self._runs[run.run_id] = run

    def update_run(self, run: Run) -> None:
        sql = "update runs set status = %s, endpoint_url = %s where run_id = %s"
        self._execute(sql, run.status, run.endpoint_url, run.run_id)
        self._runs[run.run_id] = run

    def run(self, run_id: str) -> Run | None:
        """Each claim of a call names its run, so it is read once."""
        if run_id not in self._runs:
            sql = f"select {rows.RUN} from runs where run_id = %s"
            row = self._execute(sql, run_id).fetchone()
            if row is None:
                return None
            self._runs[run_id] = rows.run_of(row)
        return self._runs[run_id]

    def runs(self) -> list[Run]:
        return list(map(rows.run_of, self._execute(f"select {rows.RUN} from runs order by seq")))

    def open_run_named(self, name: str) -> Run | None:
        """Who finds none may make it, and nobody else until then; who finds one finds it open."""
        found = self._look_for_open_run(name)
        if self._writes and found is None:
            self._lock(Lock.NAME, name)
            found = self._look_for_open_run(name)
        return found

    def _look_for_open_run(self, name: str) -> Run | None:
        sql = (
            f"select {rows.RUN} from runs where name = %s and status = 'open' order by seq desc limit 1"
        )
        while True:
            row = self._execute(sql, name).fetchone()
            if row is None:
                return None
            found = rows.run_of(row)
            if not self._writes:
                return found
            self.lock_run(found.run_id, shared=True)
            self._ask_for_newest_ahead(found.run_id)
            locked = self.run(found.run_id)
            if locked is not None and locked.status == "open":
                return locked

    def put_state(self, run_id: str, state: Mapping[str, JSON]) -> None:
        sql = (
            "insert into states (run_id, state) values (%s, %s) "
            "on conflict (run_id) do update set state = excluded.state"
        )
        self._execute(sql, run_id, rows.text(state))

    def state(self, run_id: str) -> dict[str, JSON] | None:
        found = self._one("select state from states where run_id = %s", run_id)
        return None if found is None else from_json(found, dict)

    def put_metrics(self, metrics: Metrics) -> None:
        self._lock(Lock.METRICS, metrics.run_id)  # its rows are written in the order they are given in
        sql = (
            "insert into metrics (run_id, step, name, value, at) values (%s, %s, %s, %s, %s) "
            "on conflict (run_id, step, name) do update set value = excluded.value, at = excluded.at"
        )
        of_step = (metrics.run_id, metrics.step)
        values = metrics.values.items()
        self._execute_many(sql, [(*of_step, name, value, metrics.at) for name, value in values])

    def metrics(self, run_id: str) -> list[Metrics]:
        sql = "select step, name, value, at from metrics where run_id = %s order by step, seq"
        values: defaultdict[int, dict[str, float]] = defaultdict(dict)
        at: defaultdict[int, float] = defaultdict(float)
        for step, name, value, moment in self._execute(sql, run_id):
            values[step][unescaped(name)] = value
            at[step] = max(at[step], moment)
        return [Metrics(run_id=run_id, step=n, at=at[n], values=values[n]) for n in values]

    # --- idempotency keys -----------------------------------------------------------------

    def put_answer(self, operation: str, key: str, answer: Answer) -> None:
        sql = "insert into answers (operation, key, fingerprint, made) values (%s, %s, %s, %s)"
        self._execute(sql, operation, key, answer.fingerprint, rows.text(answer.made))

    def answer(self, operation: str, key: str) -> Answer | None:
        if self._writes:
            self._lock(Lock.KEY, operation, key)
        sql = "select fingerprint, made from answers where operation = %s and key = %s"
        row = self._execute(sql, operation, key).fetchone()
        return None if row is None else Answer(row[0], from_json(row[1], list[str]))

    def answers(self, operation: str, *, after: str | None, limit: int) -> list[tuple[str, Answer]]:
        sql = (
            "select key, fingerprint, made from answers where operation = %s "
            f"{'' if after is None else 'and key > %s'} order by key limit %s"
        )
        values = (operation, limit) if after is None else (operation, after, limit)
        return [
            (unescaped(key), Answer(fingerprint, from_json(made, list[str])))
            for key, fingerprint, made in self._execute(sql, *values)
        ]

    def drop_answers(self, operation: str, keys: Collection[str]) -> None:
        """One by one, so that all who do it at once lock the rows in the same order."""
        if keys:
            sql = "delete from answers where operation = %s and key = %s"
            self._execute_many(sql, [(operation, key) for key in keys])

    # --- resources ------------------------------------------------------------------------

    def insert_resources(self, version: ResourcesVersion) -> None:
        sql = "insert into resources (run_id, version, candidate, record) values (%s, %s, %s, %s)"
        record = rows.text(version)
        self._execute(sql, version.run_id, version.version, version.candidate, record)
        self.resources_read[version.run_id, version.version] = record
        self._newest_asked.clear()

    def resources(self, run_id: str, version: int) -> ResourcesVersion | None:
        record = self.resources_read.get((run_id, version))
        record = record or self._remembered.resources(run_id, version)
        if record is None:
            sql = "select record from resources where run_id = %s and version = %s"
            record = self._one(sql, run_id, version)
            if record is None:
                return None
            self.resources_read[run_id, version] = record
        return from_json(record, ResourcesVersion)

    def newest_resources(self, run_id: str, *, candidates: bool) -> int:
        asked = None if candidates else self._newest_asked.pop(run_id, None)
        row = (asked or self._ask_for_newest(run_id, candidates=candidates)).fetchone()
        return row[0] if row else 0
