"""Things that are named in a configuration, with or without options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from agentlightning.config.keys import unknown_key
from agentlightning.errors import AgentLightningError, ConfigError, PluginError
from agentlightning.plugins import Registry

T = TypeVar("T")


def name_and_options(value: str | Mapping[str, Any], key: str) -> tuple[str, dict[str, Any]]:
    """Read ``"name"`` or ``{"name": "name", …its options}``.

    Args:
        value: what was configured.
        key: under which key, for messages.

    Raises:
        ConfigError: options without a name.
    """
    if isinstance(value, str):
        return value, {}
    options = dict(value)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise ConfigError(f"{key}: options without a name; expected {{name: …, …its options}}")
    return name, options


@contextmanager
def named_by(key: str) -> Iterator[None]:
    """Turn what a registry says to a name into an error about the key that holds the name."""
    try:
        yield
    except PluginError as error:
        raise ConfigError(f"{key}: {error}") from error


def make_named(
    registry: Registry[T], key: str, name: str, options: Mapping[str, Any], *arguments: Any
) -> T:
    """Make what a configuration names, with its options.

    Args:
        registry: where it is registered.
        key: the configuration key, for messages.
        name: its registered name.
        options: passed by keyword.
        arguments: what comes before the options.

    Raises:
        ConfigError: the name is unknown or its plug-in cannot be used, it has no such option, or it
            refuses a value.
    """
    with named_by(key):
        make = registry.get(name)
    known = _options_of(make, len(arguments))
    for option in options:
        if known is not None and option not in known:
            raise unknown_key(option, known, within=key, what=f"no option of {name}")
    try:
        return make(*arguments, **options)
    except (AgentLightningError, TypeError, ValueError) as error:
        raise ConfigError(f"{key}: {name} does not take these options: {error}") from error


def _options_of(make: Callable[..., object], taken: int) -> set[str] | None:
    """What it can be given by keyword after ``taken`` arguments; None = anything."""
    parameters = list(inspect.signature(make).parameters.values())[taken:]
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    by_keyword = {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    return {parameter.name for parameter in parameters if parameter.kind in by_keyword}
