"""What a row of a dataset says to a model, for agents that take rows as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from agentlightning.llm_api.conversation import Message
from agentlightning.records import JSON

MESSAGES_FIELD: Final = "messages"
TEXT_FIELDS: Final = ("prompt", "question", "input")
"""The fields that hold a row's text, the first one that does counting."""


def messages_of_row(row: JSON) -> list[Message] | None:
    """The conversation of a row that has one; None for any other, and where the field is empty."""
    held = row.get(MESSAGES_FIELD) if isinstance(row, Mapping) else None
    if not isinstance(held, Sequence) or not held:
        return None
    if not all(isinstance(message, Mapping) for message in held):
        return None
    return [dict(message) for message in held]


def text_of_row(row: JSON) -> str | None:
    """The text of a row that has one, or is one; None for any other."""
    if isinstance(row, str):
        return row
    held = [row.get(field) for field in TEXT_FIELDS] if isinstance(row, Mapping) else []
    return next((text for text in held if isinstance(text, str)), None)
