"""Training data: transitions, rows, and what became of each call."""

from __future__ import annotations

from typing import Final, Literal

from agentlightning.records import AGENT_VERSION, Floats, Mode, Part, Record, RewardSource, Tokens
from agentlightning.samples.reasons import Reason

Level = Literal["transition", "trajectory"]


class CreditRules(Part, frozen=True, kw_only=True):
    """How rewards meet calls.

    Attributes:
        reward_name: the reward dimension that counts.
        version: the version of rewards that counts.
        agents: regular expressions; an agent is trained if one is found in its name (``re.search``:
            ``"write"`` also takes ``"rewrite"``, ``"^write$"`` does not). None for all agents.
            :func:`~agentlightning.samples.exact_agents` turns names into such expressions.
        temperature: the training's sampling temperature; calls at another, or at none that is
            known, are dropped. None keeps all.
        gamma: how much of what an agent's next call got flows back to the call before it: 0 leaves
            each step reward with its own call, 1 gives the undiscounted sum of those to come.
        use_failed: make samples of failed rollouts too.
        need_reward: drop the calls of rollouts without any reward (off for SFT on all traces).
        need_logprobs: drop calls whose log-probabilities the model server did not return.
    """

    reward_name: str = "reward"
    version: str = AGENT_VERSION
    agents: tuple[str, ...] | None = None
    temperature: float | None = None
    gamma: float = 0.0
    use_failed: bool = False
    need_reward: bool = True
    need_logprobs: bool = False


class Limits(Part, frozen=True, kw_only=True):
    """Sizes above which a call is dropped or a row split; None for no limit. Nothing is ever cut.

    Attributes:
        max_prompt_tokens: of a row's prompt, which is what precedes its first sampled token. A call
            that continues a row adds nothing to that prompt.
        max_response_tokens: of one call's response, however many calls its row has.
        max_row_tokens: of a row's prompt and everything after it. A call that alone makes its row
            longer is dropped.
        window: the largest number of calls merged into one row; the next one starts a new row.
    """

    max_prompt_tokens: int | None = None
    max_response_tokens: int | None = None
    max_row_tokens: int | None = None
    window: int | None = None


NO_LIMITS: Final = Limits()


class Transition(Record, frozen=True, kw_only=True):
    """One choice of one LLM call as training data.

    ``reward`` is what the credit rules gave this call: its own step rewards, and the discounted ones
    of its agent's later calls; the rollout's outcome is not part of it. ``dropped`` says why it is
    not to be trained on, ``detail`` adds what is known (the model server's error, the two numbers
    that differ); ids are then whatever was recorded. ``span_id`` is the call's span.
    """

    rollout_id: str
    attempt: int
    seq: int
    choice: int
    prompt_ids: Tokens
    response_ids: Tokens
    group_id: str | None = None
    agent: str | None = None
    logprobs: Floats | None = None
    model_version: int | None = None
    temperature: float | None = None
    finish_reason: str | None = None
    reward: float | None = None
    dropped: Reason | None = None
    detail: str = ""
    span_id: str = ""


class Turn(Part, frozen=True, kw_only=True):
    """One call within a row: tokens ``start`` to ``end`` of ``response_ids`` were sampled by it."""

    seq: int
    start: int
    end: int
    choice: int = 0
    reward: float | None = None
    model_version: int | None = None
    temperature: float | None = None
    finish_reason: str | None = None


class Row(Record, frozen=True, kw_only=True):
    """What the trainer computes on: one transition, or one trajectory with its turns marked.

    ``response_ids``, ``mask`` and ``logprobs`` have one length, always. ``mask`` is 1 on sampled
    tokens; the logprob of an unsampled token is 0.0. ``logprobs`` is None if any turn has none. The
    weights of a rollout's rows add up to 1, each in proportion to its turns, so that a call weighs
    the same at either level.
    """

    rollout_id: str
    attempt: int
    prompt_ids: Tokens
    response_ids: Tokens
    mask: bytes
    turns: tuple[Turn, ...]
    group_id: str | None = None
    agent: str | None = None
    logprobs: Floats | None = None
    weight: float = 1.0


class OutcomeReward(Part, frozen=True, kw_only=True):
    """A rollout's outcome, and how it was chosen.

    Attributes:
        value: None = unscored, never 0.0.
        rule: the rule that chose it, in words.
        source: where it came from; None if no reward was recorded.
        span_id: the reward span it was read from.
        conflicts: rewards of the same name that said something else and were overruled.
    """

    value: float | None
    rule: str
    source: RewardSource | None = None
    span_id: str | None = None
    conflicts: int = 0


class Fidelity(Part, frozen=True, kw_only=True):
    """What became of the calls: nothing is dropped or split without being counted here.

    Reports add up (``sum(reports, Fidelity())``), over the rollouts of a step or the steps of a run.

    Attributes:
        calls: replies recorded; a call with n choices counts n times. ``used`` plus everything in
            ``dropped`` is ``calls``.
        merged: used calls that continue a row; ``used - merged`` is ``rows``.
        sampled_tokens: tokens of all replies; ``trained_tokens``: those trained on.
        dropped: calls by :attr:`Reason.key`.
        split: rows, but the first of each attempt, by the reason that started them.
        scored: rollouts with an outcome; ``unscored``: those without.
        reward_conflicts: rewards that said something else than the outcome of their rollout.
    """

    calls: int = 0
    used: int = 0
    merged: int = 0
    rows: int = 0
    sampled_tokens: int = 0
    trained_tokens: int = 0
    dropped: dict[str, int] = {}
    split: dict[str, int] = {}
    scored: int = 0
    unscored: int = 0
    reward_conflicts: int = 0

    def __add__(self, other: Fidelity) -> Fidelity:
        """Both reports as one."""
        return Fidelity(
            calls=self.calls + other.calls,
            used=self.used + other.used,
            merged=self.merged + other.merged,
            rows=self.rows + other.rows,
            sampled_tokens=self.sampled_tokens + other.sampled_tokens,
            trained_tokens=self.trained_tokens + other.trained_tokens,
            dropped=_sum(self.dropped, other.dropped),
            split=_sum(self.split, other.split),
            scored=self.scored + other.scored,
            unscored=self.unscored + other.unscored,
            reward_conflicts=self.reward_conflicts + other.reward_conflicts,
        )


def _sum(left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
    return {key: left.get(key, 0) + right.get(key, 0) for key in left | right}


class Fate(Part, frozen=True, kw_only=True):
    """What became of one call or one reward, in one line; ``row`` counts from 1."""

    what: str
    fate: str
    seq: int | None = None
    row: int | None = None


class Explanation(Record, frozen=True, kw_only=True):
    """Why a rollout gave the rows it gave.

    Attributes:
        reward: the outcome; None = unscored.
        reward_rule: how the outcome was chosen. credit_rule: how step rewards met calls.
        fates: one for each call, choice of a call, and reward.
        notes: what a person should know or do about it, most pressing first.
        fidelity: the same in numbers.
    """

    rollout_id: str
    attempt: int
    mode: Mode
    status: str
    reward: float | None
    reward_rule: str
    rows: int
    fates: tuple[Fate, ...]
    notes: tuple[str, ...] = ()
    credit_rule: str = ""
    level: Level = "transition"
    fidelity: Fidelity = Fidelity()
