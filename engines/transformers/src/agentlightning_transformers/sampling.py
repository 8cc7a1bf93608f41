"""Generating a batch: each row with its own sampling, its own length, its own end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
)

_PAD: Final = 0  # any id: padding is masked out, and what follows a row's end is cut off
_SETTINGS: Final = GenerationConfig(do_sample=False, use_cache=True, pad_token_id=_PAD)  # type: ignore[no-untyped-call]

Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True)
class Sampling:
    """How one reply is sampled.

    Attributes:
        max_tokens: at most so many new tokens.
        temperature: 0 is greedy.
        top_p: keep the likeliest tokens that together have this probability; 1 keeps all.
        top_k: keep so many of the likeliest tokens; 0 keeps all.
        stop: texts that end the reply.
        seed: makes this reply repeatable, whatever else is in the batch.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stop: tuple[str, ...] = ()
    seed: int | None = None


@dataclass(frozen=True)
class Prompt:
    """One reply to generate."""

    ids: list[int]
    sampling: Sampling


@dataclass(frozen=True)
class Sampled:
    """One generated reply.

    ``logprobs`` are those of the model's distribution at the sampling temperature, in float32, before
    ``top_p`` and ``top_k`` cut it; at temperature 0 those of the model's own distribution. The token
    that ended the reply is part of ``ids``.
    """

    ids: list[int]
    logprobs: list[float]
    finish_reason: Literal["stop", "length"]


class NotFinite(ArithmeticError):
    """The model's probabilities are not finite numbers: its weights have diverged."""

    def __init__(self) -> None:
        super().__init__(
            "the model's probabilities are not finite numbers: its weights have diverged; go back to "
            "an earlier checkpoint and lower the learning rate"
        )


class _Sampler(LogitsProcessor):
    """Chooses every row's next token itself and leaves ``generate`` only that one to pick.

    So rows of any sampling share a batch, and the log-probability kept is that of the choice.
    """

    def __init__(self, batch: Sequence[Prompt], device: torch.device) -> None:
        def column(values: list[Any]) -> torch.Tensor:
            return torch.tensor(values, device=device).unsqueeze(1)

        self.device = device
        asked = [prompt.sampling for prompt in batch]
        self._greedy = column([one.temperature == 0 for one in asked])
        self._temperature = column([float(one.temperature) or 1.0 for one in asked])
        self._top_p = (
            column([float(one.top_p) for one in asked]) if any(s.top_p < 1 for s in asked) else None
        )
        self._top_k = column([one.top_k for one in asked]) if any(s.top_k > 0 for s in asked) else None
        self._seeded = {
            row: torch.Generator(device).manual_seed(one.seed)
            for row, one in enumerate(asked)
            if one.seed is not None
        }
        self._shared = torch.Generator(device)
        self._shared.seed()
        self.tokens: list[torch.Tensor] = []
        self.logprobs: list[torch.Tensor] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        logprobs = torch.log_softmax(scores.float() / self._temperature, dim=-1)
        drawn = self._draw(self._cut(logprobs).exp())
        tokens = torch.where(self._greedy, logprobs.argmax(dim=-1, keepdim=True), drawn)
        self.tokens.append(tokens)
        self.logprobs.append(logprobs.gather(1, tokens))
        return torch.full_like(scores, -math.inf).scatter_(1, tokens, 0.0)

    def _cut(self, logprobs: torch.Tensor) -> torch.Tensor:
        if self._top_p is None and self._top_k is None:
            return logprobs
        ordered, order = logprobs.sort(dim=-1, descending=True)
        dropped = torch.zeros_like(ordered, dtype=torch.bool)
        if self._top_p is not None:
            probabilities = ordered.exp()
            dropped |= (probabilities.cumsum(dim=-1) - probabilities >= self._top_p) & (self._top_p < 1)
        if self._top_k is not None:
            rank = torch.arange(ordered.shape[-1], device=ordered.device)
            dropped |= (rank >= self._top_k) & (self._top_k > 0)
        return logprobs.masked_fill(dropped.scatter(1, order, dropped), -math.inf)

    def _draw(self, probabilities: torch.Tensor) -> torch.Tensor:
        """Sample in proportion: the smallest exponential waiting time wins.

        ``multinomial`` would abort the process' CUDA context on weights that have diverged.
        """
        waiting = torch.empty_like(probabilities).exponential_(generator=self._shared)
        for row, generator in self._seeded.items():
            waiting[row].exponential_(generator=generator)
        return (probabilities / waiting).argmax(dim=-1, keepdim=True)


