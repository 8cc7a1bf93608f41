"""Finding the tool calls in what a model wrote."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

_logger = logging.getLogger("agentlightning.engines.transformers")

_HERMES: Final = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


class Malformed(ValueError):
    """The text means to call a tool, but not in a form that can be read."""


def parse_message(
    tokenizer: Any, text: str, *, plain: str, prompt: str, tools: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """A reply as an assistant message; a call that cannot be read leaves all of it plain text.

    Args:
        tokenizer: with a ``response_template`` its own way to write calls is read; else Hermes'
            ``<tool_call>{"name": …, "arguments": {…}}</tool_call>``, which Qwen and many others use.
        text: the reply, its closing token left out.
        plain: the same without any special token: the content where nothing is called.
        prompt: the text it answers.
        tools: what may be called; without any, nothing is taken for a call.
    """
    template = getattr(tokenizer, "response_template", None)
    try:
        if template is not None:
            return _by_template(tokenizer, text, prompt, tools)
        calls = _hermes_calls(text) if tools else []
    except Malformed as malformed:
        _logger.debug("a tool call stays plain text: %s", malformed)
        calls = []
    return _message(_HERMES.sub("", text).strip() if calls else plain, calls)


def _hermes_calls(text: str) -> list[dict[str, Any]]:
    written = _HERMES.findall(text)
    if not written and "<tool_call>" in text:
        raise Malformed("it is not closed")
    calls = []
    for call in written:
        try:
            calls.append(_openai(json.loads(call)))
        except json.JSONDecodeError as error:
            raise Malformed(f"it is not JSON: {error}") from error
    return calls


def _by_template(
    tokenizer: Any, text: str, prompt: str, tools: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    try:
        parsed = tokenizer.parse_response(text, prefix=prompt, tools=list(tools) or None)
    except (
        Exception
    ) as error:  # a template's parser is data of the model's author; it may raise anything
        raise Malformed(f"the tokenizer's response template failed: {error}") from error
    called = parsed.get("tool_calls") or [] if tools else []
    message = _message(
        parsed.get("content") or "", [_openai(call.get("function", call)) for call in called]
    )
    thinking = parsed.get("thinking") or parsed.get("reasoning_content")
    return {**message, "reasoning_content": thinking} if thinking else message


def _message(content: str, calls: list[dict[str, Any]]) -> dict[str, Any]:
    if not calls:
        return {"role": "assistant", "content": content}
    return {"role": "assistant", "content": content or None, "tool_calls": calls}


def _openai(call: Any) -> dict[str, Any]:
    name = call.get("name") if isinstance(call, Mapping) else None
    if not isinstance(name, str) or not isinstance(call.get("arguments"), Mapping):
        raise Malformed(f"expected a name and an object of arguments, got {str(call)[:80]}")
    arguments = json.dumps(call["arguments"], ensure_ascii=False)
    return {"type": "function", "function": {"name": name, "arguments": arguments}}
