"""Scoring finished rollouts: the user's reward function, or the dataset's own answers."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agentlightning import semconv
from agentlightning.agent import load_object
from agentlightning.config import Config
from agentlightning.errors import ConfigError
from agentlightning.recording.attempt import reward_span
from agentlightning.records import JSON, Rollout, Span

logger = logging.getLogger("agentlightning.trainer")

_WITH_ROLLOUT = 3


class Scorer:
    """Calls the reward function on finished rollouts, in the trainer's process.

    ``f(task, output)`` or ``f(task, output, rollout)``. None means unscored. A function that raises
    leaves the rollout unscored too, logged with its id and counted, never taken for 0.0. Either way
    that is recorded, so that a number the agent gave itself does not step in.
    """

    def __init__(self, function: Callable[..., Any] | None) -> None:
        self._function = function
        self._takes_rollout = function is not None and _positional_arguments(function) >= _WITH_ROLLOUT
        self.crashed = 0

    def score(self, rollout: Rollout) -> Span | None:
        """The reward span of a rollout that succeeded, or None when there is nothing to record."""
        if self._function is None or rollout.status != "succeeded":
            return None
        arguments = (rollout.input, rollout.output, rollout)
        try:
            value = self._function(*arguments[: _WITH_ROLLOUT if self._takes_rollout else 2])
        except Exception:  # the user's code may raise anything; one bad score must not end the run
            self.crashed += 1
            logger.exception("reward_function raised on rollout %s: left unscored", rollout.rollout_id)
            value = None
        return reward_span(rollout.key, value, name="reward", source="function")


def is_scored(spans: Iterable[Span]) -> bool:
    """Whether a reward function gave the attempt of these spans its score."""
    return any(
        span.kind == "reward" and span.attributes.get(semconv.REWARD_SOURCE) == "function"
        for span in spans
    )


def reward_function(config: Config, tasks: Sequence[JSON]) -> tuple[Callable[..., Any] | None, str]:
    """The function that scores a run's rollouts, and a line that says which.

    The configuration's (imported when given as ``"module:name"``); for the built-in agent under an
    algorithm that learns from rewards, equality with the rows' ``answer``; else none: the agent's own.

    Raises:
        ConfigError: it is no function, or the built-in agent would never get a reward.
    """
    given = config.reward_function
    if given is not None:
        function = load_object(given) if isinstance(given, str) else given
        if not callable(function):
            raise ConfigError(
                f"reward_function: got a {type(function).__name__}; expected a callable or "
                "'module:name'"
            )
        return function, f"rewards: {given if isinstance(given, str) else _name(function)}"
    needs_rewards = getattr(config.options, "needs_rewards", False)
    if config.agent is not None or not needs_rewards:
        return None, "rewards: what the agent returns or emits"
    if all(isinstance(task, Mapping) and "answer" in task for task in tasks):
        return equals_answer, "rewards: 1 where the output equals the row's `answer`, else 0"
    raise ConfigError(
        "reward_function: none given, and not every row has an `answer` to compare the built-in "
        "agent's output with; give one of them"
    )


def equals_answer(task: Mapping[str, JSON], output: JSON) -> float:
    """1.0 if the output is the row's answer, but for case, surrounding space and a full stop."""
    return float(_normalised(output) == _normalised(task["answer"]))


def _normalised(value: JSON) -> str:
    return " ".join(str(value).split()).rstrip(".").casefold()


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _positional_arguments(function: Callable[..., Any]) -> int:
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return _WITH_ROLLOUT
    positional = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    return sum(parameter.kind in positional for parameter in parameters)
