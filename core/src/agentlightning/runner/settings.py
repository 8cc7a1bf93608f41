"""What a run asks of whoever works on it: kept with the run, so that runners anywhere can read it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from agentlightning.errors import AgentError
from agentlightning.records import Part, Run

KEPT_AS: Final = "for_runners"
"""The key of a run's config that holds its settings."""


class RunSettings(Part, frozen=True, kw_only=True):
    """How the agent is to be run in one run.

    Attributes:
        agent: ``"module:name"``; None where no other process could find it by a name.
        adapters: options by adapter name.
        trained_agents: whose LLM calls go to the run's model; None for all.
        prompts: resource name to the agent whose system prompt it replaces.
        strict: refuse LLM calls that nobody routed.
        has_reward_function: the run scores outputs itself, so a returned number is output only.
        variables: names of the environment variables the agent is run with. Their values, which are
            often keys, stay with whoever starts the workers.
    """

    agent: str | None = None
    adapters: dict[str, dict[str, Any]] = {}
    trained_agents: tuple[str, ...] | None = None
    prompts: dict[str, str] = {}
    strict: bool = False
    has_reward_function: bool = False
    variables: tuple[str, ...] = ()


def settings_of(run: Run) -> RunSettings:
    """The settings kept with a run; the defaults for one that nobody configured.

    Raises:
        AgentError: they cannot be read.
    """
    kept = run.config.get(KEPT_AS) if isinstance(run.config, dict) else None
    if kept is None:
        return RunSettings()
    try:
        return msgspec.convert(kept, RunSettings)
    except msgspec.ValidationError as error:
        raise AgentError(
            f"the settings for runners that run {run.run_id} was made with cannot be read ({error}); "
            "expected those of this version of agentlightning. Run its agent with the version that "
            "made it"
        ) from error
