"""Rewards as they were recorded, and the one that is a rollout's outcome."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple, cast

from agentlightning import semconv
from agentlightning.errors import ConfigError, RewardError
from agentlightning.records import AGENT_VERSION, Reward, RewardSource, Rollout, Span
from agentlightning.samples.calls import final_spans
from agentlightning.samples.failures import failure_of
from agentlightning.samples.types import CreditRules, Fidelity, OutcomeReward

_PRECEDENCE: Final[dict[RewardSource, str]] = {
    "function": "the reward function's value",
    "returned": "the value the agent returned",
    "emitted": "the last value emitted",
}
_RANK: Final = {source: rank for rank, source in enumerate(_PRECEDENCE)}


class RewardReading(NamedTuple):
    """One reward span as read; ``value`` None says that scoring was tried and gave nothing."""

    span: Span
    name: str
    version: str
    source: RewardSource
    agent: str | None
    step: str | None
    value: float | None

    @property
    def is_outcome(self) -> bool:
        """Whether it is about the whole rollout, not one step or one agent."""
        return self.step is None and self.agent is None


def read_rewards(spans: Iterable[Span]) -> list[RewardReading]:
    """All rewards among the spans, of every name and version, in the order they were given.

    Raises:
        RewardError: a value is not a finite number; the message names the rollout.
    """
    found = [span for span in spans if span.kind == "reward"]
    return [_read(span) for span in sorted(found, key=lambda span: (span.start_ns, span.index))]


def rewards(spans: Iterable[Span], version: str = AGENT_VERSION) -> list[Reward]:
    """The rewards of one version, in the order they were given; those without a value left out.

    Args:
        spans: spans of any kind; reward spans are read.
        version: ``"agent"``, or the name of a re-score.

    Raises:
        RewardError: a value is not a finite number; the message names the rollout.
    """
    return [
        Reward(
            rollout_id=reading.span.rollout_id,
            attempt=reading.span.attempt,
            value=reading.value,
            name=reading.name,
            agent=reading.agent,
            span_id=reading.step,
            version=reading.version,
            source=reading.source,
        )
        for reading in read_rewards(spans)
        if reading.version == version and reading.value is not None
    ]


def outcome(rollout: Rollout, spans: Sequence[Span], rules: CreditRules) -> float | None:
    """The rollout's outcome; None = unscored, never 0.0. See :func:`outcome_reward` for the rule."""
    return outcome_reward(rollout, spans, rules).value


def outcome_reward(rollout: Rollout, spans: Sequence[Span], rules: CreditRules) -> OutcomeReward:
    """The rollout's outcome with the rule that chose it.

    The reward function's value beats what the agent returned, which beats the last value emitted;
    of one kind the latest counts. Whether any LLM call was recorded makes no difference. A reward
    function that gave no value leaves the rollout unscored, whatever the agent said of itself.

    Args:
        rollout: the latest attempt's rewards count.
        spans: its spans; other attempts' are ignored.
        rules: ``reward_name`` and ``version`` say which rewards count.

    Raises:
        RewardError: a value is not a finite number; the message names the rollout.
    """
    candidates = _outcome_readings(rollout, spans, rules.version).get(rules.reward_name)
    if not candidates:
        of_version = "" if rules.version == AGENT_VERSION else f" of version {rules.version!r}"
        return OutcomeReward(value=None, rule=f"unscored: no reward{of_version} was recorded")
    return _choose(candidates)


def unknown_version(version: str, there: Collection[str], what: str, run_id: str) -> ConfigError:
    """The error for a version of rewards that is not there.

    Args:
        version: what was asked for.
        there: the versions there are.
        what: what has no reward of it, for example ``"rollout ro-1"``.
        run_id: whose rollouts could be scored under it.
    """
    return ConfigError(
        f"reward version: {what} has no reward of version {version!r}; there are: "
        f"{', '.join(sorted(there)) or 'none'}. Name one of them, or score the run's rollouts under a "
        f"new one: agl rescore {run_id} --reward module:function --version {version}"
    )


def versions_of(spans: Iterable[Span]) -> set[str]:
    """The versions of the rewards among the spans."""
    return {reading.version for reading in read_rewards(spans)}


def outcomes(rollout: Rollout, spans: Sequence[Span], rules: CreditRules) -> dict[str, float]:
    """The outcome of every reward dimension by name; dimensions without a value are left out."""
    chosen = {
        name: _choose(candidates).value
        for name, candidates in _outcome_readings(rollout, spans, rules.version).items()
    }
    return {name: value for name, value in chosen.items() if value is not None}


def coverage(found: Iterable[OutcomeReward]) -> Fidelity:
    """The reward part of a fidelity report, to be added to that of the rows."""
    every = list(found)
    scored = sum(item.value is not None for item in every)
    return Fidelity(
        scored=scored,
        unscored=len(every) - scored,
        reward_conflicts=sum(item.conflicts for item in every),
    )


def _outcome_readings(
    rollout: Rollout, spans: Sequence[Span], version: str
) -> dict[str, list[RewardReading]]:
    by_name: dict[str, list[RewardReading]] = {}
    for reading in read_rewards(final_spans(rollout, spans)):
        if reading.is_outcome and reading.version == version:
            by_name.setdefault(reading.name, []).append(reading)
    return by_name


def _choose(candidates: Sequence[RewardReading]) -> OutcomeReward:
    best = min(_RANK[reading.source] for reading in candidates)
    chosen = [reading for reading in candidates if _RANK[reading.source] == best][-1]
    return OutcomeReward(
        value=chosen.value,
        rule=_rule(chosen),
        source=chosen.source,
        span_id=chosen.span.span_id,
        conflicts=sum(reading.value != chosen.value for reading in candidates),
    )


def _rule(chosen: RewardReading) -> str:
    """Why this value counts, or why there is none."""
    if chosen.value is not None:
        return _PRECEDENCE[chosen.source]
    if failure := failure_of(chosen.span):
        return f"unscored: the reward function failed: {failure}"
    return f"unscored: {_PRECEDENCE[chosen.source]} is None"


def _read(span: Span) -> RewardReading:
    attributes = span.attributes
    source = attributes.get(semconv.REWARD_SOURCE)
    name = str(attributes.get(semconv.REWARD_NAME) or "reward")
    return RewardReading(
        span=span,
        name=name,
        version=str(attributes.get(semconv.REWARD_VERSION) or AGENT_VERSION),
        source=cast("RewardSource", source) if source in _RANK else "emitted",
        agent=attributes.get(semconv.REWARD_AGENT),
        step=attributes.get(semconv.REWARD_SPAN),
        value=_number(attributes.get(semconv.REWARD_VALUE), name, span.rollout_id),
    )


def _number(value: object, name: str, rollout_id: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool | int | float) and abs(value) <= sys.float_info.max:
        return float(value)
    raise RewardError(
        f"rollout {rollout_id} has the reward {name!r} = {value!r}; expected a finite number, True or "
        "False, or None for unscored: correct the reward function, or what the agent emits"
    )
