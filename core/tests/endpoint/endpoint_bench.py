"""A real store, sink and server around the endpoint, and engines that answer by rule."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import anthropic
import httpx
import openai
from agentlightning.endpoint import Endpoint
from agentlightning.engine import EngineInfo
from agentlightning.recording.sink import Sink
from agentlightning.records import LLM, LLMCall, Outcome, RolloutRequest, Span
from agentlightning.server import Server
from agentlightning.store import Claim, Result, Store
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


def reply_to(body: dict[str, Any], text: str | None = None, **choice: Any) -> dict[str, Any]:
    """What an engine with token ids replies: the last message again, one token a character."""
    said = text if text is not None else str(body["messages"][-1]["content"])
    prompt = [ord(letter) for message in body["messages"] for letter in str(message["content"])]
    scores = [{"token": letter, "logprob": -0.5, "top_logprobs": []} for letter in said]
    made = {
        "index": 0,
        "message": {"role": "assistant", "content": said},
        "finish_reason": "stop",
        "token_ids": [ord(letter) for letter in said],
        "logprobs": {"content": scores},
        **choice,
    }
    usage = {"prompt_tokens": len(prompt), "completion_tokens": len(said), "total_tokens": 0}
    return {
        "id": "reply-1",
        "object": "chat.completion",
        "created": 1,
        "model": body["model"],
        "prompt_token_ids": prompt,
        "choices": [made],
        "usage": usage,
    }


@dataclass
class EchoEngine:
    """Answers by ``rule``; keeps what it was asked."""

    rule: Callable[[dict[str, Any]], Any] = reply_to
    asked: list[dict[str, Any]] = field(default_factory=list)

    async def chat(self, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(body)
        answer = self.rule(body)
        return await answer if asyncio.iscoroutine(answer) else answer


@dataclass
class Bench:
    """One endpoint behind a real server, and the claims of one run."""

    store: Store
    sink: Sink
    endpoint: Endpoint
    url: str
    run_id: str
    clients: list[Any] = field(default_factory=list)

    def claim(self, mode: str = "train") -> Claim:
        self.store.enqueue(self.run_id, [RolloutRequest(input="task", mode=mode)])
        (claim,) = self.store.claim(self.run_id, "worker")
        return claim

    def finish(self, claim: Claim) -> None:
        self.store.finish([Result(key=claim.key, outcome=Outcome(status="succeeded"))])

    def base(self, claim: Claim) -> str:
        return f"{self.url}/rollout/{claim.key.rollout_id}/attempt/{claim.key.number}/v1"

    def client(self, claim: Claim, **options: Any) -> httpx.Client:
        options = {"timeout": 20, **options}
        headers = {"authorization": f"Bearer {claim.token}"}
        return httpx.Client(base_url=self.base(claim), headers=headers, **options)

    def chat(
        self, claim: Claim, text: str = "hello", *, headers: Any = None, **body: Any
    ) -> httpx.Response:
        messages = [{"role": "user", "content": text}]
        with self.client(claim) as client:
            return client.post(
                "/chat/completions",
                json={"model": "policy", "messages": messages, **body},
                headers=headers,
            )

    def serve(self, engine: EchoEngine, model: str = "policy", **options: Any) -> EchoEngine:
        llm = options.pop("llm", LLM(model=model))
        self.endpoint.serve(self.run_id, llm, EngineInfo(model=model, chat=engine.chat), **options)
        return engine

    def openai(self, claim: Claim, **options: Any) -> openai.OpenAI:
        options = {"api_key": claim.token, "max_retries": 0, **options}
        return self._closed_at_the_end(openai.OpenAI(base_url=self.base(claim), **options))

    def anthropic(self, claim: Claim, **options: Any) -> anthropic.Anthropic:
        options = {"api_key": claim.token, "max_retries": 0, **options}
        base = self.base(claim).removesuffix("/v1")
        return self._closed_at_the_end(anthropic.Anthropic(base_url=base, **options))

    def close(self) -> None:
        for client in self.clients:
            client.close()

    def _closed_at_the_end(self, client: Any) -> Any:
        self.clients.append(client)
        return client

    def serve_at(self, url: str, **engine: Any) -> None:
        self.endpoint.serve(
            self.run_id, LLM(model="policy"), EngineInfo(model="m", base_url=url, **engine)
        )

    def spans(self, claim: Claim) -> list[Span]:
        self.sink.flush()
        return list(self.store.spans([claim.key.rollout_id], attempt=claim.key.number))

    def calls(self, claim: Claim) -> list[LLMCall]:
        return [span.call for span in self.spans(claim) if span.call]


@contextmanager
def model_server(handler: Callable[[Request], Any]) -> Iterator[str]:
    """A model server over real HTTP; gives its base URL."""

    async def health(_request: Request) -> JSONResponse:
        return JSONResponse({"instance": "model"})

    app = Starlette(
        routes=[Route("/health", health), Route("/v1/chat/completions", handler, methods=["POST"])]
    )
    app.state.instance_id = "model"
    with Server(app) as server:
        yield f"{server.url}/v1"


@contextmanager
def in_thread(work: Callable[[], Any]) -> Iterator[list[Any]]:
    """Runs ``work`` beside the body; what it returned or raised is in the list afterwards."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(work())
        except Exception as error:  # noqa: BLE001 - handed to the test
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield outcome
    finally:
        thread.join(30)
        assert not thread.is_alive()
