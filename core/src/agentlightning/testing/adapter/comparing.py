"""Looking at what frameworks return, raise and hand on as text."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from typing import Any


def from_json_text(value: Any) -> Any:
    """A tool's arguments or result, which some frameworks hand on as text."""
    return json.loads(value) if isinstance(value, str) else value


def outcome_of(work: Callable[[], Any]) -> tuple[str, str]:
    """What a call gave or raised, to compare with another."""
    try:
        return "returned", str(work())
    except Exception as error:  # noqa: BLE001 - which one it is, is what the test looks at
        return type(error).__qualname__, str(error)


def awaited(value: Any) -> Any:
    """The value, or what an awaitable gives."""

    async def wait() -> Any:
        return await value

    return asyncio.run(wait()) if inspect.isawaitable(value) else value
