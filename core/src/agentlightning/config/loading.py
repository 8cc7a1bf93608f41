"""Turning what a user wrote into a checked :class:`Config`, before anything is spent."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from agentlightning.config.checks import check_settings, warnings_about
from agentlightning.config.keys import convert, fields_of, unknown_key
from agentlightning.config.models import default_model
from agentlightning.config.schema import Config, Settings
from agentlightning.errors import ConfigError, PluginError
from agentlightning.llm_api import scrub
from agentlightning.plugins import plugins
from agentlightning.records import JSON, PromptTemplate, Resource, as_resource
from agentlightning.store.opening import without_password

logger = logging.getLogger("agentlightning.config")

COMING = {
    "prompt_optimization": "prompt optimisation is not part of this version yet",
    "apo": "prompt optimisation is not part of this version yet",
}
"""Algorithms people ask for by name that this version does not have."""


def load_config(source: Mapping[str, Any] | str | Path | None = None, **keys: Any) -> Config:
    """Check a configuration and fill in its defaults.

    Args:
        source: a mapping, or the path of a YAML file; ``keys`` are laid over it.
        keys: further configuration keys.

    Raises:
        ConfigError: an unknown key or name (with the known ones and the nearest), a value of the wrong
            type or out of range, no model, or whatever the algorithm's own ``check`` refuses.
    """
    given = _in_full({**_read(source), **keys})
    algorithm, sets = _algorithm(given)
    own = plugins().algorithms.config_type(algorithm)
    top_keys, own_keys = fields_of(Settings), fields_of(own)
    own_given = {key: value for key, value in given.items() if key in own_keys}
    top_given = {key: value for key, value in given.items() if key in top_keys}
    warnings = _leftovers(given, top_keys | own_keys, algorithm)
    _no_contradiction(sets, own_given, given["algorithm"])
    settings = convert({**top_given, "algorithm": algorithm}, Settings)
    options = convert({**own_given, **sets}, own)
    config = Config(
        **{key: getattr(settings, key) for key in top_keys},
        options=options,
        defaults=_defaults_taken(settings, top_given) | _defaults_taken(options, {**own_given, **sets}),
        warnings=warnings,
    )
    if config.model is None:
        config.model = config.defaults["model"] = default_model()
    check_settings(config)
    config.warnings += warnings_about(config)
    if callable(check := getattr(options, "check", None)):
        check(config)
    return config


def describe(config: Config) -> JSON:
    """The configuration as JSON, to be kept with the run.

    Callables are kept by name, datasets by size, variables for the agent without their values, which
    are often keys; keys among options and the store's password are blanked out.
    """
    described = {
        key: _describe(getattr(config, key)) for key in (*fields_of(Settings), "options", "defaults")
    }
    described["runners"]["environment"] = sorted(config.runners.environment)
    described["store"] = without_password(config.store)
    return scrub({key: value for key, value in described.items() if value is not None})


def _describe(value: Any) -> JSON:
    if isinstance(value, msgspec.Struct):
        parts = {key: _describe(getattr(value, key)) for key in value.__struct_fields__}
        return {key: part for key, part in parts.items() if part is not None}
    if isinstance(value, Mapping):
        return {str(key): _describe(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        listed = len(value) <= _LISTED
        return [_describe(item) for item in value] if listed else f"{len(value)} items"
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if callable(value):
        return f"{getattr(value, '__module__', '?')}:{getattr(value, '__qualname__', value)}"
    return f"<{type(value).__name__}>"


_LISTED = 20


def _read(source: Mapping[str, Any] | str | Path | None) -> dict[str, Any]:
    if source is None:
        return {}
    if isinstance(source, Mapping):
        return dict(source)
    import yaml

    path = Path(source)
    try:
        read = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"there is no configuration file {str(path)!r}") from error
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(
            f"{str(path)!r} cannot be read as YAML: {' '.join(str(error).split())}"
        ) from error
    if read is None:
        raise ConfigError(f"{str(path)!r} is empty; expected keys and values")
    if not isinstance(read, dict):
        raise ConfigError(f"{str(path)!r} holds a {type(read).__name__}; expected keys and values")
    return read


def _in_full(given: dict[str, Any]) -> dict[str, Any]:
    """With the short form of a key written out: ``runners: 4`` is ``runners: {count: 4}``."""
    runners = given.get("runners")
    is_count = isinstance(runners, int) and not isinstance(runners, bool)
    return {**given, "runners": {"count": runners}} if is_count else given


def _algorithm(given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The registered name, and the keys that the alias used sets."""
    name = given.get("algorithm")
    registry = plugins().algorithms
    if name is None:
        known = ", ".join(sorted(entry.name for entry in registry.entries()))
        raise ConfigError(f"algorithm: none given; installed: {known or 'none'}")
    if isinstance(name, list | tuple):
        raise ConfigError(
            "algorithm: several algorithms in turn are not part of this version yet; name one"
        )
    if not isinstance(name, str):
        raise ConfigError(f"algorithm: got a {type(name).__name__}; expected a name")
    try:
        entry = registry.entry(name)
    except PluginError as error:
        later = COMING.get(name.replace("-", "_"))
        raise ConfigError(f"algorithm: {f'{name}: {later}' if later else error}") from error
    return (entry.alias_of or entry.name), dict(entry.sets)


def _leftovers(given: Mapping[str, Any], known: set[str], algorithm: str) -> tuple[str, ...]:
    """Warn of keys that only another algorithm uses; refuse keys that nobody knows."""
    unknown = [key for key in given if key not in known]
    others = _other_algorithms(algorithm) if unknown else {}
    warnings = []
    for key in unknown:
        users = sorted(name for name, keys in others.items() if key in keys)
        if not users:
            raise unknown_key(key, known)
        warnings.append(f"{key} has no effect with {algorithm}; only {', '.join(users)} uses it")
    return tuple(warnings)


def _other_algorithms(algorithm: str) -> dict[str, set[str]]:
    """The keys of every other algorithm; one whose configuration is broken is left out, and logged."""
    keys = {}
    for entry in plugins().algorithms.entries(inactive=True):
        if entry.alias_of is None and entry.name != algorithm:
            try:
                keys[entry.name] = fields_of(plugins().algorithms.config_type(entry.name))
            except PluginError as error:
                logger.warning("the keys of %s are not known: %s", entry.name, error)
    return keys


def _no_contradiction(sets: Mapping[str, Any], given: Mapping[str, Any], alias: str) -> None:
    for key, value in sets.items():
        if key in given and given[key] != value:
            raise ConfigError(
                f"{key}: {given[key]!r} contradicts algorithm {alias!r}, which means "
                f"{key} = {value!r}; leave one of them out"
            )


def _defaults_taken(settings: Any, given: Mapping[str, Any]) -> dict[str, JSON]:
    """The keys that were left to their defaults, where the default says something."""
    taken = {
        key: _describe(getattr(settings, key))
        for key in settings.__struct_fields__
        if key not in given and _describe(getattr(settings, key)) not in (None, {}, [], "")
    }
    if "store" in taken:  # by the environment, perhaps with a password
        taken["store"] = without_password(settings.store)
    return taken


def wrap_resources(config: Config) -> dict[str, Resource]:
    """The user's resources, plain values wrapped; a string named in ``prompts`` is a template."""
    wrapped: dict[str, Resource] = {}
    for name, value in config.resources.items():
        is_prompt = isinstance(value, str) and name in config.prompts
        wrapped[name] = PromptTemplate(template=value) if is_prompt else as_resource(value, name)
    return wrapped
