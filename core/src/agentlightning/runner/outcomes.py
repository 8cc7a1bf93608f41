"""What an attempt's ending means: its outcome and the rewards that were returned."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence

from agentlightning.agent import Result, normalise_return
from agentlightning.recording.attempt import reward_span
from agentlightning.records import Outcome, OutcomeStatus, Span
from agentlightning.runner.execution import Ending
from agentlightning.store import Claim

logger = logging.getLogger("agentlightning.runner")


def outcome_of(
    claim: Claim, ending: Ending, *, has_reward_function: bool
) -> tuple[Outcome, Sequence[Span]]:
    """The outcome of an attempt that ended in any way but lost, and its reward spans."""
    if ending.reason == "returned":
        return _returned(claim, ending.value, has_reward_function=has_reward_function)
    if ending.reason == "raised":
        return failed(ending.error), ()
    status: OutcomeStatus = "timed_out" if ending.reason == "timed_out" else "cancelled"
    return Outcome(status=status, error=str(ending.error)), ()


def failed(error: BaseException | None) -> Outcome:
    """A failed attempt, with the line people read; the traceback is in its root span."""
    text = str(error)
    return Outcome(status="failed", error=": ".join(filter(None, (type(error).__name__, text))))


def _returned(
    claim: Claim, value: object, *, has_reward_function: bool
) -> tuple[Outcome, Sequence[Span]]:
    if (
        has_reward_function
        and isinstance(value, Result)
        and (value.rewards or value.reward is not None)
    ):
        _warn_ignored()
    try:
        output, rewards = normalise_return(value, has_reward_function)
        spans = [reward_span(claim.key, it, name=name, source="returned") for name, it in rewards]
    except Exception as error:  # noqa: BLE001 - a value that can't be kept is the agent's failure
        return failed(error), ()
    return Outcome(status="succeeded", output=output), spans


@functools.cache
def _warn_ignored() -> None:
    logger.warning(
        "the agent returns rewards, but the run has a reward_function: the returned ones are ignored "
        "(said once)"
    )
