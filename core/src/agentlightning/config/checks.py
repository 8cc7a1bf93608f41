"""What can be told of a configuration without importing anything it names."""

from __future__ import annotations

import difflib
import ipaddress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from agentlightning.config.models import model_kind
from agentlightning.config.named import name_and_options, named_by
from agentlightning.config.schema import Config
from agentlightning.errors import BadValue, ConfigError
from agentlightning.otlp import target_of
from agentlightning.plugins import plugins
from agentlightning.records import PromptTemplate
from agentlightning.store.checks import rollout_limits

_LARGEST_SEED: Final = 2**32 - 1  # NumPy's, which training libraries seed too


def check_settings(config: Config) -> None:
    """Refuse names that nothing offers, values out of range, and keys without an effect.

    Raises:
        ConfigError: the message names the key, what is known or expected, and what to do.
    """
    _check_model(config)
    _check_names(config)
    _check_resources(config)
    _check_values(config)
    _check_runners(config)
    target_of(config.otlp)


def warnings_about(config: Config) -> tuple[str, ...]:
    """What works, and should be known before it does."""
    host = config.endpoint.host
    if is_loopback(host):
        return ()
    warning = (
        f"endpoint.host: the run's model is served on {host}, where other machines reach it. Every "
        "call needs the token of its attempt, but nothing is encrypted: use a network you trust"
    )
    return (warning,)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_model(config: Config) -> None:
    kind = model_kind(str(config.model))
    if config.base_url is not None and kind != "hosted":
        raise ConfigError(
            f"base_url: says where a hosted model is asked; {config.model!r} is opened here, so it "
            "would have no effect. Leave it out, or name a hosted model"
        )


def _check_names(config: Config) -> None:
    with named_by("store"):
        plugins().store_backend_for(config.store)
    with named_by("runners.executor"):
        plugins().executors.entry(name_and_options(config.runners.executor, "runners.executor")[0])
    for name in config.adapters:
        with named_by("adapters"):
            plugins().adapters.entry(name)
    if config.engine is not None:
        _check_engine(name_and_options(config.engine, "engine")[0])


def _check_engine(name: str) -> None:
    if urlsplit(name).scheme in {"http", "https"}:
        known = ", ".join(entry.name for entry in plugins().engines.entries()) or "none"
        raise ConfigError(
            f"engine: {name!r} is an address; engines that are up already are not part of this "
            f"version yet. Known: {known}"
        )
    with named_by("engine"):
        plugins().engines.entry(name)


def _check_resources(config: Config) -> None:
    for name in getattr(config.options, "serves", ()):
        if name in config.resources:
            raise ConfigError(
                f"resources.{name}: {config.algorithm} serves `model` under this name, which would "
                "replace what is given here; give it another name"
            )
    for name in config.prompts:
        if name not in config.resources:
            raise ConfigError(
                f"prompts.{name}: no resource has this name{_nearest(name, config)}; give the prompt's "
                f"text as resources.{name}"
            )
        if not isinstance(config.resources[name], str | PromptTemplate):
            raise ConfigError(
                f"prompts.{name}: the resource is a {type(config.resources[name]).__name__}; expected "
                "text or a PromptTemplate"
            )


def _nearest(name: str, config: Config) -> str:
    nearest = difflib.get_close_matches(name, config.resources, n=1)
    guess = f", did you mean {nearest[0]!r}?" if nearest else ""
    return f" (there are: {', '.join(sorted(config.resources)) or 'none'}{guess})"


def _check_values(config: Config) -> None:
    try:
        rollout_limits(config.rollout, "rollout")
    except BadValue as error:
        raise ConfigError(str(error)) from error
    if not 0 <= config.seed <= _LARGEST_SEED:
        raise ConfigError(f"seed: {config.seed} is out of range; expected 0 to {_LARGEST_SEED}")
    if config.trained_agents is not None and not config.trained_agents:
        raise ConfigError("trained_agents: names no agent; leave it out to train all of them")
    if config.run_dir is not None and Path(config.run_dir).is_file():
        raise ConfigError(f"run_dir: {config.run_dir!r} is a file; expected a folder, or a new name")


def _check_runners(config: Config) -> None:
    if config.runners.count == 0 and urlsplit(config.store).scheme == "memory":
        raise ConfigError(
            f"runners.count: 0 leaves the work to other processes, and the store {config.store!r} "
            "lives in this one; name one that they reach: a file, a database, or http://…"
        )
