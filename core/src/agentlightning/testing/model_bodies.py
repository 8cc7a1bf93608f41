"""The scripted model's replies in the shapes of chat completions, completions and Responses."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

from agentlightning.llm_api.conversation import responses_messages
from agentlightning.records import JSON
from agentlightning.testing.model_script import (
    LOGPROB,
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
    given = request.get("prompt") or ""
    is_many = isinstance(given, list) and not isinstance(given[0], int)
    prompts = [_ids_of(prompt) for prompt in (given if is_many else [given])]
    choices = [
        _completion_choice(request, prompt, turn)
        for prompt in prompts
        for _ in range(request.get("n") or 1)
    ]
    lengths = [len(token_ids(choice["text"])) for choice in choices]
    return {
        "id": f"cmpl-{next(_numbers)}",
        "object": "text_completion",
        "created": 1,
        "model": request.get("model"),
        "choices": [{"index": index, **choice} for index, choice in enumerate(choices)],
        "usage": _usage(sum(map(len, prompts)), sum(lengths)),
    }


def completion_chunks(
    body: Mapping[str, Any], *, include_usage: bool = False
) -> Iterator[dict[str, JSON]]:
    """The same reply cut into chunks, as vLLM cuts it: each has its own ids, the first the prompt's."""
    head = {key: value for key, value in body.items() if key not in {"choices", "usage"}}
    for choice in body["choices"]:
        text, at, first = choice["text"], 0, {}
        if "prompt_token_ids" in choice:
            first = {"prompt_token_ids": choice["prompt_token_ids"]}
        for cut in _cuts(text) or [""]:
            end = at + len(token_ids(cut))
            is_last = end == len(token_ids(text))
            yield {
                **head,
                "choices": [{**_part_of(choice, cut, slice(at, end), is_last=is_last), **first}],
            }
            at, first = end, {}
    if include_usage:
        yield {**head, "choices": [], "usage": body["usage"]}


def _ids_of(prompt: str | list[int]) -> list[int]:
    return token_ids(prompt) if isinstance(prompt, str) else list(prompt)


def _completion_choice(
    request: Mapping[str, Any], prompt: list[int], turn: Turn | None
) -> dict[str, Any]:
    asked = bytes(byte for byte in prompt if byte < 256).decode(errors="replace")  # noqa: PLR2004
    said = (turn or scripted_turn([{"role": "user", "content": asked}])).text or ""
    choice: dict[str, Any] = {"text": said, "logprobs": None, "finish_reason": "stop"}
    if request.get("logprobs") is not None:
        choice["logprobs"] = {
            "tokens": list(said),
            "token_logprobs": [LOGPROB] * len(token_ids(said)),
            "top_logprobs": None,
            "text_offset": list(range(len(said))),
        }
    if request.get("return_token_ids"):
        choice |= {"prompt_token_ids": prompt, "token_ids": token_ids(said)}
    return choice


def _part_of(choice: Mapping[str, Any], text: str, cut: slice, *, is_last: bool) -> dict[str, JSON]:
    """A piece of a completion's choice with its share of ids and log-probabilities."""
    part: dict[str, JSON] = {"index": choice["index"], "text": text, "logprobs": None}
    part["finish_reason"] = choice["finish_reason"] if is_last else None
    if "token_ids" in choice:
        part["token_ids"] = choice["token_ids"][cut]
    if choice["logprobs"] is not None:
        named = ("tokens", "token_logprobs", "text_offset")
        part["logprobs"] = {name: choice["logprobs"][name][cut] for name in named}
    return part


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
        "output": _items(turn, number),
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
    empty = {**body, "status": "in_progress", "output": []}
    steps: list[dict[str, JSON]] = [{"type": "response.created", "response": empty}]
    for index, item in enumerate(body["output"]):
        steps.append({"type": "response.output_item.added", "output_index": index, "item": item})
        if item["type"] == "message":
            steps += _text_events(index, item)
        steps.append({"type": "response.output_item.done", "output_index": index, "item": item})
    steps.append({"type": "response.completed", "response": dict(body)})
    return ({**step, "sequence_number": number} for number, step in enumerate(steps))


def _choice(request: Mapping[str, Any], turn: Turn, index: int) -> dict[str, JSON]:
    message: dict[str, JSON] = {"role": "assistant", "content": turn.text}
    if turn.reasoning is not None:
        message["reasoning_content"] = turn.reasoning
    if turn.calls:
        message["tool_calls"] = [
            {
                "id": f"call-{next(_numbers)}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for name, arguments in turn.calls
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
    deltas = [{"reasoning_content": cut} for cut in _cuts(message.get("reasoning_content") or "")]
    if message["content"] is not None:
        deltas += [{"content": cut} for cut in _cuts(message["content"])] or [{"content": ""}]
    calls = [_call_deltas(*numbered) for numbered in enumerate(message.get("tool_calls") or [])]
    # Pieces of several calls alternate, as those of servers may.
    deltas += [delta for round_ in itertools.zip_longest(*calls) for delta in round_ if delta]
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


def _call_deltas(index: int, call: Mapping[str, Any]) -> list[dict[str, JSON]]:
    function = call["function"]
    opening = {**call, "index": index, "function": {"name": function["name"], "arguments": ""}}
    return [
        {"tool_calls": [opening]},
        *(
            {"tool_calls": [{"index": index, "function": {"arguments": cut}}]}
            for cut in _cuts(function["arguments"])
        ),
    ]


def _text_events(index: int, item: Mapping[str, Any]) -> Iterator[dict[str, JSON]]:
    place = {"item_id": item["id"], "output_index": index, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": []}
    yield {"type": "response.content_part.added", **place, "part": part}
    for cut in _cuts(item["content"][0]["text"]):
        yield {"type": "response.output_text.delta", **place, "delta": cut, "logprobs": []}


def _items(turn: Turn, number: int) -> list[dict[str, JSON]]:
    """What the model thought, said and called, an item each."""
    items: list[dict[str, JSON]] = []
    if turn.reasoning is not None:
        thought = [{"type": "reasoning_text", "text": turn.reasoning}]
        items.append({"id": f"rs-{number}", "type": "reasoning", "summary": [], "content": thought})
    if turn.text is not None or not turn.calls:
        said = {"type": "output_text", "text": turn.text or "", "annotations": []}
        message = {"type": "message", "status": "completed", "role": "assistant"}
        items.append({"id": f"msg-{number}", **message, "content": [said]})
    for place, (name, arguments) in enumerate(turn.calls):
        own = str(number) if place == 0 else f"{number}-{place}"
        call = {"type": "function_call", "status": "completed", "call_id": f"call-{own}"}
        items.append({"id": f"fc-{own}", **call, "name": name, "arguments": arguments})
    return items


def _cuts(text: str) -> list[str]:
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
