"""Choosing the engine a configuration names."""

from __future__ import annotations

from typing import Any

from agentlightning.config import Config
from agentlightning.engine import Engine
from agentlightning.errors import ConfigError
from agentlightning.plugins import plugins
from agentlightning.trainer.serving import is_address

DEFAULT_ENGINE = "transformers"


def make_engine(config: Config) -> Engine:
    """The engine for ``config.model``, not started.

    Raises:
        ConfigError: an engine given by address, or options without a name.
    """
    name, options = _name_and_options(config.engine)
    return plugins().engines.get(name)(config.model, **options)


def _name_and_options(engine: str | dict[str, Any] | None) -> tuple[str, dict[str, Any]]:
    if engine is None:
        return DEFAULT_ENGINE, {}
    if isinstance(engine, str):
        if is_address(engine):
            raise ConfigError(
                f"engine: {engine!r} is an address; engines that are up already are not part of this "
                f"version yet, use {DEFAULT_ENGINE!r}"
            )
        return engine, {}
    options = dict(engine)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise ConfigError("engine: options without a name; expected {name: …, …its options}")
    return name, options
