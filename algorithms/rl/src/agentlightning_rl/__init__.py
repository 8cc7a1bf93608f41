"""Reinforcement learning on traced rollouts for agentlightning, on TRL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentlightning import hookimpl

if TYPE_CHECKING:
    from agentlightning.plugins import AlgorithmRegistry

POLICIES = ("grpo", "dr_grpo", "dapo", "gspo", "rloo", "flow_grpo", "ppo")


@hookimpl
def register_algorithms(registry: AlgorithmRegistry) -> None:
    """Offer the algorithm under its own name and that of each policy."""
    registry.add(
        "rl",
        "agentlightning_rl.algorithm:ReinforcementLearning",
        summary="policy gradients on traced rollouts",
        config="agentlightning_rl.config:RLConfig",
        aliases={policy: {"policy": policy} for policy in POLICIES},
    )
