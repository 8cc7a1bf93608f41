"""Which call gets which step reward."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agentlightning.records import Span
from agentlightning.samples.calls import RecordedCall, enclosing_agent
from agentlightning.samples.rewards import RewardReading, read_rewards
from agentlightning.samples.types import CreditRules


class Credit(NamedTuple):
    """A step reward, its agent, and the call it went to; None if there was none to take it."""

    reading: RewardReading
    agent: str | None
    call: RecordedCall | None


def credit_rule(rules: CreditRules) -> str:
    """The rule in words, for a result that says how it came about."""
    rule = "step rewards go to the nearest earlier call of the same agent"
    return f"{rule}, and {rules.gamma:g} of it a turn to the calls before" if rules.gamma else rule


def assign_credit(
    spans: Sequence[Span], calls: Sequence[RecordedCall], rules: CreditRules
) -> list[Credit]:
    """Each step reward of the rules' name and version with the call it belongs to.

    A reward that names an LLM call's span belongs to that call. Any other goes to the last call of
    its agent that was over when the reward was given; one that names no agent, to the last call of
    any. A call that failed took no step and gets no reward.

    Args:
        spans: one attempt's spans.
        calls: the calls among them, in order.
        rules: ``reward_name`` and ``version`` say which rewards count.

    Raises:
        RewardError: a value is not a finite number.
    """
    by_id = {span.span_id: span for span in spans}
    done = [call for call in calls if call.call.complete]
    found = []
    for reading in read_rewards(spans):
        ours = (reading.name, reading.version) == (rules.reward_name, rules.version)
        if ours and not reading.is_outcome and reading.value is not None:
            agent = reading.agent or enclosing_agent(reading.span, by_id)
            found.append(Credit(reading, agent, _call_for(reading, agent, done)))
    return found


def step_rewards(
    credited: Iterable[Credit], calls: Sequence[RecordedCall], gamma: float
) -> dict[str, float]:
    """What each call got, by its span id; a call that got nothing is left out.

    ``r(t) + gamma * got(t + 1)`` over the complete calls of one agent, where ``r(t)`` adds up the
    rewards credited to call ``t``: the discounted return of Sutton and Barto, *Reinforcement
    Learning*, 3.3, per agent.
    """
    own: dict[str, float] = {}
    for reading, _, call in credited:
        if call is not None and reading.value is not None:
            own[call.span.span_id] = own.get(call.span.span_id, 0.0) + reading.value
    got: dict[str, float] = {}
    next_of: dict[str | None, float] = {}
    for span, _, agent in reversed([call for call in calls if call.call.complete]):
        later = gamma * next_of[agent] if gamma and agent in next_of else None
        if span.span_id in own or later is not None:
            got[span.span_id] = next_of[agent] = own.get(span.span_id, 0.0) + (later or 0.0)
    return got


def _call_for(
    reading: RewardReading, agent: str | None, done: Sequence[RecordedCall]
) -> RecordedCall | None:
    named = next((call for call in done if call.span.span_id == reading.step), None)
    if named is not None:
        return named
    given = reading.span.start_ns
    earlier = [
        call
        for call in done
        if call.span.start_ns < given and call.span.end_ns <= given and agent in (None, call.agent)
    ]
    return earlier[-1] if earlier else None
