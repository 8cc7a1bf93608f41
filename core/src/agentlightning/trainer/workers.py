"""The workers a configuration asks for: an executor, and what it runs."""

from __future__ import annotations

from msgspec.structs import replace

from agentlightning.agent import reference_to, single_turn
from agentlightning.config import Config, Elsewhere, describe, make_named, name_and_options
from agentlightning.executor import Executor
from agentlightning.plugins import plugins
from agentlightning.records import JSON, Run, to_builtins
from agentlightning.runner import KEPT_AS, RunnerSpec, RunSettings, settings_of
from agentlightning.trainer.absence import AWAY_S


def make_executor(config: Config) -> Executor:
    """The executor of ``runners``, not started.

    Raises:
        ConfigError: it is unknown, or does not take its options.
    """
    key = "runners.executor"
    name, options = name_and_options(config.runners.executor, key)
    return make_named(plugins().executors, key, name, options)


def make_settings(config: Config, *, has_reward_function: bool) -> RunSettings:
    """How the agent is to be run, by workers of this run and by those that others start."""
    return RunSettings(
        agent=name_of(config.agent),
        adapters=config.adapters,
        trained_agents=config.trained_agents,
        prompts=config.prompts,
        strict=config.strict,
        has_reward_function=has_reward_function,
        variables=tuple(sorted(config.runners.environment)),
    )


def kept(config: Config, settings: RunSettings) -> JSON:
    """The configuration and the settings as JSON, to be kept with the run."""
    described = describe(config)
    for_runners = to_builtins(replace(settings, adapters={}))  # adapters may hold what is no JSON
    return {**described, KEPT_AS: {**for_runners, "adapters": described["adapters"]}}


def changed_settings(run: Run, config: Config, settings: RunSettings) -> list[str]:
    """The settings that are not those kept with a run."""
    now = settings_of(replace(run, config=kept(config, settings)))
    before = settings_of(run)
    return [name for name in now.__struct_fields__ if getattr(now, name) != getattr(before, name)]


def name_of(agent: object) -> str | None:
    """``"module:name"`` of an agent; None where another process could not find it by one."""
    if isinstance(agent, str):
        return agent
    if isinstance(agent, Elsewhere):
        return None
    return reference_to(single_turn if agent is None else agent)


def make_spec(
    config: Config, *, run_id: str | None, serves_model: bool, settings: RunSettings
) -> RunnerSpec:
    """What each worker of a run does."""
    return RunnerSpec(
        store=config.store,
        run_id=run_id,
        agent=config.agent,
        settings=settings,
        serves_model=serves_model,
        environment=config.runners.environment,
        patience_s=AWAY_S,
    )
