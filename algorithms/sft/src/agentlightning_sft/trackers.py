"""The experiment trackers a run reports to."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Final

from agentlightning.errors import ConfigError
from transformers.integrations.integration_utils import (
    INTEGRATION_TO_CALLBACK,
    get_available_reporting_integrations,
)

_WORDS: Final = (["none"], ["all"])
"""What transformers takes instead of names."""


def check_trackers(report_to: str | Sequence[str]) -> None:
    """Refuse a tracker that transformers does not know, or whose package is not installed.

    Raises:
        ConfigError: with the known names and the nearest, or with what transformers says is missing.
    """
    names = [report_to] if isinstance(report_to, str) else list(report_to)
    if names in _WORDS:
        return
    for name in names:
        if name not in INTEGRATION_TO_CALLBACK:
            raise ConfigError(f"report_to: {name!r} is no tracker; {_known(name)}")
        if name not in get_available_reporting_integrations():  # type: ignore[no-untyped-call]
            _require(name)


def _known(name: str) -> str:
    known = sorted(INTEGRATION_TO_CALLBACK)
    nearest = difflib.get_close_matches(name, known, n=1)
    guess = f"; did you mean {nearest[0]!r}?" if nearest else ""
    return f"known: {', '.join(known)}{guess}"


def _require(name: str) -> None:
    """Make one, which says what is missing; transformers' list of what is there leaves some out."""
    try:
        INTEGRATION_TO_CALLBACK[name]()
    except Exception as error:  # each of them checks in its own way
        raise ConfigError(f"report_to: {name!r} cannot be used: {error}") from error
