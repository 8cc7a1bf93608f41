"""The algorithm's entry point; torch and TRL are imported when a run starts, not before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from agentlightning.algorithm import Algorithm, AlgorithmContext
from agentlightning.errors import AlgorithmError
from agentlightning.records import JSON, Resources

from agentlightning_rl.config import RLConfig

if TYPE_CHECKING:
    from agentlightning.config import Config as RunConfig


class ReinforcementLearning(Algorithm):
    """Policy gradients on traced rollouts: TRL's GRPO trainer with our rows."""

    Config: ClassVar[type] = RLConfig

    def check(self, config: RunConfig, train: Sequence[JSON], val: Sequence[JSON]) -> None:  # noqa: ARG002 - any row is a task
        """Refuse what training would stumble over once the run exists.

        Raises:
            AlgorithmError: torch or TRL is missing, or TRL was changed.
            ConfigError: the model cannot be opened, or the LoRA's keys or a tracker cannot be used.
        """
        with _libraries():
            from agentlightning_rl.ready import check_ready
        check_ready(config, self.config)

    def run(self, ctx: AlgorithmContext) -> Resources:
        """Train; returns the model's directory as the resource ``llm``, already published.

        Raises:
            AlgorithmError: torch or TRL is missing, or TRL was changed, there are no tasks, or training
                cannot go on.
            NoSamples: a whole batch gave no row.
        """
        with _libraries():
            from agentlightning_rl.run import train
        return train(self.config, ctx)


@contextmanager
def _libraries() -> Iterator[None]:
    """Say what to install when an import inside fails."""
    try:
        yield
    except ImportError as error:
        raise AlgorithmError(
            f"reinforcement learning needs torch, transformers and TRL ({error}); install them: "
            "pip install 'agentlightning-rl[framework]'"
        ) from error
