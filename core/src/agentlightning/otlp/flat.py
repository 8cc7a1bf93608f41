"""Lists and objects that were written as attributes with numbers and dots in their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agentlightning.records import JSON

_DEEPEST: Final = 12
"""Levels: no convention has more, and names come from anywhere."""


def nested(attributes: Mapping[str, JSON], prefix: str) -> Any:
    """``{"p.0.role": "user"}`` below ``p`` is ``[{"role": "user"}]``; None if there is nothing.

    Numbers make lists, in their order; where a name is both a value and has names below it, those
    below count.
    """
    tree: dict[str, Any] = {}
    start = f"{prefix}."
    for name, value in attributes.items():
        if not name.startswith(start):
            continue
        *path, last = name[len(start) :].split(".", _DEEPEST)
        level = tree
        for step in path:
            below = level.get(step)
            if not isinstance(below, _Level):
                below = level[step] = _Level()
            level = below
        if not isinstance(level.get(last), _Level):
            level[last] = value
    return _rebuilt(tree) if tree else None


class _Level(dict[str, Any]):
    """Names below a name; told apart from values, which may be objects too."""


def _rebuilt(level: dict[str, Any]) -> Any:
    items = {
        name: _rebuilt(value) if isinstance(value, _Level) else value for name, value in level.items()
    }
    if all(name.isascii() and name.isdigit() and len(name) <= _DEEPEST for name in items):
        return [items[name] for name in sorted(items, key=int)]
    return items
