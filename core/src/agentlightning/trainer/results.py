"""Finished rollouts as an algorithm reads them: scored, with samples, nothing late missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from agentlightning.algorithm import RolloutBatch, RolloutResult
from agentlightning.errors import Deadline
from agentlightning.recording.sink import Sink
from agentlightning.records import Rollout, Span
from agentlightning.samples import CreditRules, Level, Limits, outcome, outcomes, transitions
from agentlightning.store import Store
from agentlightning.trainer.absence import AWAY_S
from agentlightning.trainer.lasting_store import LastingStore
from agentlightning.trainer.scoring import Scorer, is_scored

LOOK_S = 1.0
"""Seconds that one wait lasts before workers, an interruption and the deadline are looked at again."""


@dataclass(frozen=True)
class Shape:
    """How samples are made of spans; see :meth:`AlgorithmContext.rollouts`."""

    rules: CreditRules
    limits: Limits
    level: Level


class ResultBuilder:
    """Turns rollouts that are over into results: flush, score, read back, make samples."""

    def __init__(self, store: Store, sink: Sink, scorer: Scorer) -> None:
        self._store = store
        self._sink = sink
        self._scorer = scorer

    def build(self, rollouts: Sequence[Rollout], shape: Shape) -> list[RolloutResult]:
        """Results in the order of ``rollouts``.

        The runner sent an attempt's spans with its end; the endpoint's are flushed here. A rollout
        that was scored before a restart keeps that score: scoring it may cost, and come out otherwise.

        Raises:
            RewardError: the reward function gave something that is no reward; that is stored.
        """
        self._sink.flush(timeout_s=AWAY_S)
        spans: dict[str, list[Span]] = {rollout.rollout_id: [] for rollout in rollouts}
        for span in self._store.spans(list(spans)):
            spans[span.rollout_id].append(span)
        scorer = self._scorer
        scores = [
            score
            for rollout in rollouts
            if not is_scored(spans[rollout.rollout_id], scorer.version)
            and (score := scorer.score(rollout))
        ]
        self._store.add_spans(scores)
        for span in scores:
            spans[span.rollout_id].append(span)
        results = [_result(rollout, spans[rollout.rollout_id], shape) for rollout in rollouts]
        self._store.set_rewards({result.rollout.rollout_id: result.reward for result in results})
        scorer.raise_refusal()
        return results


def _result(rollout: Rollout, spans: list[Span], shape: Shape) -> RolloutResult:
    return RolloutResult(
        rollout=rollout,
        spans=spans,
        reward=outcome(rollout, spans, shape.rules),
        rewards=outcomes(rollout, spans, shape.rules),
        transitions=transitions(rollout, spans, shape.rules),
        rules=shape.rules,
        limits=shape.limits,
        level=shape.level,
    )


class Batch(RolloutBatch):
    """Rollouts under way; iterating gives each result as it finishes.

    A batch in which nothing finishes for ``stall_s`` seconds is a ``Deadline`` that says what it
    waited for, and what to do (``hint``); ``check`` is asked now and then whether the workers are
    alive, and raises if not.
    """

    def __init__(
        self,
        store: LastingStore,
        builder: ResultBuilder,
        rollouts: Sequence[Rollout],
        shape: Shape,
        *,
        check: Callable[[], None],
        finished: Callable[[RolloutResult], None],
        completed: Callable[[], None],
        stall_s: float,
        hint: str = "",
    ) -> None:
        self._store = store
        self._builder = builder
        self._order = [rollout.rollout_id for rollout in rollouts]
        self._shape = shape
        self._check = check
        self._finished = finished
        self._completed = completed
        self._stall_s = stall_s
        self._hint = hint
        self._results: dict[str, RolloutResult] = {}

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[RolloutResult]:
        yield from list(self._results.values())
        while pending := self._pending():
            yield from self._collect(self._next(pending))

    def wait(self, timeout_s: float | None = None) -> list[RolloutResult]:
        """All results, in the order of the tasks (each task's copies side by side)."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while pending := self._pending():
            left = None if deadline is None else deadline - time.monotonic()
            self._collect(self._next(pending, left))
        return [self._results[rollout_id] for rollout_id in self._order]

    def cancel(self) -> None:
        """Cancel what is not finished; its results come back with status ``cancelled``."""
        if pending := self._pending():
            self._store.cancel(pending)

    def _pending(self) -> list[str]:
        return [rollout_id for rollout_id in self._order if rollout_id not in self._results]

    def _collect(self, rollouts: list[Rollout]) -> list[RolloutResult]:
        results = self._builder.build(rollouts, self._shape)
        for result in results:
            self._results[result.rollout.rollout_id] = result
            self._finished(result)
        if not self._pending():
            self._completed()
        return results

    def _next(self, pending: list[str], left_s: float | None = None) -> list[Rollout]:
        """The pending rollouts that are over, at least one."""
        limit_s = self._stall_s if left_s is None else min(left_s, self._stall_s)
        deadline = time.monotonic() + limit_s
        while True:
            self._check()
            patience = max(0.0, min(LOOK_S, deadline - time.monotonic()))
            try:
                return self._store.wait(pending, timeout_s=patience, count=1)
            except Deadline:
                if time.monotonic() >= deadline:
                    raise Deadline(self._complaint(limit_s)) from None

    def _complaint(self, waited_s: float) -> str:
        pending = self._pending()
        counts = self._store.statistics().rollouts
        workers = len(self._store.workers())
        return (
            f"waited {waited_s:.0f} s for {len(pending)} of {len(self)} rollouts and none finished "
            f"(in the store: {counts.get('queued', 0)} queued, {counts.get('running', 0)} running, "
            f"{workers} workers known); {self._hint or f'look at one with: agl explain {pending[0]}'}"
        )
