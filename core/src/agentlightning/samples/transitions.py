"""From LLM calls to transitions: one for each reply, usable or with the reason why not."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from agentlightning.errors import ConfigError
from agentlightning.records import Choice, LLMCall, Rollout, Span, Tokens
from agentlightning.samples.calls import RecordedCall, final_spans, recorded_calls
from agentlightning.samples.credit import assign_credit, step_rewards
from agentlightning.samples.reasons import Reason
from agentlightning.samples.rewards import outcome
from agentlightning.samples.types import CreditRules, Transition

_NO_REPLY = Choice()


def exact_agents(names: Iterable[str]) -> tuple[str, ...]:
    """Expressions for ``CreditRules.agents`` that match these names and no other."""
    return tuple(f"^{re.escape(name)}$" for name in names)


def agent_matcher(patterns: Sequence[str] | None) -> Callable[[str | None], bool]:
    """Whether an agent of that name is trained; an unknown agent is only where all are.

    Raises:
        ConfigError: a pattern is not a regular expression.
    """
    if patterns is None:
        return lambda _: True
    try:
        compiled = [re.compile(pattern) for pattern in patterns]
    except re.error as error:
        raise ConfigError(
            f"agents holds {error.pattern!r}, which is not a regular expression ({error}); "
            "escape a literal name with re.escape, or use exact_agents"
        ) from error
    return lambda name: name is not None and any(item.search(name) for item in compiled)


def transitions(rollout: Rollout, spans: Sequence[Span], rules: CreditRules) -> list[Transition]:
    """One transition for each choice of each LLM call of the final attempt, in the order of ``seq``.

    None is left out: a call that cannot be trained on comes with ``dropped`` set, and a call without
    any reply gives one dropped transition.

    Args:
        rollout: whose latest attempt counts.
        spans: its spans, of any kind and in any order.
        rules: which agents, rewards and sampling are wanted.

    Raises:
        RewardError: a reward is not a finite number.
        ConfigError: ``rules.agents`` holds something that is not a regular expression.
    """
    mine = final_spans(rollout, spans)
    calls = recorded_calls(mine)
    got = step_rewards(assign_credit(mine, calls, rules), calls, rules.gamma)
    judge = _Judge(
        rules,
        agent_matcher(rules.agents),
        failed=rollout.status in ("failed", "cancelled") and not rules.use_failed,
        unscored=rules.need_reward and not got and outcome(rollout, mine, rules) is None,
    )
    return [
        _transition(rollout, item, choice, got.get(item.span.span_id), judge.verdict(item, choice))
        for item in calls
        for choice in item.call.choices or (_NO_REPLY,)
    ]


class _Verdict(NamedTuple):
    dropped: Reason | None = None
    detail: str = ""


class _Judge(NamedTuple):
    """Decides whether a reply is usable; the first reason that holds, from call to rollout."""

    rules: CreditRules
    is_trained: Callable[[str | None], bool]
    failed: bool
    unscored: bool

    def verdict(self, item: RecordedCall, choice: Choice) -> _Verdict:
        if not self.is_trained(item.agent):
            return _Verdict(Reason.OTHER_AGENT, repr(item.agent) if item.agent else "no agent known")
        if not item.call.complete or not item.call.choices:
            return _Verdict(Reason.INCOMPLETE, item.call.error or "")
        tokens = self._tokens(item.call, choice)
        if tokens.dropped:
            return tokens
        if self.failed:
            return _Verdict(Reason.FAILED_ROLLOUT)
        if self._is_other_temperature(item.call.temperature):
            return _Verdict(Reason.OTHER_TEMPERATURE, self._temperatures(item.call.temperature))
        return _Verdict(Reason.UNSCORED) if self.unscored else _Verdict()

    def _tokens(self, call: LLMCall, choice: Choice) -> _Verdict:
        if call.prompt_ids is None or choice.response_ids is None:
            return _Verdict(Reason.NO_TOKEN_IDS, call.base_url)
        if not call.prompt_ids:
            return _Verdict(Reason.EMPTY_PROMPT)
        if not choice.response_ids:
            return _Verdict(Reason.EMPTY_RESPONSE, choice.finish_reason or "")
        if choice.logprobs is None and self.rules.need_logprobs:
            return _Verdict(Reason.NO_LOGPROBS, call.base_url)
        mismatch = _mismatch(call, call.prompt_ids, choice)
        return _Verdict(Reason.COUNT_MISMATCH, mismatch) if mismatch else _Verdict()

    def _is_other_temperature(self, used: float | None) -> bool:
        wanted = self.rules.temperature
        return wanted is not None and (used is None or not math.isclose(used, wanted, abs_tol=1e-6))

    def _temperatures(self, used: float | None) -> str:
        return f"{'unknown' if used is None else f'{used:g}'}, not {self.rules.temperature:g}"


def _mismatch(call: LLMCall, prompt_ids: Tokens, choice: Choice) -> str:
    """Which two counts differ, in words; empty if all that are known agree."""
    if choice.logprobs is not None and len(choice.logprobs) != len(choice.response_ids or ()):
        return f"{len(choice.response_ids or ())} token ids, {len(choice.logprobs)} log-probabilities"
    usage = call.usage or {}
    sampled = sum(len(one.response_ids or ()) for one in call.choices)
    reported = usage.get("completion_tokens", usage.get("output_tokens"))
    if reported is not None and reported != sampled:
        return f"{sampled} token ids in the reply, {reported} reported"
    reported = usage.get("prompt_tokens")
    if reported is not None and reported != len(prompt_ids):
        return f"{len(prompt_ids)} token ids in the prompt, {reported} reported"
    return ""


def _transition(
    rollout: Rollout, item: RecordedCall, choice: Choice, reward: float | None, verdict: _Verdict
) -> Transition:
    call = item.call
    return Transition(
        rollout_id=rollout.rollout_id,
        attempt=rollout.attempt,
        seq=call.seq,
        choice=choice.index,
        prompt_ids=call.prompt_ids if call.prompt_ids is not None else Tokens(),
        response_ids=choice.response_ids if choice.response_ids is not None else Tokens(),
        group_id=rollout.group_id,
        agent=item.agent,
        logprobs=choice.logprobs,
        model_version=call.model_version,
        temperature=call.temperature,
        finish_reason=choice.finish_reason,
        reward=reward,
        dropped=verdict.dropped,
        detail=verdict.detail,
        span_id=item.span.span_id,
    )
