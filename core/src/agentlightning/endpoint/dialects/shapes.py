"""The fields of a request that the endpoint itself reads, with the types their protocol gives them.

All else in a request is the engine's affair and passed on as it came.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct

Object: TypeAlias = dict[str, Any]
Content: TypeAlias = str | list[Object] | None
Choices: TypeAlias = Annotated[int, Meta(ge=1, le=128)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]


class Common(Struct, kw_only=True):
    """What the four protocols share."""

    model: str | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    return_token_ids: bool | None = None
    tools: list[Object] | None = None


class ChatMessage(Struct):
    """A message of chat completions."""

    role: str
    content: Content = None
    tool_calls: list[Object] | None = None


class Chat(Common, kw_only=True):
    """A request for chat completions."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    n: Choices | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    stream_options: Object | None = None
    logprobs: bool | None = None


class Completions(Common, kw_only=True):
    """A request for completions: text or token ids, one prompt or several."""

    prompt: str | list[Any] | None = None
    n: Choices | None = None
    best_of: Choices | None = None
    max_tokens: Count | None = None
    stream_options: Object | None = None
    logprobs: Count | bool | None = None


class Responses(Common, kw_only=True):
    """A request of the Responses API."""

    input: str | list[Object] = ""
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    max_output_tokens: Count | None = None
    include: list[str] | None = None
    tool_choice: str | Object | None = None
    text: Object | None = None
    reasoning: Object | None = None
    parallel_tool_calls: bool | None = None
    top_logprobs: Count | None = None


class AnthropicMessage(Struct):
    """A message of Anthropic's API."""

    role: str
    content: str | list[Object] = ""


class Messages(Common, kw_only=True):
    """A request of Anthropic's Messages API."""

    messages: Annotated[list[AnthropicMessage], Meta(min_length=1)]
    system: str | list[Object] | None = None
    max_tokens: Count | None = None
    stop_sequences: list[str] | None = None
    tool_choice: Object | None = None
    top_k: int | None = None
