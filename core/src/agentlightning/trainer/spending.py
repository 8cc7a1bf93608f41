"""What a run has spent: counted while it goes on, and told from its records when it is resumed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from agentlightning.algorithm import Budget
from agentlightning.records import ROLLOUT_OVER, Rollout, Span
from agentlightning.store import RolloutQuery, Store

SPENT: Final = "spent/"
"""Prefix of the metrics that say what a run has spent so far."""

_SECONDS: Final = "seconds"
_PAGE: Final = 1000


class Spending:
    """Adds up what rollouts cost, each once, however often the run was stopped.

    The store's records are the truth: a run that was killed had finished, and paid for, more than it
    last said. A cancelled rollout is none, but its calls count.

    Attributes:
        budget: ``spent`` is kept up to date.
        step: the step that metrics were last logged for.
    """

    def __init__(self, budget: Budget, store: Store, run_id: str) -> None:
        self.budget = budget
        self.step = 0
        self._store = store
        self._run_id = run_id
        self._counted: set[str] = set()
        seconds = 0.0
        for metrics in store.metrics(run_id):
            self.step = metrics.step
            seconds = max(seconds, metrics.values.get(SPENT + _SECONDS, 0.0))
        self._started = time.monotonic() - seconds
        self._count_earlier()
        self.tick()

    def add(self, rollout: Rollout, spans: Iterable[Span]) -> None:
        """Count a rollout that is over; one that is counted already changes nothing."""
        if rollout.rollout_id in self._counted:
            return
        self._counted.add(rollout.rollout_id)
        calls = [span.call for span in spans if span.call]
        tokens = sum((call.usage or {}).get("total_tokens") or 0 for call in calls)
        costs = {
            "rollouts": int(rollout.status != "cancelled"),
            "llm_calls": len(calls),
            "tokens": tokens,
        }
        for what, amount in costs.items():
            self.budget.spent[what] = self.budget.spent.get(what, 0) + amount

    def tick(self) -> None:
        """Count the time up to now."""
        self.budget.spent[_SECONDS] = time.monotonic() - self._started

    def metrics(self) -> dict[str, float]:
        """The sums as metrics."""
        self.tick()
        return {f"{SPENT}{what}": float(amount) for what, amount in self.budget.spent.items()}

    def keep(self) -> None:
        """Log the sums once more, with what came after the last step."""
        self._store.log_metrics(self._run_id, self.step, self.metrics())

    def _count_earlier(self) -> None:
        query = RolloutQuery(run_id=self._run_id, status=tuple(ROLLOUT_OVER), limit=_PAGE)
        while True:
            page = self._store.rollouts(query)
            for rollout in page.items:
                self.add(rollout, self._store.spans([rollout.rollout_id], kinds=["llm"]))
            if page.cursor is None:
                return
            query = replace(query, cursor=page.cursor)
