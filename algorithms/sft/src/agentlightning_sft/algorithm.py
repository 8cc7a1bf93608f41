"""The algorithm's entry point; torch and TRL are imported when a run starts, not before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from agentlightning.algorithm import Algorithm, AlgorithmContext
from agentlightning.errors import AlgorithmError
from agentlightning.records import JSON, Resources

from agentlightning_sft.config import SFTConfig

if TYPE_CHECKING:
    from agentlightning.config import Config as RunConfig


class SupervisedFineTuning(Algorithm):
    """Learns to say what good traces, or a dataset of chats, say: TRL's SFT trainer on exact tokens."""

    Config: ClassVar[type] = SFTConfig

    def check(self, config: RunConfig, train: Sequence[JSON], val: Sequence[JSON]) -> None:
        """Refuse what training would stumble over once the run exists.

        Raises:
            AlgorithmError: torch or TRL is missing.
            ConfigError: the model cannot be opened, or the LoRA's keys or a tracker cannot be used.
            DatasetError: a training row is no chat, or validation tasks and chats are mixed.
        """
        with _libraries():
            from agentlightning_sft.ready import check_ready
        check_ready(config, self.config, train, val)

    def run(self, ctx: AlgorithmContext) -> Resources:
        """Train; returns the model's directory as the resource ``llm``, already published.

        Raises:
            DatasetError: a row cannot be trained on; the message names it.
            ConfigError: the model or the recorded run cannot be opened, or its chat template does not
                mark what the assistant says.
            NoSamples: no recorded rollout gave a row; the reasons are counted.
            AlgorithmError: torch or TRL is missing.
        """
        with _libraries():
            from agentlightning_sft.run import fine_tune
        return fine_tune(self.config, ctx)


@contextmanager
def _libraries() -> Iterator[None]:
    """Say what to install when an import inside fails."""
    try:
        yield
    except ImportError as error:
        raise AlgorithmError(
            f"supervised fine-tuning needs torch, transformers and TRL ({error}); install them: "
            "pip install 'agentlightning-sft[framework]'"
        ) from error
