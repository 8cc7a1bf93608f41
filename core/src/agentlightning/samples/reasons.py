"""Why a call is not trained on, and why a trajectory was split."""

from __future__ import annotations

import enum


class Reason(enum.Enum):
    """Why a call is not trained on, or why a trajectory was split; the value is what people read."""

    # The call is dropped.
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
    STALE = "it was not sampled by the current weights"
    PROMPT_TOO_LONG = "the prompt is longer than max_prompt_tokens"
    RESPONSE_TOO_LONG = "the response is longer than max_response_tokens"
    ROW_TOO_LONG = "its row would be longer than max_row_tokens"
    # The call is used, in a row of its own.
    RETOKENISED = "an earlier reply came back as other token ids"
    HISTORY_EDITED = "the history was changed, by the agent or by the chat template"
    SAME_PROMPT = "an earlier prompt, or the beginning of one, was asked again"
    DIFFERENT_AGENT = "it is another agent's conversation"
    OTHER_TRAJECTORY = "it continues no earlier call"
    WINDOW_FULL = "the window of merged calls is full"

    @property
    def key(self) -> str:
        """The short name that counts and metrics go by, for example ``no_token_ids``."""
        return self.name.lower()

    @classmethod
    def of(cls, key: str) -> Reason:
        """The reason of that key; a ``KeyError`` for any other."""
        return cls[key.upper()]
