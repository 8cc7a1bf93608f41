"""Building a chat completions reply, with the fields vLLM adds to it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

from agentlightning_transformers.requests import ChatRequest
from agentlightning_transformers.sampling import Prompt, Sampled
from agentlightning_transformers.tool_calls import parse_message


class ReplyWriter:
    """Turns sampled ids into reply bodies.

    Args:
        tokenizer: the one the prompts were made with.
        model: the name the reply carries.
        stop_ids: tokens that end a reply; they are in its ids and not in its text.
    """

    def __init__(self, tokenizer: Any, *, model: str, stop_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._model = model
        self._stop_ids = stop_ids
        self._tokens: dict[int, dict[str, Any]] = {}  # decoding one by one costs more than all the rest

    def write(self, request: ChatRequest, sampled: Sequence[Sampled]) -> dict[str, Any]:
        """The reply to ``request``.

        ``prompt_token_ids`` and each choice's ``token_ids`` and ``logprobs`` are there if they were
        asked for. ``token_ids`` are all that was sampled, the token that ended the reply included.
        """
        prompt_ids = request.prompts[0].ids
        new = sum(len(reply.ids) for reply in sampled)
        body: dict[str, Any] = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self._model,
            "choices": [
                self._choice(index, request, prompt, reply)
                for index, (prompt, reply) in enumerate(zip(request.prompts, sampled, strict=True))
            ],
            "usage": {
                "prompt_tokens": len(prompt_ids),
                "completion_tokens": new,
                "total_tokens": len(prompt_ids) + new,
            },
        }
        return body | {"prompt_token_ids": prompt_ids} if request.wants_token_ids else body

    def _choice(
        self, index: int, request: ChatRequest, prompt: Prompt, reply: Sampled
    ) -> dict[str, Any]:
        message = parse_message(
            self._tokenizer,
            self._text(prompt, reply, special=True),
            plain=self._text(prompt, reply, special=False),
            prompt=request.prompt_text,
            tools=request.tools,
        )
        calls = message.get("tool_calls", [])[: 1 if request.one_call else None]
        if calls:
            message["tool_calls"] = [{"id": f"call_{uuid.uuid4().hex}", **call} for call in calls]
        called = bool(calls) and reply.finish_reason == "stop"
        choice: dict[str, Any] = {
            "index": index,
            "message": message,
            "logprobs": {"content": self._logprobs(reply)} if request.wants_logprobs else None,
            "finish_reason": "tool_calls" if called else reply.finish_reason,
        }
        return choice | {"token_ids": reply.ids} if request.wants_token_ids else choice

    def _text(self, prompt: Prompt, reply: Sampled, *, special: bool) -> str:
        ended = bool(reply.ids) and reply.ids[-1] in self._stop_ids
        ids = reply.ids[:-1] if ended else reply.ids
        text = str(self._tokenizer.decode(ids, skip_special_tokens=not special))
        ends = [place for stop in prompt.sampling.stop if (place := text.find(stop)) >= 0]
        return text[: min(ends)] if ends else text

    def _logprobs(self, reply: Sampled) -> list[dict[str, Any]]:
        return [
            {**self._token(token), "logprob": logprob, "top_logprobs": []}
            for token, logprob in zip(reply.ids, reply.logprobs, strict=True)
        ]

    def _token(self, token: int) -> dict[str, Any]:
        known = self._tokens.get(token)
        if known is None:
            text = str(self._tokenizer.decode([token]))
            known = self._tokens[token] = {"token": text, "bytes": list(text.encode())}
        return known
