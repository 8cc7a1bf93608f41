"""The tiny policy that stands in for a language model: 0.45 million weights, trained on a CPU."""

from pathlib import Path

from agentlightning_transformers.tiny import build_tiny_policy, render

WARM_START = {
    "steps": 400,
    "batch_size": 16,
    "learning_rate": 3e-3,
    "lr_schedule": "cosine",
    "warmup_steps": 30,
    "adam_beta2": 0.98,
}
"""Enough to know every kind of conversation in the traces: after 100 steps only half of what is sampled
is well-formed."""


def build(directory: Path, traces: list[dict], *, seed: int = 0) -> Path:
    """Write an untrained policy whose tokenizer was learnt from the conversations it will have."""
    texts = [render(trace["messages"], trace["tools"]) for trace in traces]
    return build_tiny_policy(directory, texts, seed=seed)
