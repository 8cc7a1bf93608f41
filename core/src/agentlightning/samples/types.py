"""Training data: transitions, rows, and what became of each call."""

from __future__ import annotations

import enum
from typing import Literal

from agentlightning.records import Floats, Mode, Part, Record, Tokens

Level = Literal["transition", "trajectory"]


class Reason(enum.Enum):
    """Why a call is not trained on, or why a trajectory was split; the value is what people read."""

    FAILED_ROLLOUT = "its rollout failed"
    INCOMPLETE = "the call is incomplete (an error, or a stream that was not read to its end)"
    NO_TOKEN_IDS = "the model server returned no token ids"  # noqa: S105 - tokens of text
    NO_LOGPROBS = "the model server returned no log-probabilities"
    EMPTY_RESPONSE = "the model returned no token"
    EMPTY_PROMPT = "the prompt has no token"
    COUNT_MISMATCH = "the numbers of token ids, log-probabilities and reported tokens differ"
    OTHER_AGENT = "its agent is not trained"
    UNSCORED = "the rollout has no reward"
    OTHER_TEMPERATURE = "it was sampled at another temperature than the training's"
    PROMPT_TOO_LONG = "the prompt is longer than max_prompt_tokens"
    RESPONSE_TOO_LONG = "the response is longer than max_response_tokens"
    ROW_TOO_LONG = "its row would be longer than max_row_tokens"
    # Why a trajectory was split; the call itself is used.
    RETOKENISED = "the history was tokenised anew into other ids"
    HISTORY_EDITED = "the agent changed its history"
    OTHER_TRAJECTORY = "it continues no earlier call"
    WINDOW_FULL = "the window of merged calls is full"


class CreditRules(Part, frozen=True, kw_only=True):
    """How rewards meet calls.

    Attributes:
        reward_name: the reward dimension that counts.
        version: the version of rewards that counts.
        agents: names of the trained agents; None for all.
        temperature: the training's sampling temperature; calls at another are dropped. None keeps all.
        gamma: discount an agent's later turns give back to its earlier ones (1 = none).
        use_failed: make samples of failed rollouts too.
        need_reward: drop the calls of rollouts without a reward (off for SFT on all traces).
    """

    reward_name: str = "reward"
    version: str = "agent"
    agents: tuple[str, ...] | None = None
    temperature: float | None = None
    gamma: float = 1.0
    use_failed: bool = False
    need_reward: bool = True


class Limits(Part, frozen=True, kw_only=True):
    """Sizes in tokens above which a call is dropped or a row split; None for no limit.

    ``window`` is the largest number of calls merged into one row.
    """

    max_prompt_tokens: int | None = None
    max_response_tokens: int | None = None
    max_row_tokens: int | None = None
    window: int | None = None


class Transition(Record, frozen=True, kw_only=True):
    """One choice of one LLM call as training data.

    ``reward`` is what the credit rules gave this call: its own step rewards, discounted; the rollout's
    outcome is not part of it. ``dropped`` says why it is not to be trained on; ids are then whatever
    was recorded.
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


class Turn(Part, frozen=True, kw_only=True):
    """One call within a row: tokens ``start`` to ``end`` of ``response_ids`` were sampled by it."""

    seq: int
    start: int
    end: int
    reward: float | None = None
    model_version: int | None = None
    temperature: float | None = None
    finish_reason: str | None = None


class Row(Record, frozen=True, kw_only=True):
    """What the trainer computes on: one transition, or one trajectory with its turns marked.

    ``response_ids``, ``mask`` and ``logprobs`` have one length, always. ``mask`` is 1 on sampled
    tokens; the logprob of an unsampled token is 0.0. The weights of a rollout's rows add up to 1.
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


class Fidelity(Part, frozen=True, kw_only=True):
    """What became of the calls: nothing is dropped, split or cut without being counted here."""

    calls: int = 0
    used: int = 0
    merged: int = 0
    rows: int = 0
    sampled_tokens: int = 0
    trained_tokens: int = 0
    dropped: dict[str, int] = {}
    split: dict[str, int] = {}
    reward_conflicts: int = 0


class Fate(Part, frozen=True, kw_only=True):
    """What became of one call or one reward, in one line."""

    what: str
    fate: str
    seq: int | None = None
    row: int | None = None


class Explanation(Record, frozen=True, kw_only=True):
    """Why a rollout gave the rows it gave."""

    rollout_id: str
    attempt: int
    mode: Mode
    status: str
    reward: float | None
    reward_rule: str
    rows: int
    fates: tuple[Fate, ...]
    notes: tuple[str, ...] = ()
