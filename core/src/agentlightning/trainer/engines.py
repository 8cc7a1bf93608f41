"""Choosing the engine a configuration names."""

from __future__ import annotations

from agentlightning.config import Config, make_named, name_and_options
from agentlightning.engine import Engine
from agentlightning.plugins import plugins

DEFAULT_ENGINE = "transformers"


def make_engine(config: Config) -> Engine:
    """The engine for ``config.model``, not started.

    Raises:
        ConfigError: it is unknown, or does not take its options.
    """
    name, options = name_and_options(config.engine or DEFAULT_ENGINE, "engine")
    return make_named(plugins().engines, "engine", name, options, config.model)
