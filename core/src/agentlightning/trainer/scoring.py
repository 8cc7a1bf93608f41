"""Scoring finished rollouts: the user's reward function, or the dataset's own answers."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from agentlightning import semconv
from agentlightning.agent import load_object
from agentlightning.config import Config
from agentlightning.errors import AgentError, ConfigError, RewardError
from agentlightning.recording.attempt import reward_span
from agentlightning.records import AGENT_VERSION, JSON, Rollout, Span
from agentlightning.runner.event_loop import shared_loop

logger = logging.getLogger("agentlightning.trainer")

_WITHOUT_ROLLOUT, _WITH_ROLLOUT = 2, 3


class Scorer:
    """Calls the reward function on finished rollouts, in the trainer's process, from any thread.

    ``f(task, output)`` or ``f(task, output, rollout)``, sync or async. None means unscored. A function
    that raises leaves the rollout unscored too, never taken for 0.0; one that gives something else than
    a number ends the run. All that is recorded with its reason, so that a number the agent gave itself
    does not step in, and ``agl explain`` tells it.

    Args:
        function: the reward function; None leaves rewards to the agent.
        version: what the rewards are recorded as.
        statuses: which rollouts are scored.

    Attributes:
        crashes: how often the function raised.
        refusal: that it first gave something that is no reward, if it did.
    """

    def __init__(
        self,
        function: Callable[..., Any] | None,
        version: str = AGENT_VERSION,
        *,
        statuses: Collection[str] = ("succeeded",),
    ) -> None:
        self._function = function
        self._arguments = 0 if function is None else _arguments_taken(function)
        self._statuses = statuses
        self._lock = threading.Lock()
        self.refusal: RewardError | None = None
        self.version = version
        self.crashes = 0

    def score(self, rollout: Rollout) -> Span | None:
        """The reward span of a rollout, or None when there is nothing to record."""
        if self._function is None or rollout.status not in self._statuses:
            return None
        arguments = (rollout.input, rollout.output, rollout)
        try:
            value = self._function(*arguments[: self._arguments])
            if inspect.isawaitable(value):
                value = asyncio.run_coroutine_threadsafe(_awaited(value), shared_loop()).result()
        except Exception as error:  # noqa: BLE001 - user code; one bad score must not end the run
            self._report_crash(rollout, error)
            return self._reward(rollout, None, failure=error)
        try:
            return self._reward(rollout, value)
        except RewardError as error:
            self.refusal = self.refusal or error
            return self._reward(rollout, None, failure=error)

    def raise_refusal(self) -> None:
        """End the run if the function gave something that is no reward.

        Raises:
            RewardError: the first one of them; the message names the rollout.
        """
        if self.refusal is not None:
            raise self.refusal

    def _report_crash(self, rollout: Rollout, error: Exception) -> None:
        """With a traceback the first time only: a function that fails once often fails always."""
        with self._lock:
            self.crashes += 1
            crashes = self.crashes
        logger.warning(
            "reward_function raised %s: %s on rollout %s, which is left unscored (%d so far)",
            type(error).__name__,
            error,
            rollout.rollout_id,
            crashes,
            exc_info=error if crashes == 1 else None,
        )

    def _reward(self, rollout: Rollout, value: object, failure: Exception | None = None) -> Span:
        return reward_span(rollout.key, value, source="function", version=self.version, failure=failure)


def is_scored(spans: Iterable[Span], version: str = AGENT_VERSION) -> bool:
    """Whether a reward function gave the attempt of these spans its score, and did not fail."""
    return any(
        span.kind == "reward"
        and span.attributes.get(semconv.REWARD_SOURCE) == "function"
        and span.attributes.get(semconv.REWARD_VERSION, AGENT_VERSION) == version
        and span.status == "ok"
        for span in spans
    )


async def _awaited(value: Awaitable[Any]) -> Any:
    """A coroutine of anything that can be awaited."""
    return await value


def reward_function(
    config: Config, tasks: Sequence[JSON], validation: Sequence[JSON]
) -> tuple[Callable[..., Any] | None, str]:
    """The function that scores a run's rollouts, and a line that says which.

    The configuration's (imported when given as ``"module:name"``); for the built-in agent equality
    with the ``answer`` of the rows it is run on; else none: the agent's own. It is run on the
    validation rows, and on the training rows by an algorithm that learns from rewards.

    Raises:
        ConfigError: it is no function, or the built-in agent would never get a reward.
    """
    given, version = config.reward_function, config.reward_version
    if given is not None:
        named = given if isinstance(given, str) else _name(given)
        return load_reward_function(given), f"rewards: {named}, as version {version!r}"
    needs_rewards = getattr(config.options, "needs_rewards", False)
    run_on = [*(tasks if needs_rewards else ()), *validation]
    if config.agent is not None and version == AGENT_VERSION:
        return None, "rewards: what the agent returns or emits"
    if config.agent is not None:
        if needs_rewards:
            raise ConfigError(
                f"reward_version: {version!r} is not that of the agent's own rewards, which is "
                f"{AGENT_VERSION!r}, so the run would have none; give the reward_function whose values "
                "are to be recorded as that version, or leave it out"
            )
        return None, f"rewards: those that were recorded as version {version!r}"
    if run_on and all(isinstance(task, Mapping) and "answer" in task for task in run_on):
        return equals_answer, "rewards: 1 where the output equals the row's `answer`, else 0"
    if not needs_rewards:
        return None, "rewards: none are needed"
    raise ConfigError(
        "reward_function: none given, and not every row has an `answer` to compare the built-in "
        "agent's output with; give one of them"
    )


def load_reward_function(given: object, key: str = "reward_function") -> Callable[..., Any]:
    """The function itself, imported if it is given as ``"module:name"``.

    Args:
        given: what a user named.
        key: under which key or option, for messages.

    Raises:
        ConfigError: it is no function, or takes other arguments.
    """
    try:
        function = load_object(given) if isinstance(given, str) else given
    except AgentError as error:
        raise ConfigError(f"{key}: {error}") from error
    if not callable(function):
        raise ConfigError(
            f"{key}: got a {type(function).__name__}; expected a callable or 'module:name'"
        )
    _arguments_taken(function)
    return function


def equals_answer(task: Mapping[str, JSON], output: JSON) -> float:
    """1.0 if the output is the row's answer, but for case, surrounding space and a full stop."""
    return float(_normalised(output) == _normalised(task["answer"]))


def _normalised(value: JSON) -> str:
    return " ".join(str(value).split()).rstrip(".").casefold()


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _arguments_taken(function: Callable[..., Any]) -> int:
    """How many of task, output and rollout it is called with: all three if it takes them, or two."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions written in C tell nothing
        return _WITHOUT_ROLLOUT
    for count in (_WITH_ROLLOUT, _WITHOUT_ROLLOUT):
        with suppress(TypeError):
            signature.bind(*range(count))
            return count
    raise ConfigError(
        f"reward_function: {_name(function)} takes {signature}; expected f(task, output) or "
        "f(task, output, rollout)"
    )
