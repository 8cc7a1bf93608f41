"""Runs, and what their algorithms keep, log and publish."""

# ruff: noqa: D102  (Tables says what each method does)
# ruff: noqa: S608  (what is put into SQL text is this package's own column names, never a value)

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from agentlightning.records import JSON, ResourcesVersion, Run, from_json
from agentlightning.store.types import Metrics

from agentlightning_sqlite import rows
from agentlightning_sqlite.connected import Connected

_INSERT_RUN: Final = f"insert into runs ({rows.RUN}) values ({rows.places(rows.RUN)})"
_SELECT_RUN: Final = f"select {rows.RUN} from runs where run_id = ?"


class RunTables(Connected):
    """``runs``, ``states``, ``metrics`` and ``resources``."""

    def insert_run(self, run: Run) -> None:
        self._execute(_INSERT_RUN, rows.run_row(run))

    def update_run(self, run: Run) -> None:
        sql = "update runs set status = ?, endpoint_url = ? where run_id = ?"
        self._execute(sql, (run.status, run.endpoint_url, run.run_id))
        self._known.run_rows.pop(run.run_id, None)
        self._runs.pop(run.run_id, None)

    def run(self, run_id: str) -> Run | None:
        """One run; a record of its own for each transaction, since its config can be changed inside."""
        run = self._runs.get(run_id)
        if run is not None:
            return run
        row = self._known.run_rows.get(run_id) or self._execute(_SELECT_RUN, (run_id,)).fetchone()
        if row is None:
            return None
        self._known.run_rows[run_id] = row
        run = self._runs[run_id] = rows.run_of(row)
        return run

    def runs(self) -> list[Run]:
        return list(map(rows.run_of, self._execute(f"select {rows.RUN} from runs order by seq")))

    def open_run_named(self, name: str) -> Run | None:
        sql = (
            f"select {rows.RUN} from runs where name = ? and status = 'open' order by seq desc limit 1"
        )
        row = self._execute(sql, (name,)).fetchone()
        return None if row is None else rows.run_of(row)

    # --- states and metrics ---------------------------------------------------------------

    def put_state(self, run_id: str, state: Mapping[str, JSON]) -> None:
        sql = "insert or replace into states (run_id, state) values (?, ?)"
        self._execute(sql, (run_id, rows.text(state)))

    def state(self, run_id: str) -> dict[str, JSON] | None:
        found = self._one("select state from states where run_id = ?", run_id)
        return None if found is None else from_json(found, dict)

    def put_metrics(self, metrics: Metrics) -> None:
        sql = "insert or replace into metrics (run_id, step, name, value, at) values (?, ?, ?, ?, ?)"
        self._executemany(
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

    # --- resources ------------------------------------------------------------------------

    def insert_resources(self, version: ResourcesVersion) -> None:
        sql = "insert into resources (run_id, version, candidate, record) values (?, ?, ?, ?)"
        values = (version.run_id, version.version, version.candidate, rows.text(version))
        self._execute(sql, values)
        for candidates in (False, True):
            self._known.newest.pop((version.run_id, candidates), None)

    def resources(self, run_id: str, version: int) -> ResourcesVersion | None:
        """Every claim asks for one, so their text is kept; each gets a record of its own."""
        record = self._known.resources.get((run_id, version))
        if record is None:
            sql = "select record from resources where run_id = ? and version = ?"
            record = self._one(sql, run_id, version)
            if record is None:
                return None
            self._known.keep_resources(run_id, version, record)
        return from_json(record, ResourcesVersion)

    def newest_resources(self, run_id: str, *, candidates: bool) -> int:
        newest = self._known.newest.get((run_id, candidates))
        if newest is None:
            sql = (
                "select version from resources where run_id = ? and candidate <= ? "
                "order by version desc limit 1"
            )
            newest = self._known.newest[run_id, candidates] = self._one(sql, run_id, candidates) or 0
        return newest
