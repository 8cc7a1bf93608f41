"""Configuration: one schema, checked before anything is spent."""

from agentlightning.config.datasets import load_dataset
from agentlightning.config.loading import describe, load_config, wrap_resources
from agentlightning.config.models import ModelKind, model_kind, require_open_weights
from agentlightning.config.named import name_and_options
from agentlightning.config.schema import BudgetConfig, Config, RunnersConfig

__all__ = [
    "BudgetConfig",
    "Config",
    "ModelKind",
    "RunnersConfig",
    "describe",
    "load_config",
    "load_dataset",
    "model_kind",
    "name_and_options",
    "require_open_weights",
    "wrap_resources",
]
