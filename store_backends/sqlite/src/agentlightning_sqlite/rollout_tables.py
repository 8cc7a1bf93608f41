"""Rollouts: queued, claimed, ended, listed."""

# ruff: noqa: D102  (Tables says what each method does)
# ruff: noqa: S608  (what is put into SQL text is this package's own column names, never a value)

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from agentlightning.records import Rollout
from agentlightning.store.tables import read_cursor
from agentlightning.store.types import Page, RolloutQuery

from agentlightning_sqlite import rows
from agentlightning_sqlite.connected import IDS, matching
from agentlightning_sqlite.run_tables import RunTables

_INSERT: Final = f"insert into rollouts ({rows.ROLLOUT}) values ({rows.places(rows.ROLLOUT)})"
_UPDATE: Final = (
    "update rollouts set status = ?, attempt = ?, resources_version = ?, reward = ?, "
    "finished_at = ?, output = ? where rollout_id = ?"
)
_QUEUED: Final = (
    f"select -priority, seq, {rows.ROLLOUT} from rollouts "
    "where run_id = ? and status = 'queued' order by priority desc, seq limit ?"
)
_RUNS_WITH_QUEUED: Final = """
    with recursive waiting (run_id) as (
        select min(run_id) from rollouts where status = 'queued'
        union all
        select (select min(rollouts.run_id) from rollouts
            where status = 'queued' and rollouts.run_id > waiting.run_id)
        from waiting where waiting.run_id is not null
    )
    select run_id from waiting join runs using (run_id) where runs.status = 'open'
"""
"""One step in the index a run, however many of its rollouts are queued."""


class RolloutTables(RunTables):
    """``rollouts``."""

    def insert_rollouts(self, rollouts: Sequence[Rollout]) -> None:
        self._executemany(_INSERT, map(rows.rollout_row, rollouts))
        self._note(rollouts)

    def update_rollouts(self, rollouts: Sequence[Rollout]) -> None:
        self._executemany(
            _UPDATE,
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
        self._note(rollouts)

    def rollouts(self, rollout_ids: Collection[str]) -> dict[str, Rollout]:
        if self._known.knows(rollout_ids):
            return {name: self._known.rollout(name) for name in rollout_ids}
        condition, value = matching([*rollout_ids])
        sql = f"select {rows.ROLLOUT} from rollouts where rollout_id {condition}"
        return {row[0]: rows.rollout_of(row) for row in self._execute(sql, (value,))}

    def attempt_counts(self, rollout_ids: Collection[str]) -> dict[str, int]:
        condition, value = matching([*rollout_ids])
        sql = f"select rollout_id, attempt from rollouts where rollout_id {condition}"
        return dict(self._execute(sql, (value,)).fetchall())

    def find_rollouts(self, query: RolloutQuery) -> Page[Rollout]:
        conditions = ["seq > ?"]
        values: list[object] = [read_cursor(query.cursor)]
        lists: dict[str, object] = {"rollout_id": query.rollout_ids, "status": query.status}
        for column, wanted in lists.items():
            if wanted is not None:
                conditions.append(f"{column} {IDS}")
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
        if run_id is None:
            run_ids = [name for (name,) in self._execute(_RUNS_WITH_QUEUED).fetchall()]
        else:
            run = self.run(run_id)
            run_ids = [run_id] if run is not None and run.status == "open" else []
        first = [row for name in run_ids for row in self._execute(_QUEUED, (name, limit))]
        if len(run_ids) > 1:
            first.sort(key=lambda row: row[:2])
        return [rows.rollout_of(row[2:]) for row in first[:limit]]

    def _note(self, rollouts: Sequence[Rollout]) -> None:
        """So that their attempts, which come next, need not look for them."""
        for rollout in rollouts:
            self._written[rollout.rollout_id] = rollout
            self._known.claimed.pop(rollout.rollout_id, None)
