"""What can be found wrong before a store is opened: nothing is made, started or spent here."""

from __future__ import annotations

from collections.abc import Sequence

from agentlightning.agent import conversation_for, require_module
from agentlightning.config import Config, Elsewhere, make_named, named_by, wrap_resources
from agentlightning.errors import AgentError, DatasetError
from agentlightning.plugins import plugins
from agentlightning.records import JSON, LLM
from agentlightning.trainer.engines import make_engine
from agentlightning.trainer.workers import make_executor, make_settings, make_spec, name_of


def check_run(config: Config, train: Sequence[JSON], val: Sequence[JSON]) -> None:
    """Make what the configuration names, as far as that costs nothing, and let go of it.

    Raises:
        ConfigError: something cannot be made, or does not take its options.
        AgentError: the agent cannot be run.
        AgentLightningError: what the algorithm's own ``check`` refuses.
    """
    for name, options in config.adapters.items():
        make_named(plugins().adapters, f"adapters.{name}", name, options)
    _check_rows(config, train, val)
    _check_agent(config)
    with named_by("algorithm"):
        algorithm = plugins().algorithms.get(config.algorithm)(config.options)
    if config.engine is not None or (_serves(config) and _needs_rewards(config)):
        make_engine(config)
    algorithm.check(config, train, val)


def _check_agent(config: Config) -> None:
    """See to it that workers will be able to make the agent, as far as this process can tell.

    One given by name is imported only where workers run in this process and it is known whether the
    run serves its model: else it would find another environment here than there. With no workers
    here nothing is to be found here; but there has to be a name that it can be found by.
    """
    if config.runners.count == 0:
        _check_name(config.agent)
        return
    serves = _serves(config)
    executor = make_executor(config)
    settings = make_settings(config, has_reward_function=False)
    spec = make_spec(config, run_id=None, serves_model=bool(serves), settings=settings)
    executor.check(spec)
    if isinstance(config.agent, str) and not (executor.in_process and serves):
        require_module(config.agent)
        return
    served = {name: LLM(model=str(config.model)) for name in serves}
    spec.check({**wrap_resources(config), **served} if serves else None)


def _check_name(agent: object) -> None:
    if not isinstance(agent, Elsewhere) and name_of(agent) is None:
        raise AgentError(
            "agent: runners.count is 0, so it is run by other processes, and they could not find this "
            f"{type(agent).__name__} by a name; pass it as 'module:name', or none and name it there"
        )


def _check_rows(config: Config, train: Sequence[JSON], val: Sequence[JSON]) -> None:
    """The built-in agent must find something to ask in every row."""
    if config.agent is not None or not _needs_rewards(config):
        return
    for key, rows in (("train_dataset", train), ("eval_dataset", val)):
        for number, row in enumerate(rows):
            try:
                conversation_for(row, {})
            except AgentError as error:
                raise DatasetError(f"{key} row {number}: {error}") from error


def _serves(config: Config) -> tuple[str, ...]:
    """The resources that the algorithm serves `model` under; none if it does not say."""
    return tuple(getattr(config.options, "serves", ()))


def _needs_rewards(config: Config) -> bool:
    return bool(getattr(config.options, "needs_rewards", False))
