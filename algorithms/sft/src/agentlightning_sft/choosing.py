"""Which rollouts of a recorded run are worth learning from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from agentlightning.errors import ConfigError
from agentlightning.records import AGENT_VERSION, Rollout, Run, Span
from agentlightning.samples import CreditRules, outcome, unknown_version, versions_of
from agentlightning.store import RolloutQuery, Store

from agentlightning_sft.config import SFTConfig

_PAGE: Final = 500
_SHOWN: Final = 8


@dataclass(frozen=True)
class Scored:
    """A rollout with its outcome; None = unscored."""

    rollout: Rollout
    reward: float | None


def find_run(store: Store, named: str) -> Run:
    """The run of that id, else the latest of that name.

    Raises:
        ConfigError: there is none; the message lists what there is.
    """
    runs = store.runs()
    for run in runs:
        if run.run_id == named:
            return run
    for run in reversed(runs):
        if run.name == named:
            return run
    known = ", ".join(f"{run.name} ({run.run_id})" for run in runs[-_SHOWN:]) or "none"
    raise ConfigError(
        f"source_run: the store has no run of the id or name {named!r}; its latest runs: {known}"
    )


def choose(
    store: Store, run: Run, config: SFTConfig, rules: CreditRules
) -> tuple[list[Rollout], Counter[str]]:
    """The rollouts to learn from, in the order they were made, and why the others are none.

    Only training rollouts that succeeded: what is learned from validation tasks cannot be validated
    on them.

    Args:
        store: holds the run.
        run: whose rollouts to choose from.
        config: how.
        rules: which rewards count, of which version.

    Raises:
        ConfigError: they are to be chosen by rewards of a version that no rollout has.
    """
    dropped: Counter[str] = Counter()
    usable = []
    for rollout in _all_rollouts(store, run.run_id):
        if rollout.mode != "train":
            dropped[f"rollouts of mode {rollout.mode}"] += 1
        elif rollout.status != "succeeded":
            dropped[f"rollouts that are {rollout.status}"] += 1
        else:
            usable.append(rollout)
    chosen, versions = _scored(store, usable, rules)
    if config.reward_threshold is not None or config.best_per_task is not None:
        if chosen and rules.version not in versions | {AGENT_VERSION}:
            raise unknown_version(rules.version, versions, f"run {run.run_id}", run.run_id)
        scored = [item.reward is not None for item in chosen]
        chosen = _keep(chosen, scored, "unscored rollouts", dropped)
    if (least := config.reward_threshold) is not None:
        reached = [item.reward is not None and item.reward >= least for item in chosen]
        chosen = _keep(chosen, reached, f"rollouts with a reward below {least:g}", dropped)
    if config.best_per_task is not None:
        best = _best(chosen, config.best_per_task)
        among = [item.rollout.rollout_id in best for item in chosen]
        chosen = _keep(chosen, among, "rollouts that others of their task beat", dropped)
    return [item.rollout for item in chosen], dropped


def _all_rollouts(store: Store, run_id: str) -> Iterator[Rollout]:
    cursor = None
    while True:
        page = store.rollouts(RolloutQuery(run_id=run_id, limit=_PAGE, cursor=cursor))
        yield from page.items
        cursor = page.cursor
        if cursor is None:
            return


def _scored(
    store: Store, rollouts: Sequence[Rollout], rules: CreditRules
) -> tuple[list[Scored], set[str]]:
    """The rollouts with their outcomes, and the versions of rewards that there are."""
    scored: list[Scored] = []
    versions: set[str] = set()
    for start in range(0, len(rollouts), _PAGE):
        page = rollouts[start : start + _PAGE]
        spans: dict[str, list[Span]] = {rollout.rollout_id: [] for rollout in page}
        for span in store.spans(list(spans), kinds=["reward"]):
            spans[span.rollout_id].append(span)
            versions |= versions_of([span])
        scored += [
            Scored(rollout, outcome(rollout, spans[rollout.rollout_id], rules)) for rollout in page
        ]
    return scored, versions


def _keep(
    items: Sequence[Scored], wanted: Sequence[bool], reason: str, dropped: Counter[str]
) -> list[Scored]:
    kept = [item for item, keep in zip(items, wanted, strict=True) if keep]
    if len(kept) < len(items):
        dropped[reason] += len(items) - len(kept)
    return kept


def _best(items: Sequence[Scored], count: int) -> set[str]:
    """The ids of each task's ``count`` best; of equal ones the earlier."""
    groups: dict[str, list[Scored]] = {}
    for item in items:
        group = item.rollout.group_id or item.rollout.rollout_id
        groups.setdefault(group, []).append(item)
    return {
        item.rollout.rollout_id
        for group in groups.values()
        for item in sorted(group, key=lambda one: -(one.reward or 0.0))[:count]
    }
