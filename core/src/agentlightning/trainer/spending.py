"""What a run has spent: counted while it goes on, and told from its records when it is resumed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import groupby
from typing import Final

from agentlightning.algorithm import Budget
from agentlightning.records import ROLLOUT_OVER, Rollout, Span
from agentlightning.store import RolloutQuery, Store, rollout_pages

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
        self._count(rollout, _calls_and_tokens(spans))

    def _count(self, rollout: Rollout, calls_and_tokens: tuple[int, int]) -> None:
        if rollout.rollout_id in self._counted:
            return
        self._counted.add(rollout.rollout_id)
        llm_calls, tokens = calls_and_tokens
        costs = {
            "rollouts": int(rollout.status != "cancelled"),
            "llm_calls": llm_calls,
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
        for page in rollout_pages(self._store, query):
            # All at once, since each question to a store may cost a round trip; but not kept, since the
            # calls of a whole run may be more than there is memory for.
            spans = self._store.spans([item.rollout_id for item in page], kinds=["llm"])
            spent = {
                rollout_id: _calls_and_tokens(of_rollout)
                for rollout_id, of_rollout in groupby(spans, key=lambda span: span.rollout_id)
            }
            for rollout in page:
                self._count(rollout, spent.get(rollout.rollout_id, (0, 0)))


def _calls_and_tokens(spans: Iterable[Span]) -> tuple[int, int]:
    """How many LLM calls, and the tokens that they say they used."""
    calls = [span.call for span in spans if span.call]
    return len(calls), sum((call.usage or {}).get("total_tokens") or 0 for call in calls)
