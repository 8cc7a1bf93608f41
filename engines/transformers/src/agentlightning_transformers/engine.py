"""The embedded engine: the policy served from inside the trainer's own process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from agentlightning.engine import Engine, EngineInfo, Live, Weights
from agentlightning.errors import EngineError
from agentlightning.records import JSON

from agentlightning_transformers.batching import Batcher
from agentlightning_transformers.checkpoint import Checkpoint, private_tokenizer, read_checkpoint
from agentlightning_transformers.policy import Policy
from agentlightning_transformers.replies import ReplyWriter
from agentlightning_transformers.requests import RequestReader
from agentlightning_transformers.sampling import Prompt, Sampled, generate


@dataclass(frozen=True)
class _Serving:
    """What answers requests once the engine has started."""

    checkpoint: Checkpoint
    reader: RequestReader
    writer: ReplyWriter
    batcher: Batcher


class TransformersEngine(Engine):
    """Micro-batched ``generate``, for small models and for machines without vLLM.

    Weights are read at the first request, unless :meth:`load` brought others before; with ``Live``
    weights none are read at all. There is one policy, so the model a request names is not looked at.

    Args:
        model: a directory written by ``save_pretrained``, or the name of a model on the hub.
        max_model_len: prompt and reply together, in tokens; the model's own limit by default.
        max_new_tokens: the reply's limit for requests that name none; by default all that is left.
        max_batch: the largest number of replies generated together.
        batch_wait_ms: the longest time a request waits for others to share its batch.
        device: where the weights go; ``auto`` takes an accelerator if there is one.
        dtype: their type; ``auto`` takes the one they were saved in. ``Live`` weights that are not as
            these two say are refused, so that a trainer gives a directory instead.
    """

    def __init__(
        self,
        model: str,
        *,
        max_model_len: int | None = None,
        max_new_tokens: int | None = None,
        max_batch: int = 64,
        batch_wait_ms: float = 30.0,
        device: str = "auto",
        dtype: str = "auto",
    ) -> None:
        if max_batch < 1 or batch_wait_ms < 0:
            raise EngineError(
                f"max_batch={max_batch} and batch_wait_ms={batch_wait_ms}: expected at least 1 and 0"
            )
        self._model = str(model)
        self._max_model_len = max_model_len
        self._max_new_tokens = max_new_tokens
        self._max_batch = max_batch
        self._batch_wait_s = batch_wait_ms / 1000
        self._policy = Policy(self._model, device=device, dtype=dtype)
        self._trainers_tokenizer: Any = None
        self._serving: _Serving | None = None
        self._stopped = False

    def start(self) -> EngineInfo:
        """Read the configuration and the tokenizer, and get ready for requests."""
        if self._stopped:
            raise EngineError("this engine has been stopped; make a new one")
        if self._serving is None:
            checkpoint = read_checkpoint(self._model, max_model_len=self._max_model_len)
            batcher = Batcher(self._generate, max_batch=self._max_batch, wait_s=self._batch_wait_s)
            self._serving = self._serve(checkpoint, self._trainers_tokenizer, batcher)
        limit = self._serving.checkpoint.max_model_len
        return EngineInfo(model=self._model, chat=self._chat, max_model_len=limit)

    def load(self, weights: Weights, version: int, *, lora: str | None = None) -> str:  # noqa: ARG002
        """Serve these weights from now on; the name stays, since there is one policy here."""
        tokenizer, serving = self._trainers_tokenizer, self._serving
        if isinstance(weights, Live) and weights.tokenizer is not tokenizer:
            tokenizer = weights.tokenizer
            if serving is not None:
                serving = self._serve(serving.checkpoint, tokenizer, serving.batcher)
        self._policy.load(weights)  # may refuse them, and then all stays as it was
        self._trainers_tokenizer, self._serving = tokenizer, serving
        return self._model

    def exclusive(self) -> AbstractContextManager[None]:
        """The one lock: a batch that has begun is finished first, and none begins inside."""
        return self._policy.for_trainer()

    def stop(self) -> None:
        """Finish the batch under way, fail what is queued, and let go of the weights."""
        self._stopped = True
        self._policy.close()
        if self._serving is not None:
            self._serving.batcher.stop()

    def _serve(self, checkpoint: Checkpoint, trainers_tokenizer: Any, batcher: Batcher) -> _Serving:
        if trainers_tokenizer is not None:
            checkpoint = replace(
                checkpoint, tokenizer=private_tokenizer(trainers_tokenizer, self._model)
            )
        return _Serving(
            checkpoint=checkpoint,
            reader=RequestReader(
                checkpoint.tokenizer,
                max_model_len=checkpoint.max_model_len,
                max_new_tokens=self._max_new_tokens,
            ),
            writer=ReplyWriter(checkpoint.tokenizer, model=self._model, stop_ids=checkpoint.stop_ids),
            batcher=batcher,
        )

    async def _chat(self, body: dict[str, JSON]) -> dict[str, JSON]:
        serving = self._serving
        if serving is None:
            raise EngineError("the engine has not been started")
        request = serving.reader.read(body)
        futures = [serving.batcher.submit(prompt) for prompt in request.prompts]
        sampled = await asyncio.gather(*map(asyncio.wrap_future, futures))
        return serving.writer.write(request, sampled)

    def _generate(self, batch: Sequence[Prompt]) -> Sequence[Sampled | Exception]:
        serving = self._serving
        if serving is None:
            raise EngineError("the engine has not been started")
        checkpoint = serving.checkpoint
        with self._policy.for_batch() as module:
            return generate(
                module, batch, stop_ids=checkpoint.stop_ids, decode=checkpoint.tokenizer.decode
            )
