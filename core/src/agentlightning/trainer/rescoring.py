"""A new reward function, or a judge, over rollouts that are stored: no agent is run again.

Its values are recorded as reward spans of a version of their own, beside those there are. What is
scored under a version is not scored again, so that an interrupted re-score goes on where it stopped and
no judge is paid twice. ``Rollout.reward`` stays what the run was trained with unless it is asked to
follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from agentlightning.errors import ConfigError, RewardError
from agentlightning.records import (
    AGENT_VERSION,
    JSON,
    ROLLOUT_OVER,
    Mode,
    Rollout,
    RolloutStatus,
    Span,
)
from agentlightning.samples import CreditRules, outcome, outcome_reward, recorded_rules
from agentlightning.store import RolloutQuery, Store
from agentlightning.trainer.comparing import Comparison
from agentlightning.trainer.rewarded import rewarded_rollouts
from agentlightning.trainer.scoring import Scorer, is_scored

_UNSCORED: Final = "unscored: "


@dataclass
class Rescored:
    """What a re-score did.

    Attributes:
        run_id: whose rollouts were scored. version: what their rewards are recorded as.
        old_versions: what the run was trained with.
        scored: rollouts that have a reward of the version now and had none before.
        unscored: those that got none, by reason.
        scored_before: those that were left alone because they are scored under the version already.
        unattempted: those that were over before anybody worked on them.
        comparison: of the old and the new outcomes.
        refusal: the function gave something that is no reward; the message names the first rollout.
    """

    run_id: str
    version: str
    old_versions: set[str] = field(default_factory=set)
    scored: int = 0
    unscored: Counter[str] = field(default_factory=Counter)
    scored_before: int = 0
    unattempted: int = 0
    comparison: Comparison = field(default_factory=Comparison)
    refusal: RewardError | None = None

    def facts(self) -> dict[str, JSON]:
        """All of it as JSON."""
        compared = self.comparison
        old_scored, old_mean = compared.old
        new_scored, new_mean = compared.new
        old_versions = ", ".join(sorted(self.old_versions)) or AGENT_VERSION
        return {
            "run_id": self.run_id,
            "old": {"version": old_versions, "scored": old_scored, "mean": old_mean},
            "new": {"version": self.version, "scored": new_scored, "mean": new_mean},
            "scored": self.scored,
            "unscored": dict(self.unscored.most_common()),
            "scored_before": self.scored_before,
            "unattempted": self.unattempted,
            "both": compared.both,
            "correlation": compared.correlation,
            "differences": [
                {"rollout_id": item.rollout_id, "old": item.old, "new": item.new}
                for item in compared.widest
            ],
        }


def rescore(
    store: Store,
    run_id: str,
    function: Callable[..., Any],
    *,
    version: str,
    mode: Mode | None = None,
    statuses: Sequence[RolloutStatus] = ("succeeded",),
    limit: int | None = None,
    workers: int = 8,
    again: bool = False,
    make_current: bool = False,
    told: Callable[[int, int | None], None] = lambda _done, _total: None,
) -> Rescored:
    """Score the stored rollouts of a run anew.

    Args:
        store: has the run.
        run_id: the run.
        function: ``f(task, output)`` or ``f(task, output, rollout)``, sync or async. None means
            unscored, as does an exception.
        version: what its values are recorded as.
        mode: only rollouts of this mode.
        statuses: only rollouts that ended so.
        limit: score so many at most; those that are scored already do not count.
        workers: calls of the function at once.
        again: score those too that are scored under this version; the latest value counts.
        make_current: let ``Rollout.reward`` be what this version says, None where it says nothing.
        told: how many of how many rollouts are done.

    Raises:
        ConfigError: the version is that of the agent's own rewards, or a status is of one that goes on.
        UnknownRun: the store has no such run.
        KeyboardInterrupt: after what was being scored then is stored; calling it again goes on.
    """
    _check(version, statuses)
    scorer = Scorer(function, version, statuses=statuses)
    counts = store.statistics(run_id).rollouts
    total = None if mode else sum(counts[status] for status in statuses)
    job = _Job(store, Rescored(run_id, version), make_current=make_current)
    cases = job.cases(RolloutQuery(run_id=run_id, mode=mode, status=tuple(statuses)), limit, again)
    job.run(cases, scorer, workers, lambda done: told(done, total))
    job.result.refusal = scorer.refusal
    return job.result


class _Case(NamedTuple):
    """A rollout to score, and the outcome it has in the old version."""

    rollout: Rollout
    old: float | None


class _Job:
    """Which rollouts to score, and what is kept of their scores."""

    def __init__(self, store: Store, result: Rescored, *, make_current: bool) -> None:
        self._store = store
        self._rules = CreditRules(version=result.version)
        self._make_current = make_current
        self.result = result
        self._seen = 0

    def cases(self, query: RolloutQuery, limit: int | None, again: bool) -> Iterator[_Case]:
        """The rollouts to score; those that need not be are only compared."""
        given = 0
        for rollout, spans in rewarded_rollouts(self._store, query):
            self._seen += 1
            if rollout.attempt == 0:
                self.result.unattempted += 1
                continue
            rules, _, _ = recorded_rules(rollout)
            self.result.old_versions.add(rules.version)
            case = _Case(rollout, outcome(rollout, spans, rules))
            if is_scored(spans, self.result.version) and not again:
                self.result.scored_before += 1
                self._set({rollout.rollout_id: self._compare(case, spans)})
            elif given == limit:
                return
            else:
                given += 1
                yield case

    def run(
        self, cases: Iterator[_Case], scorer: Scorer, workers: int, told: Callable[[int], None]
    ) -> None:
        """Score the cases, some at once, and store each score as it comes."""
        running: dict[Future[Span | None], _Case] = {}
        with ThreadPoolExecutor(workers, thread_name_prefix="agl-rescore") as pool:
            try:
                for case in cases:
                    running[pool.submit(scorer.score, case.rollout)] = case
                    if len(running) >= 2 * workers:  # no worker idle, and little that is not stored
                        self._keep_some(running, told)
                while running:
                    self._keep_some(running, told)
            except BaseException:
                begun = [future for future in running if not future.cancel()]
                self._keep(running, wait(begun).done)
                raise
        told(self._seen)

    def _keep_some(
        self, running: dict[Future[Span | None], _Case], told: Callable[[int], None]
    ) -> None:
        self._keep(running, wait(running, return_when=FIRST_COMPLETED).done)
        told(self._seen - len(running))

    def _keep(
        self, running: dict[Future[Span | None], _Case], done: Iterable[Future[Span | None]]
    ) -> None:
        """Store the scores that have come, and take them out of ``running``."""
        scores = {future: future.result() for future in done}
        found = [(running[future], span) for future, span in scores.items() if span is not None]
        self._store.add_spans([span for _, span in found])
        for future in scores:
            del running[future]
        outcomes: dict[str, float | None] = {}
        for case, span in found:
            new = outcomes[case.rollout.rollout_id] = self._compare(case, [span])
            if new is None:
                self.result.unscored[self._reason(case, span)] += 1
            else:
                self.result.scored += 1
        self._set(outcomes)

    def _reason(self, case: _Case, span: Span) -> str:
        """Why there is no score, without the rollout's own id, so that like reasons are one."""
        rule = outcome_reward(case.rollout, [span], self._rules).rule
        return rule.removeprefix(_UNSCORED).replace(case.rollout.rollout_id, "…")

    def _compare(self, case: _Case, spans: Sequence[Span]) -> float | None:
        new = outcome(case.rollout, spans, self._rules)
        self.result.comparison.add(case.rollout.rollout_id, case.old, new)
        return new

    def _set(self, outcomes: dict[str, float | None]) -> None:
        if self._make_current and outcomes:
            self._store.set_rewards(outcomes)


def _check(version: str, statuses: Sequence[str]) -> None:
    if not version or version == AGENT_VERSION:
        raise ConfigError(
            f"the version {version!r} is that of the rewards a run was made with; name the new one "
            "otherwise, for example by the function"
        )
    if going_on := set(statuses) - ROLLOUT_OVER:
        raise ConfigError(
            f"rollouts that are {' or '.join(sorted(going_on))} cannot be scored yet; expected "
            f"{', '.join(sorted(ROLLOUT_OVER))}"
        )
