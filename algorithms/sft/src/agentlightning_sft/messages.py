"""Conversations as they are trained on."""

from __future__ import annotations

from collections.abc import Mapping

from agentlightning.llm_api import BadConversation, template_messages, template_tools
from agentlightning.records import JSON

Message = dict[str, JSON]


class BadChat(ValueError):
    """A conversation that cannot be trained on; the message says what and where within it."""


def for_template(messages: JSON) -> list[Message]:
    """Messages as the engine renders them too; see :func:`agentlightning.llm_api.template_messages`.

    Raises:
        BadChat: no chat template could render them.
    """
    try:
        return template_messages(messages)
    except BadConversation as error:
        raise BadChat(str(error)) from error


def for_template_tools(tools: JSON) -> list[Message] | None:
    """Tool schemas likewise; None for none.

    Raises:
        BadChat: it is no list of tool schemas.
    """
    try:
        return template_tools(tools) or None
    except BadConversation as error:
        raise BadChat(str(error)) from error


def same_turn(one: Mapping[str, JSON], other: Mapping[str, JSON]) -> bool:
    """Whether two messages say the same, whatever else their frameworks note on them."""
    return bool(_said(one) == _said(other))


def _said(message: Mapping[str, JSON]) -> JSON:
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    named = [(function["name"], function["arguments"]) for function in calls]
    return (message["role"], message["content"], named, message.get("tool_call_id"))
