"""Things that are named in a configuration, with or without options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentlightning.errors import ConfigError


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
