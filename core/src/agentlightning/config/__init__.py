"""Configuration: one schema, checked before anything is spent."""

from agentlightning.config.datasets import load_dataset
from agentlightning.config.loading import describe, load_config, wrap_resources
from agentlightning.config.models import ModelKind, model_kind, require_open_weights
from agentlightning.config.named import make_named, name_and_options, named_by
from agentlightning.config.ranges import check_ranges
from agentlightning.config.schema import BudgetConfig, Config, Elsewhere, EndpointConfig, RunnersConfig

__all__ = [
    "BudgetConfig",
    "Config",
    "Elsewhere",
    "EndpointConfig",
    "ModelKind",
    "RunnersConfig",
    "check_ranges",
    "describe",
    "load_config",
    "load_dataset",
    "make_named",
    "model_kind",
    "name_and_options",
    "named_by",
    "require_open_weights",
    "wrap_resources",
]
