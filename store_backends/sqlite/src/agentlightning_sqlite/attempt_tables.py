"""Attempts, and when their leases end."""

# ruff: noqa: D102  (Tables says what each method does)
# ruff: noqa: S608  (what is put into SQL text is this package's own column names, never a value)

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from agentlightning.records import Attempt

from agentlightning_sqlite import rows
from agentlightning_sqlite.connected import matching
from agentlightning_sqlite.rollout_tables import RolloutTables

_INSERT: Final = (
    f"insert into attempts ({rows.ATTEMPT}, run_id) values ({rows.places(rows.ATTEMPT)}, "
    "coalesce(?, (select run_id from rollouts where rollout_id = ?)))"
)
_UPDATE: Final = (
    "update attempts set status = ?, lease_until = ?, finished_at = ?, error = ? "
    "where rollout_id = ? and number = ?"
)


class AttemptTables(RolloutTables):
    """``attempts``."""

    def insert_attempts(self, attempts: Sequence[Attempt]) -> None:
        written = self._written
        self._executemany(
            _INSERT,
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
                    written[attempt.rollout_id].run_id if attempt.rollout_id in written else None,
                    attempt.rollout_id,
                )
                for attempt in attempts
            ],
        )
        running = [attempt for attempt in attempts if attempt.status == "running"]
        if self._known.expiry and running:
            expiry, first = self._known.expiry[0], min(attempt.lease_until for attempt in running)
            self._known.expiry = [first if expiry is None else min(first, expiry)]
        for attempt in running:
            rollout = written.get(attempt.rollout_id)
            if rollout is not None and rollout.attempt == attempt.number == 1:
                self._known.claim(rollout, attempt)

    def update_attempts(self, attempts: Sequence[Attempt]) -> None:
        self._executemany(
            _UPDATE,
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
        for attempt in attempts:
            self._known.claimed.pop(attempt.rollout_id, None)
        expiry = self._known.expiry[0] if self._known.expiry else None
        if any(
            attempt.status == "running" or expiry is None or attempt.lease_until <= expiry
            for attempt in attempts
        ):  # a lease was renewed, or the first to end is over
            self._known.expiry = []

    def attempts(self, rollout_ids: Collection[str]) -> dict[str, list[Attempt]]:
        if self._known.knows(rollout_ids):
            return {name: [self._known.attempt(name)] for name in rollout_ids}
        condition, value = matching([*rollout_ids])
        sql = (
            f"select {rows.ATTEMPT} from attempts where rollout_id {condition} "
            "order by rollout_id, number"
        )
        found: dict[str, list[Attempt]] = {name: [] for name in rollout_ids}
        for row in self._execute(sql, (value,)):
            found[row[0]].append(rows.attempt_of(row))
        return found

    def expired(self, now: float) -> list[str]:
        sql = "select rollout_id from attempts where status = 'running' and lease_until <= ?"
        return [rollout_id for (rollout_id,) in self._execute(sql, (now,))]

    def next_expiry(self) -> float | None:
        if not self._known.expiry:
            sql = "select min(lease_until) from attempts where status = 'running'"
            self._known.expiry = [self._one(sql)]
        return self._known.expiry[0]
