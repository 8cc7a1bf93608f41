"""Supervised fine-tuning from recorded traces for agentlightning, on TRL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentlightning import hookimpl

if TYPE_CHECKING:
    from agentlightning.plugins import AlgorithmRegistry


@hookimpl
def register_algorithms(registry: AlgorithmRegistry) -> None:
    """Offer the algorithm."""
    registry.add(
        "sft",
        "agentlightning_sft.algorithm:SupervisedFineTuning",
        summary="fine-tuning on the best recorded traces, or on a dataset",
        config="agentlightning_sft.config:SFTConfig",
    )
