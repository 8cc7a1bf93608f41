"""The workers a configuration asks for: an executor, and what it runs."""

from __future__ import annotations

from agentlightning.config import Config, make_named, name_and_options
from agentlightning.executor import Executor
from agentlightning.plugins import plugins
from agentlightning.runner import RunnerSpec


def make_executor(config: Config) -> Executor:
    """The executor of ``runners``, not started.

    Raises:
        ConfigError: it is unknown, or does not take its options.
    """
    key = "runners.executor"
    name, options = name_and_options(config.runners.executor, key)
    return make_named(plugins().executors, key, name, options)


def make_spec(
    config: Config, *, run_id: str | None, serves_model: bool, has_reward_function: bool
) -> RunnerSpec:
    """What each worker of a run does."""
    return RunnerSpec(
        store=config.store,
        run_id=run_id,
        agent=config.agent,
        adapters=config.adapters,
        trained_agents=config.trained_agents,
        prompts=config.prompts,
        strict=config.strict,
        has_reward_function=has_reward_function,
        serves_model=serves_model,
        environment=config.runners.environment,
    )
