"""Every error this project raises on purpose, one class a boundary.

A message says what happened, what was expected and what to do. Code outside the core raises plain
Python errors; the boundary that called it wraps them (``raise … from``).
"""

from __future__ import annotations

from typing import Final

EXIT_INTERRUPTED: Final = 130
"""Exit code of a program that Ctrl+C ended: 128 and the number of the signal."""


class AgentLightningError(Exception):
    """Base of every error raised on purpose by agentlightning."""


# --- plug-ins ---------------------------------------------------------------------------------


class PluginError(AgentLightningError):
    """A plug-in could not be loaded or does not fit this version of the core."""


class UnknownName(PluginError, LookupError):
    """No plug-in offers the name that was asked for."""


# --- configuration ----------------------------------------------------------------------------


class ConfigError(AgentLightningError, ValueError):
    """The configuration cannot be used as it stands; nothing has been started."""


class DatasetError(ConfigError):
    """A dataset is empty, unreadable or has rows of the wrong shape."""


# --- store ------------------------------------------------------------------------------------


class StoreError(AgentLightningError):
    """Base of the errors a store raises; nothing was half written."""


class UnknownRun(StoreError, LookupError):
    """The store has no run of that id."""


class UnknownRollout(StoreError, LookupError):
    """The store has no rollout of that id."""


class UnknownAttempt(StoreError, LookupError):
    """The rollout has no attempt of that number."""


class UnknownResources(StoreError, LookupError):
    """The run has no resources of that version."""


class StaleAttempt(StoreError):
    """The attempt's lease was lost or it is already over; its result is not wanted any more."""


class InvalidTransition(StoreError):
    """The state machine does not allow this change of status."""


class KeyReused(StoreError):
    """An idempotency key came again with another body."""


class StoreUnavailable(StoreError):
    """The store could not be reached or opened."""


class StoreAway(StoreUnavailable):
    """The store is away for now, being restarted perhaps: the same call may do later what it did not.

    Raised where waiting can help by itself. Every write may be made again, under its key if it has one.
    """


class StoreClosed(StoreUnavailable):
    """The store was closed, or opened before a fork: trying again with this object cannot help."""


class Unauthorized(StoreError):
    """A store behind a server was asked without a token it knows."""


class Forbidden(StoreError):
    """The token is known, and not good for what was asked."""


class LimitExceeded(StoreError):
    """A size limit of the store was exceeded."""


class SchemaMismatch(StoreError):
    """The store was written by a version of agentlightning that this one cannot read."""


class DamagedRecord(StoreError):
    """What is stored does not fit together: something else changed it, or the file is broken."""


class ExchangeError(AgentLightningError):
    """A run cannot be exported there, or a file is none that can be imported."""


class BadValue(AgentLightningError, ValueError):
    """A value that must not be recorded: not JSON, NaN, or of the wrong type."""


# --- recording --------------------------------------------------------------------------------


class UnroutedCall(AgentLightningError):
    """Strict mode: an LLM call was made that no route was decided for."""


class RolloutCancelled(AgentLightningError):
    """The attempt timed out or was cancelled; raised from its next LLM call so that it ends."""


class MissingKey(AgentLightningError):
    """A call to a server that the run does not serve was made without an API key."""


class SeamError(AgentLightningError):
    """A client library moved the methods that recording stands on."""


class ModelCallFailed(AgentLightningError):
    """``emit`` got no usable reply from the model."""


# --- serving and running ----------------------------------------------------------------------


class EngineError(AgentLightningError):
    """An engine cannot serve this model or load these weights."""


class ServerError(AgentLightningError):
    """A server could not be started: the port is in use or did not answer in time."""


class AgentError(AgentLightningError):
    """What was given as an agent is not one, or does not fit the executor."""


class RewardError(AgentLightningError, ValueError):
    """A reward is not a finite number."""


class AlgorithmError(AgentLightningError):
    """An algorithm cannot go on; what was recorded so far is kept."""


class NoSamples(AlgorithmError):
    """A whole batch gave nothing to train on; the message counts the reasons."""


class Interrupted(AgentLightningError):
    """The run was interrupted; what is recorded stays, and the run can be resumed."""


class RunInterrupted(SystemExit, KeyboardInterrupt):
    """Ctrl+C ended a run; what :meth:`Trainer.fit` raises once everything is saved and stopped.

    Caught like any ``KeyboardInterrupt``. A script that does not catch it ends as by ``sys.exit``, with
    the exit code that shells give to Ctrl+C and without a traceback: nothing went wrong.
    """

    def __init__(self) -> None:
        super().__init__(EXIT_INTERRUPTED)


class BudgetExhausted(AlgorithmError):
    """More was asked for than the run's budget has left."""


class Deadline(AgentLightningError, TimeoutError):
    """A wait reached its deadline; the message says what was waited for."""
