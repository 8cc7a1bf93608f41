"""Choosing the engine a configuration names."""

from __future__ import annotations

from urllib.parse import urlsplit

from agentlightning.config import Config, name_and_options
from agentlightning.engine import Engine
from agentlightning.errors import ConfigError
from agentlightning.plugins import plugins

DEFAULT_ENGINE = "transformers"


def make_engine(config: Config) -> Engine:
    """The engine for ``config.model``, not started.

    Raises:
        ConfigError: an engine given by address, or options it does not take.
    """
    name, options = name_and_options(config.engine or DEFAULT_ENGINE, "engine")
    if urlsplit(name).scheme in {"http", "https"}:
        raise ConfigError(
            f"engine: {name!r} is an address; engines that are up already are not part of this "
            f"version yet, use {DEFAULT_ENGINE!r}"
        )
    make = plugins().engines.get(name)
    try:
        return make(config.model, **options)
    except TypeError as error:
        raise ConfigError(f"engine: {name} does not take these options: {error}") from error
