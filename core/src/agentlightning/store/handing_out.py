"""Records on their way out of a store, whose dicts the caller may change without changing the store.

A backend that reads what it gives out from a file has nothing to do. One that keeps the records
themselves copies what is inside of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from agentlightning.records import Rollout, Run
from agentlightning.store.transfer import RolloutRow, RunRow, StoredRow
from agentlightning.store.types import Claim


class HandingOut:
    """The part of a store that makes records the caller's own."""

    def _own(self, rollouts: list[Rollout]) -> list[Rollout]:
        """Rollouts that the caller may change the inside of without changing the store."""
        return rollouts

    def _own_run(self, run: Run) -> Run:
        """A run, likewise."""
        return run

    def _own_row(self, row: StoredRow) -> StoredRow:
        if isinstance(row, RolloutRow):
            return replace(row, record=self._own([row.record])[0])
        return replace(row, record=self._own_run(row.record)) if isinstance(row, RunRow) else row

    def _own_claims(self, given: Sequence[Claim]) -> list[Claim]:
        owned = []
        for claim, rollout in zip(given, self._own([claim.rollout for claim in given]), strict=True):
            run = self._own_run(claim.run)
            is_own = rollout is claim.rollout and run is claim.run
            owned.append(claim if is_own else replace(claim, rollout=rollout, run=run))
        return owned
