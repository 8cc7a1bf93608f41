"""The contract of an engine: something that serves the policy and takes new weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from agentlightning.records import JSON

ChatHandler: TypeAlias = Callable[[dict[str, JSON]], Awaitable[dict[str, JSON]]]
"""Answers one chat completions body (never streamed) with one chat completions reply.

Raises ``EngineError`` for a body it cannot serve, which is answered with status 400; anything else it
raises is its own failure."""


@dataclass(frozen=True)
class EngineInfo:
    """What an engine offers once started.

    Attributes:
        model: the name to ask for.
        base_url: where its OpenAI-compatible API is, ending in ``/v1``; None for an engine that
            lives in this process.
        chat: for such an engine, the coroutine function the endpoint calls instead of HTTP. It may be
            awaited on any event loop, many at a time.
        returns_token_ids: replies carry vLLM's ``prompt_token_ids`` and ``token_ids`` when asked.
        takes_token_ids: requests may carry token ids instead of messages.
        max_model_len: prompt and reply together, in tokens; None where unknown.
    """

    model: str
    base_url: str | None = None
    chat: ChatHandler | None = None
    returns_token_ids: bool = True
    takes_token_ids: bool = False
    max_model_len: int | None = None


@dataclass(frozen=True)
class FullDir:
    """All weights, as a directory that ``from_pretrained`` reads."""

    path: Path


@dataclass(frozen=True)
class LoraDir:
    """A LoRA, as a directory that peft reads."""

    path: Path


@dataclass(frozen=True)
class Live:
    """The trainer's own module, shared with an engine in the same process."""

    module: Any
    tokenizer: Any


Weights: TypeAlias = FullDir | LoraDir | Live


class Engine(ABC):
    """Serves one policy. Registered as ``engine(model, **options)``.

    Replies carry vLLM's ``return_token_ids`` fields, whatever the engine. Pausing and draining is the
    endpoint's work: while it calls :meth:`load` no request is under way.
    """

    @abstractmethod
    def start(self) -> EngineInfo:
        """Get ready to serve; raises ``EngineError`` for a model that cannot be served."""

    @abstractmethod
    def load(self, weights: Weights, version: int, *, lora: str | None = None) -> str:
        """Serve these weights from now on; returns the model name to ask for."""

    @abstractmethod
    def exclusive(self) -> AbstractContextManager[None]:
        """No request runs inside: on live weights an engine generates or the trainer trains."""

    @abstractmethod
    def stop(self) -> None:
        """Free everything; harmless when repeated."""
