"""The scripted model's replies in the shapes of chat completions, completions and Responses."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

from agentlightning.llm_api.conversation import responses_messages
from agentlightning.records import JSON
from agentlightning.testing.model_script import (
    Turn,
    logprobs_of,
    prompt_text,
    scripted_turn,
    token_ids,
)

_numbers: Final = itertools.count(1)
_PIECE: Final = 4


def chat_body(request: Mapping[str, Any], turn: Turn | None = None) -> dict[str, JSON]:
    """A chat completions reply; ids and logprobs only when the request asks for them."""
    messages = request.get("messages") or []
    turn = turn or scripted_turn(messages)
    prompt = token_ids(prompt_text(messages))
    count = request.get("n") or 1
    body: dict[str, JSON] = {
        "id": f"chatcmpl-{next(_numbers)}",
        "object": "chat.completion",
        "created": 1,
        "model": request.get("model"),
        "choices": [_choice(request, turn, index) for index in range(count)],
        "usage": _usage(len(prompt), count * len(token_ids(turn.rendered()))),
    }
    if request.get("return_token_ids"):
        body["prompt_token_ids"] = prompt
    return body


def chat_chunks(body: Mapping[str, Any], *, include_usage: bool) -> Iterator[dict[str, JSON]]:
    """The same reply cut into chunks, as vLLM cuts it: prompt ids only in the first."""
    shared = {key: body[key] for key in ("id", "created", "model")}
    shared["object"] = "chat.completion.chunk"
    first = {"prompt_token_ids": body["prompt_token_ids"]} if "prompt_token_ids" in body else {}
    for choice in body["choices"]:
        for piece in _pieces(choice):
            yield {**shared, **first, "choices": [{"index": choice["index"], **piece}]}
            first = {}
    if include_usage:
        yield {**shared, "choices": [], "usage": body["usage"]}


def completion_body(request: Mapping[str, Any], turn: Turn | None = None) -> dict[str, JSON]:
    """A reply of the older completions API."""
    prompt = str(request.get("prompt") or "")
    turn = turn or scripted_turn([{"role": "user", "content": prompt}])
    return {
        "id": f"cmpl-{next(_numbers)}",
        "object": "text_completion",
        "created": 1,
        "model": request.get("model"),
        "choices": [
            {"index": index, "text": turn.text, "logprobs": None, "finish_reason": "stop"}
            for index in range(request.get("n") or 1)
        ],
        "usage": _usage(len(token_ids(prompt)), len(token_ids(turn.rendered()))),
    }


def completion_chunks(body: Mapping[str, Any]) -> Iterator[dict[str, JSON]]:
    """The same reply cut into chunks."""
    for choice in body["choices"]:
        *cuts, last = _cuts(choice["text"]) or [""]
        for cut in cuts:
            yield {**body, "choices": [{**choice, "text": cut, "finish_reason": None}], "usage": None}
        yield {**body, "choices": [{**choice, "text": last}], "usage": None}


def responses_body(request: Mapping[str, Any], turn: Turn | None = None) -> dict[str, JSON]:
    """A reply of the Responses API, which has no token ids."""
    messages = responses_messages(request)
    turn = turn or scripted_turn(messages)
    number = next(_numbers)
    return {
        "id": f"resp-{number}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": request.get("model"),
        "output": [_item(turn, number)],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": request.get("tools") or [],
        "usage": {
            "input_tokens": len(prompt_text(messages)),
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": len(turn.rendered()),
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": len(prompt_text(messages)) + len(turn.rendered()),
        },
    }


def responses_events(body: Mapping[str, Any]) -> Iterator[dict[str, JSON]]:
    """The same reply as the events of a stream."""
    item = body["output"][0]
    steps: list[dict[str, JSON]] = [
        {"type": "response.created", "response": {**body, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
    ]
    if item["type"] == "message":
        text = item["content"][0]["text"]
        place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        part = {"type": "output_text", "text": "", "annotations": []}
        steps.append({"type": "response.content_part.added", **place, "part": part})
        steps += [
            {"type": "response.output_text.delta", **place, "delta": cut, "logprobs": []}
            for cut in _cuts(text)
        ]
    steps.append({"type": "response.output_item.done", "output_index": 0, "item": item})
    steps.append({"type": "response.completed", "response": dict(body)})
    return ({**step, "sequence_number": number} for number, step in enumerate(steps))


def _choice(request: Mapping[str, Any], turn: Turn, index: int) -> dict[str, JSON]:
    message: dict[str, JSON] = {"role": "assistant", "content": turn.text}
    if turn.tool is not None:
        function = {"name": turn.tool, "arguments": turn.arguments}
        message["tool_calls"] = [
            {"id": f"call-{next(_numbers)}", "type": "function", "function": function}
        ]
    choice: dict[str, JSON] = {
        "index": index,
        "message": message,
        "logprobs": logprobs_of(turn.rendered()) if request.get("logprobs") else None,
        "finish_reason": "stop" if turn.tool is None else "tool_calls",
    }
    if request.get("return_token_ids"):
        choice["token_ids"] = token_ids(turn.rendered())
    return choice


def _usage(prompt: int, completion: int) -> dict[str, JSON]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def _pieces(choice: Mapping[str, Any]) -> Iterator[dict[str, JSON]]:
    """The deltas of one choice, each with its share of ids and logprobs; the last one closes it."""
    message = choice["message"]
    deltas: list[dict[str, JSON]] = []
    if message["content"] is not None:
        deltas = [{"content": cut} for cut in _cuts(message["content"])] or [{"content": ""}]
    for index, call in enumerate(message.get("tool_calls") or []):
        function = call["function"]
        opening = {**call, "index": index, "function": {"name": function["name"], "arguments": ""}}
        deltas.append({"tool_calls": [opening]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": cut}}]}
            for cut in _cuts(function["arguments"])
        ]
    deltas[0]["role"] = "assistant"
    ids, logprobs = choice.get("token_ids"), choice.get("logprobs")
    share = -(-len(ids or (logprobs or {}).get("content") or []) // len(deltas))
    for position, delta in enumerate(deltas):
        cut = slice(position * share, (position + 1) * share)
        piece: dict[str, JSON] = {"delta": delta, "logprobs": None, "finish_reason": None}
        if ids is not None:
            piece["token_ids"] = ids[cut]
        if logprobs is not None:
            piece["logprobs"] = {"content": logprobs["content"][cut], "refusal": None}
        yield piece
    yield {"delta": {}, "logprobs": None, "finish_reason": choice["finish_reason"]}


def _item(turn: Turn, number: int) -> dict[str, JSON]:
    if turn.tool is not None:
        return {
            "id": f"fc-{number}",
            "type": "function_call",
            "status": "completed",
            "call_id": f"call-{number}",
            "name": turn.tool,
            "arguments": turn.arguments,
        }
    return {
        "id": f"msg-{number}",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": turn.text, "annotations": []}],
    }


def _cuts(text: str) -> list[str]:
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
