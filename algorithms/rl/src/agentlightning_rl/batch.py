"""Rows and advantages as tensors: padded, weighted, and cut into blocks that fit in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import torch
from agentlightning.samples import Row
from torch.nn.utils.rnn import pad_sequence

Block: TypeAlias = dict[str, torch.Tensor]
"""The inputs of TRL's GRPO loss for some rows; shapes in :func:`make_blocks`."""


def make_blocks(
    rows: Sequence[Row],
    advantages: Mapping[str, float],
    *,
    pad_id: int,
    block_tokens: int,
    device: torch.device | str = "cpu",
) -> list[Block]:
    """Cut a batch into blocks whose losses add up to the loss of the batch.

    No row is dropped, split or repeated; how rows are grouped into blocks changes no result. Rows of
    one length lie together, so that little is padded. With B rows, prompts of at most P and responses
    of at most C tokens, a block holds:

    - ``prompt_ids``, ``prompt_mask`` (B, P), padded on the left
    - ``completion_ids``, ``completion_mask`` (B, C), padded on the right
    - ``tool_mask`` (B, C): the weight of each token in the loss, 0 where nothing was sampled
    - ``old_per_token_logps`` (B, C): as recorded when the tokens were sampled
    - ``advantages`` (B,)
    - ``num_items_in_batch``: what the sum over all blocks is divided by

    Args:
        rows: with log-probabilities and at least one sampled token each.
        advantages: by rollout id, one for each row's rollout.
        pad_id: the token to pad with.
        block_tokens: the most tokens in a block, padding included, unless one row alone has more.
        device: where the tensors go.
    """
    weights, total = token_weights(rows)
    blocks = []
    for chosen in _cut(rows, block_tokens):
        members = [rows[index] for index in chosen]
        block = _pad(members, pad_id)
        per_token = torch.tensor([weights[index] for index in chosen]).unsqueeze(1)
        block["tool_mask"] = block.pop("sampled") * per_token
        block["advantages"] = torch.tensor([advantages[row.rollout_id] for row in members])
        block["num_items_in_batch"] = torch.tensor(total)
        blocks.append({name: tensor.to(device) for name, tensor in block.items()})
    return blocks


def token_weights(rows: Sequence[Row]) -> tuple[list[float], float]:
    """The weight of every sampled token of each row, and what the weighted sum is divided by.

    GRPO's loss (Shao et al. 2024, equation 3) is the mean over rollouts of the mean over a rollout's
    tokens. A rollout of several rows counts once: its rows share its weight as ``Row.weight`` says,
    and each row's share is spread evenly over its sampled tokens. All weights and the divisor are
    scaled alike so that no row's weights add up to less than 1, where TRL's loss would clamp.
    """
    shares = [row.weight for row in rows]
    scale = 1.0 / min(shares)
    sampled = [sum(row.mask) for row in rows]
    weights = [scale * share / count for share, count in zip(shares, sampled, strict=True)]
    return weights, scale * sum(shares)


def _cut(rows: Sequence[Row], block_tokens: int) -> Iterator[list[int]]:
    """Indices of the rows of each block, shortest rows first."""
    order = sorted(range(len(rows)), key=lambda i: (_length(rows[i]), len(rows[i].prompt_ids)))
    block: list[int] = []
    prompt = response = 0
    for index in order:
        row = rows[index]
        wider_prompt = max(prompt, len(row.prompt_ids))
        wider_response = max(response, len(row.response_ids))
        if block and (len(block) + 1) * (wider_prompt + wider_response) > block_tokens:
            yield block
            block, wider_prompt, wider_response = [], len(row.prompt_ids), len(row.response_ids)
        block.append(index)
        prompt, response = wider_prompt, wider_response
    if block:
        yield block


def _length(row: Row) -> int:
    return len(row.prompt_ids) + len(row.response_ids)


def _pad(rows: Sequence[Row], pad_id: int) -> Block:
    prompts = [_integers(row.prompt_ids.to_bytes()) for row in rows]
    responses = [_integers(row.response_ids.to_bytes()) for row in rows]
    return {
        "prompt_ids": pad_sequence(
            prompts, batch_first=True, padding_value=pad_id, padding_side="left"
        ),
        "prompt_mask": _padded_ones(prompts, "left"),
        "completion_ids": pad_sequence(responses, batch_first=True, padding_value=pad_id),
        "completion_mask": _padded_ones(responses, "right"),
        "sampled": pad_sequence(
            [torch.frombuffer(bytearray(row.mask), dtype=torch.uint8).float() for row in rows],
            batch_first=True,
        ),
        "old_per_token_logps": pad_sequence([_logprobs(row) for row in rows], batch_first=True),
    }


def _padded_ones(sequences: Sequence[torch.Tensor], side: str) -> torch.Tensor:
    ones = [torch.ones_like(sequence) for sequence in sequences]
    return pad_sequence(ones, batch_first=True, padding_side=side)


def _integers(little_endian: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(little_endian), dtype=torch.int32).long()


def _logprobs(row: Row) -> torch.Tensor:
    if row.logprobs is None:
        raise ValueError(
            f"a row of rollout {row.rollout_id} has no log-probabilities; expected one a token"
        )
    return torch.tensor(list(row.logprobs), dtype=torch.float32)
