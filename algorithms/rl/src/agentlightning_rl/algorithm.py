"""The algorithm's entry point; torch and TRL are imported when a run starts, not before."""

from __future__ import annotations

from typing import ClassVar

from agentlightning.algorithm import Algorithm, AlgorithmContext
from agentlightning.errors import AlgorithmError
from agentlightning.records import Resources

from agentlightning_rl.config import RLConfig


class ReinforcementLearning(Algorithm):
    """Policy gradients on traced rollouts: TRL's GRPO trainer with our rows."""

    Config: ClassVar[type] = RLConfig

    def run(self, ctx: AlgorithmContext) -> Resources:
        """Train; returns the model's directory as the resource ``llm``, already published.

        Raises:
            AlgorithmError: torch or TRL is missing or another version than was tried, there are no
                tasks, or training cannot go on.
            NoSamples: a whole batch gave no row.
        """
        try:
            from agentlightning_rl.run import train
        except ImportError as error:
            raise AlgorithmError(
                f"reinforcement learning needs torch, transformers and TRL ({error}); install them: "
                "pip install 'agentlightning-rl[framework]'"
            ) from error
        return train(self.config, ctx)
