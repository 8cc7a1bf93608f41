"""Reading a chat completions request: what to generate, and from which token ids."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import jinja2
from agentlightning.errors import EngineError
from agentlightning.llm_api import BadConversation, template_messages, template_tools

from agentlightning_transformers.sampling import Prompt, Sampling

_logger = logging.getLogger("agentlightning.engines.transformers")

_NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    # What this engine cannot do, with the values that ask for nothing.
    "audio": (),
    "best_of": (1,),
    "frequency_penalty": (0,),
    "function_call": ("auto", "none"),
    "functions": ([],),
    "guided_json": (),
    "logit_bias": ({},),
    "min_p": (0,),
    "modalities": (["text"],),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "stream": (False,),
    "structured_outputs": (),
    "tool_choice": ("auto", "none"),
    "top_logprobs": (0,),
}
_READ: Final = frozenset(
    {
        *("messages", "tools", "parallel_tool_calls", "chat_template_kwargs"),
        *("max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "stop", "seed", "n"),
        *("logprobs", "return_token_ids"),
    }
)
_NO_EFFECT: Final = frozenset(
    {
        *("model", "user", "metadata", "store", "stream_options", "service_tier", "safety_identifier"),
    }
)


@dataclass(frozen=True)
class ChatRequest:
    """A request, read.

    Attributes:
        prompts: one for each reply asked for.
        prompt_text: the templated conversation.
        tools: the tools the model may call; empty when there are none or it may not.
        one_call: at most one tool call in a reply.
        wants_logprobs: the reply is to carry log-probabilities; ``wants_token_ids`` the same for ids.
    """

    prompts: tuple[Prompt, ...]
    prompt_text: str
    tools: tuple[dict[str, Any], ...]
    one_call: bool
    wants_logprobs: bool
    wants_token_ids: bool


class RequestReader:
    """Turns request bodies into prompts for one tokenizer and one limit of length.

    Args:
        tokenizer: with a chat template; not shared with anybody who changes it.
        max_model_len: prompt and reply together, in tokens.
        max_new_tokens: the reply's limit where a request names none; None for what is left.
    """

    def __init__(self, tokenizer: Any, *, max_model_len: int, max_new_tokens: int | None) -> None:
        self._tokenizer = tokenizer
        self._max_model_len = max_model_len
        self._max_new_tokens = max_new_tokens
        self._warned: set[str] = set()

    def read(self, body: Mapping[str, Any]) -> ChatRequest:
        """Read a request.

        Raises:
            EngineError: it cannot be served as it stands; the message names the field.
        """
        given = {key: value for key, value in body.items() if value is not None}
        self._refuse_or_warn(given)
        messages, tools = _conversation(given)
        text = self._render(messages, tools, given.get("chat_template_kwargs") or {})
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        sampling = self._sampling(given, room=self._max_model_len - len(ids), prompt=len(ids))
        return ChatRequest(
            prompts=tuple(
                Prompt(
                    ids,
                    replace(sampling, seed=None if sampling.seed is None else sampling.seed + number),
                )
                for number in range(_number(given, "n", 1, low=1, high=1024, whole=True))
            ),
            prompt_text=text,
            tools=tools,
            one_call=given.get("parallel_tool_calls") is False,
            wants_logprobs=given.get("logprobs") is True,
            wants_token_ids=given.get("return_token_ids") is True,
        )

    def _refuse_or_warn(self, given: Mapping[str, Any]) -> None:
        for key, neutral in _NEUTRAL.items():
            if key in given and given[key] not in neutral:
                raise EngineError(
                    f"{key}={json.dumps(given[key])[:80]}: the transformers engine cannot do that; "
                    f"leave {key!r} out, or serve the model with the vllm engine"
                )
        unknown = given.keys() - _NEUTRAL.keys() - _READ - _NO_EFFECT - self._warned
        if unknown:
            self._warned |= unknown
            _logger.warning("the transformers engine does not know %s: no effect", sorted(unknown))

    def _render(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]],
        options: Mapping[str, Any],
    ) -> str:
        try:
            text = self._tokenizer.apply_chat_template(
                list(messages),
                tools=list(tools) or None,
                add_generation_prompt=True,
                tokenize=False,
                **options,
            )
        except (jinja2.TemplateError, TypeError, ValueError) as error:
            raise EngineError(f"the model's chat template refuses these messages: {error}") from error
        return str(text)

    def _sampling(self, given: Mapping[str, Any], *, room: int, prompt: int) -> Sampling:
        if room < 1:
            raise EngineError(
                f"the prompt has {prompt} tokens, but prompt and reply together may have "
                f"{self._max_model_len} (max_model_len); shorten the conversation"
            )
        asked = next((key for key in ("max_completion_tokens", "max_tokens") if key in given), None)
        if asked is not None:
            limit = _number(given, asked, room, low=1, high=None, whole=True)
        else:
            limit = self._max_new_tokens or room
        stop = given.get("stop") or ()
        return Sampling(
            max_tokens=min(limit, room),
            temperature=_number(given, "temperature", 1.0, low=0, high=None),
            top_p=_number(given, "top_p", 1.0, low=1e-6, high=1),
            top_k=max(0, _number(given, "top_k", 0, low=-1, high=None, whole=True)),
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
            seed=_number(given, "seed", 0, low=None, high=None, whole=True)
            if "seed" in given
            else None,
        )


def _conversation(
    given: Mapping[str, Any],
) -> tuple[list[dict[str, Any]], tuple[dict[str, Any], ...]]:
    """The messages, and the tools that the model may call."""
    shown = None if given.get("tool_choice") == "none" else given.get("tools")
    try:
        return template_messages(given.get("messages")), tuple(template_tools(shown))
    except BadConversation as error:
        raise EngineError(str(error)) from error


def _number(
    given: Mapping[str, Any],
    key: str,
    default: Any,
    *,
    low: float | None,
    high: float | None,
    whole: bool = False,
) -> Any:
    value = given.get(key, default)
    kind = int if whole else (int, float)
    fits = isinstance(value, kind) and not isinstance(value, bool)
    if not fits or (low is not None and value < low) or (high is not None and value > high):
        limits = " ".join(
            f"{word} {limit}" for word, limit in (("from", low), ("to", high)) if limit is not None
        )
        raise EngineError(
            f"{key}={value!r}: expected a {'whole ' if whole else ''}number {limits}".rstrip()
        )
    return value
