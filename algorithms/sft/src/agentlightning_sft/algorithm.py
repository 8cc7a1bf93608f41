"""The algorithm's entry point; torch and TRL are imported when a run starts, not before."""

from __future__ import annotations

from typing import ClassVar

from agentlightning.algorithm import Algorithm, AlgorithmContext
from agentlightning.errors import AlgorithmError
from agentlightning.records import Resources

from agentlightning_sft.config import SFTConfig


class SupervisedFineTuning(Algorithm):
    """Learns to say what good traces, or a dataset of chats, say: TRL's SFT trainer on exact tokens."""

    Config: ClassVar[type] = SFTConfig

    def run(self, ctx: AlgorithmContext) -> Resources:
        """Train; returns the model's directory as the resource ``llm``, already published.

        Raises:
            DatasetError: a row cannot be trained on; the message names it.
            ConfigError: the model or the recorded run cannot be opened, or its chat template does not
                mark what the assistant says.
            NoSamples: no recorded rollout gave a row; the reasons are counted.
            AlgorithmError: torch or TRL is missing or another version than was tried.
        """
        try:
            from agentlightning_sft.run import fine_tune
        except ImportError as error:
            raise AlgorithmError(
                f"supervised fine-tuning needs torch, transformers and TRL ({error}); install them: "
                "pip install 'agentlightning-sft[framework]'"
            ) from error
        return fine_tune(self.config, ctx)
