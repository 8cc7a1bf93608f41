"""Which keys a configuration may have, and what a wrong key or value is answered with."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from agentlightning.errors import ConfigError

_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.+)`")
_WORDS = {"array": "list", "object": "mapping", "null": "nothing"}
"""What msgspec calls types after JSON, in the words of YAML and Python."""


def fields_of(kind: type) -> set[str]:
    """The keys that a configuration class has."""
    return {field.name for field in msgspec.structs.fields(kind)}


def unknown_key(
    key: str, known: Iterable[str], within: str = "", what: str = "unknown key"
) -> ConfigError:
    """The error for a key that nothing uses.

    Args:
        key: as it was given.
        known: the keys there are in its place.
        within: the key of the mapping it was given in; empty at the top level.
        what: what to call it.
    """
    names = sorted(known)
    nearest = difflib.get_close_matches(key, names, n=1)
    hint = f"did you mean {nearest[0]!r}? Known" if nearest else "known"
    place = f"{within}.{key}" if within else key
    return ConfigError(f"{place}: {what}; {hint}: {', '.join(names) or 'none'}")


def convert(values: Mapping[str, Any], kind: type) -> Any:
    """Check values against a configuration class and make one.

    Raises:
        ConfigError: a key it does not have, or a value of another type than it expects.
    """
    try:
        return msgspec.convert(values, kind, dec_hook=_keep)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        within = place.rstrip("`").lstrip(".")
        if found := _UNKNOWN_FIELD.fullmatch(message):
            raise unknown_key(found[1], fields_of(_kind_at(kind, within)), within) from error
        raise ConfigError(f"{within + ': ' if within else ''}{_in_our_words(message)}") from error


def _keep(kind: type, value: Any) -> Any:
    if isinstance(value, kind):
        return value
    raise ValueError(f"expected {kind.__name__}, got {type(value).__name__}")


def _kind_at(kind: type, place: str) -> type:
    """The class of the mapping at a place such as ``runners``."""
    for name in filter(None, place.split(".")):
        kind = next(field.type for field in msgspec.structs.fields(kind) if field.name == name)
    return kind


def _in_our_words(message: str) -> str:
    message = re.sub(r"`[^`]*`", _translated, message)
    return re.sub(r"^[A-Z](?=[a-z])", lambda match: match.group().lower(), message)


def _translated(match: re.Match[str]) -> str:
    return re.sub(r"\w+", lambda word: _WORDS.get(word.group(), word.group()), match.group())
