"""What became of every call and reward of a rollout, in lines a person reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from agentlightning.records import Rollout, Span
from agentlightning.samples.calls import RecordedCall, final_spans, recorded_calls
from agentlightning.samples.credit import Credit, assign_credit, credit_rule
from agentlightning.samples.merging import Placement, fidelity, place
from agentlightning.samples.notes import notes
from agentlightning.samples.reasons import Reason
from agentlightning.samples.rewards import RewardReading, coverage, outcome_reward, read_rewards
from agentlightning.samples.transitions import transitions
from agentlightning.samples.types import (
    NO_LIMITS,
    CreditRules,
    Explanation,
    Fate,
    Level,
    Limits,
    OutcomeReward,
)

_SHOWN: Final = 5


def explain(
    rollout: Rollout,
    spans: Sequence[Span],
    rules: CreditRules,
    limits: Limits = NO_LIMITS,
    level: Level = "transition",
) -> Explanation:
    """What became of every call and reward of the rollout's latest attempt, and what to do about it.

    Args:
        rollout: the rollout to explain; it need not be over.
        spans: its spans.
        rules: as for :func:`transitions`.
        limits: as for :func:`rows`.
        level: as for :func:`rows`.

    Raises:
        RewardError: a reward is not a finite number.
        ConfigError: ``rules.agents`` holds something that is not a regular expression.
    """
    mine = final_spans(rollout, spans)
    calls = recorded_calls(mine)
    chosen = outcome_reward(rollout, mine, rules)
    placements, built = place(transitions(rollout, mine, rules), level, limits)
    credited = {credit.reading.span.span_id: credit for credit in assign_credit(mine, calls, rules)}
    fates = [_fate_of_call(placement, calls) for placement in placements]
    fates += [_fate_of_reward(reading, chosen, credited, rules) for reading in read_rewards(mine)]
    return Explanation(
        rollout_id=rollout.rollout_id,
        attempt=rollout.attempt,
        mode=rollout.mode,
        status=rollout.status,
        reward=chosen.value,
        reward_rule=chosen.rule,
        credit_rule=credit_rule(rules),
        level=level,
        rows=len(built),
        fates=tuple(fates),
        notes=tuple(notes(rollout, spans, rules, calls, placements)),
        fidelity=fidelity(placements, built) + coverage([chosen]),
    )


def why_empty(explanations: Iterable[Explanation]) -> str:
    """Why these rollouts gave no row: the reasons counted, the rollouts named, what to do.

    For the message of a batch in which nothing is left to train on.
    """
    every = list(explanations)
    dropped: Counter[str] = Counter()
    for one in every:
        dropped.update(one.fidelity.dropped)
    lines = [
        f"{len(every)} rollouts gave nothing to train on: {_shown([one.rollout_id for one in every])}"
    ]
    lines += [f"  {count} calls: {Reason.of(key).value}" for key, count in dropped.most_common()]
    advice = Counter(_for_all(note, one) for one in every for note in one.notes)
    lines += [
        f"  {note} ({count} of {len(every)} rollouts)" for note, count in advice.most_common(_SHOWN)
    ]
    return "\n".join(lines)


def _fate_of_call(placement: Placement, calls: Sequence[RecordedCall]) -> Fate:
    one = placement.transition
    call = next(item.call for item in calls if item.span.span_id == one.span_id)
    who = ", ".join(part for part in (one.agent, call.model) if part)
    choice = f" choice {one.choice + 1}" if len(call.choices) > 1 else ""
    what = f"call {one.seq}{choice} ({who})"
    if placement.row is None:
        reason = placement.dropped.value if placement.dropped else ""
        detail = f": {one.detail}" if one.detail else ""
        return Fate(what=what, fate=f"dropped: {reason}{detail}", seq=one.seq)
    number = placement.row + 1
    got = "" if one.reward is None else f"; step reward {one.reward:g}"
    if placement.merged:
        fate = f"merged into row {number}{got}"
    elif placement.split:
        fate = f"used: begins row {number}, because {placement.split.value}{got}"
    else:
        fate = f"used: row {number}{got}"
    return Fate(what=what, fate=fate, seq=one.seq, row=number)


def _fate_of_reward(
    reading: RewardReading, chosen: OutcomeReward, credited: Mapping[str, Credit], rules: CreditRules
) -> Fate:
    value = "without a value" if reading.value is None else f"{reading.value:g}"
    what = f"reward {reading.name!r} {value} ({reading.source})"
    credit = credited.get(reading.span.span_id)
    seq = credit.call.call.seq if credit and credit.call else None
    if reading.version != rules.version:
        fate = f"not used: version {reading.version!r}, not {rules.version!r}"
    elif reading.name != rules.reward_name:
        fate = f"not used: the rules ask for {rules.reward_name!r}"
    elif reading.is_outcome:
        is_chosen = reading.span.span_id == chosen.span_id
        fate = (
            f"the rollout's outcome: {chosen.rule}" if is_chosen else f"overruled: {chosen.rule} counts"
        )
    elif credit is None:
        fate = "not used: a step reward without a value"
    elif seq is None:
        fate = f"not used: no earlier call of {credit.agent or 'any agent'} is over"
    else:
        fate = f"credited to call {seq}"
    return Fate(what=what, fate=fate, seq=seq)


def _for_all(note: str, one: Explanation) -> str:
    """A note without the rollout's own name, so that the same one of others counts as the same."""
    return note.replace(f"rollout {one.rollout_id}", "the rollout")


def _shown(names: Sequence[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
