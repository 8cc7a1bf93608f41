"""What an attempt's ending means: its outcome and the rewards that were returned."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from agentlightning.agent import Result, normalise_return
from agentlightning.llm_api import error_line, error_message
from agentlightning.recording.attempt import reward_span
from agentlightning.records import JSON, Outcome, OutcomeStatus, Span
from agentlightning.runner.execution import Ending
from agentlightning.store import Claim

logger = logging.getLogger("agentlightning.runner")


@dataclass(frozen=True)
class Kept:
    """What is stored of a value that an agent returned."""

    output: JSON
    rewards: Sequence[Span]


def as_kept(claim: Claim, ending: Ending, *, has_reward_function: bool) -> Ending:
    """The ending with its value as it is stored.

    A value that can't be kept, such as a reward that is NaN, is the agent's failure like any it raises.
    """
    if ending.reason != "returned":
        return ending
    value = ending.value
    if (
        has_reward_function
        and isinstance(value, Result)
        and (value.rewards or value.reward is not None)
    ):
        _warn_ignored()
    try:
        output, rewards = normalise_return(value, has_reward_function)
        spans = [reward_span(claim.key, it, name=name, source="returned") for name, it in rewards]
    except Exception as error:  # noqa: BLE001 - it ends this attempt with its reason, and nothing else
        return Ending("raised", error=error)
    return Ending("returned", Kept(output, spans))


def outcome_of(ending: Ending) -> tuple[Outcome, Sequence[Span]]:
    """The outcome of an attempt that ended in any way but lost, and its reward spans."""
    if isinstance(ending.value, Kept):
        return Outcome(status="succeeded", output=ending.value.output), ending.value.rewards
    assert ending.error is not None  # noqa: S101 - every other ending has one
    if ending.reason == "raised":
        return failed(ending.error), ()
    status: OutcomeStatus = "timed_out" if ending.reason == "timed_out" else "cancelled"
    return Outcome(status=status, error=error_message(ending.error)), ()


def failed(error: BaseException) -> Outcome:
    """A failed attempt, with the line people read; the traceback is in its root span."""
    return Outcome(status="failed", error=error_line(error))


@functools.cache
def _warn_ignored() -> None:
    logger.warning(
        "the agent returns rewards, but the run has a reward_function: the returned ones are ignored "
        "(said once)"
    )
