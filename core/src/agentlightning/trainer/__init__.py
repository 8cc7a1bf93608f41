"""The trainer: what a user calls to train an agent."""

from agentlightning.trainer.summary import TrainResult
from agentlightning.trainer.trainer import Trainer

__all__ = ["TrainResult", "Trainer"]