class _Ends(StoppingCriteria):
    """Notes where each row ends: at a stop token, at a stop text, or at its limit."""

    def __init__(
        self, batch: Sequence[Prompt], sampler: _Sampler, stop_ids: frozenset[int], decode: Decode
    ) -> None:
        device = sampler.device
        self._sampler = sampler
        self._stop_ids = torch.tensor(sorted(stop_ids), device=device, dtype=torch.long)
        self._limits = torch.tensor([prompt.sampling.max_tokens for prompt in batch], device=device)
        self._texts = {row: one.sampling.stop for row, one in enumerate(batch) if one.sampling.stop}
        self._decode = decode
        self.lengths = torch.zeros(len(batch), device=device, dtype=torch.long)
        self.stopped = torch.zeros(len(batch), device=device, dtype=torch.bool)
        self.done = torch.zeros(len(batch), device=device, dtype=torch.bool)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:  # noqa: ARG002
        stops = torch.isin(self._sampler.tokens[-1].squeeze(1), self._stop_ids)
        for row, texts in self._texts.items():
            if not self.done[row]:
                text = self._decode([int(step[row]) for step in self._sampler.tokens])
                stops[row] |= any(stop in text for stop in texts)
        self.lengths += ~self.done
        self.stopped |= stops & ~self.done
        self.done |= stops | (self.lengths >= self._limits)
        return self.done


def generate(
    module: Any, batch: Sequence[Prompt], *, stop_ids: frozenset[int], decode: Decode
) -> list[Sampled | NotFinite]:
    """Generate one reply to each prompt; a row whose probabilities are not finite has none.

    Args:
        module: a causal language model, or one wrapped by peft.
        batch: what to answer; of any lengths and samplings.
        stop_ids: tokens that end a reply.
        decode: ids to text, for the stop texts.
    """
    device = module.device
    width = max(len(prompt.ids) for prompt in batch)
    padding = [width - len(prompt.ids) for prompt in batch]
    ids = [[_PAD] * pad + prompt.ids for pad, prompt in zip(padding, batch, strict=True)]
    mask = [[0] * pad + [1] * len(prompt.ids) for pad, prompt in zip(padding, batch, strict=True)]
    sampler = _Sampler(batch, device)
    ends = _Ends(batch, sampler, stop_ids, decode)
    with _answering(module) as answering:
        answering.generate(
            input_ids=torch.tensor(ids, device=device),
            attention_mask=torch.tensor(mask, device=device),
            max_new_tokens=max(prompt.sampling.max_tokens for prompt in batch),
            logits_processor=LogitsProcessorList([sampler]),
            stopping_criteria=StoppingCriteriaList([ends]),
        )
    return _collect(sampler, ends)


def _collect(sampler: _Sampler, ends: _Ends) -> list[Sampled | NotFinite]:
    logprobs = torch.cat(sampler.logprobs, dim=1).cpu()
    tokens = torch.cat(sampler.tokens, dim=1).tolist()
    replies: list[Sampled | NotFinite] = []
    for row, (length, stopped) in enumerate(
        zip(ends.lengths.tolist(), ends.stopped.tolist(), strict=True)
    ):
        values = logprobs[row, :length]
        if not bool(torch.isfinite(values).all()):
            replies.append(NotFinite())
            continue
        reason: Literal["stop", "length"] = "stop" if stopped else "length"
        replies.append(
            Sampled(ids=tokens[row][:length], logprobs=values.tolist(), finish_reason=reason)
        )
    return replies


@contextmanager
def _answering(module: Any) -> Iterator[Any]:
    """The module set to answer, and put back as it was: it may be the trainer's own.

    Dropout is off, and the checkpoint's own generation settings, such as a repetition penalty, do not
    apply: what they change would be missing from the log-probabilities.
    """
    # peft's own `generate` would set these settings on the module inside for good.
    answering = module.get_base_model() if hasattr(module, "get_base_model") else module
    training = [part for part in module.modules() if part.training]
    settings = answering.generation_config
    for part in training:
        part.training = False
    answering.generation_config = _SETTINGS
    try:
        yield answering
    finally:
        answering.generation_config = settings
        for part in training:
            part.training = True
