"""Plug-ins: the hooks, what is registered by name, and the loader that isolates broken ones."""

from agentlightning.plugins.hookspecs import HOOK_API, hookimpl
from agentlightning.plugins.kinds import (
    AdapterRegistry,
    AlgorithmRegistry,
    CommandRegistry,
    EngineRegistry,
    ExecutorRegistry,
    StoreBackendRegistry,
)
from agentlightning.plugins.loader import Plugins, load_plugins
from agentlightning.plugins.registry import Entry, Registry
from agentlightning.plugins.requirements import Need
from agentlightning.plugins.shared import plugins, when_loaded
from agentlightning.plugins.status import PluginFailure, PluginInfo, State

__all__ = [
    "HOOK_API",
    "AdapterRegistry",
    "AlgorithmRegistry",
    "CommandRegistry",
    "EngineRegistry",
    "Entry",
    "ExecutorRegistry",
    "Need",
    "PluginFailure",
    "PluginInfo",
    "Plugins",
    "Registry",
    "State",
    "StoreBackendRegistry",
    "hookimpl",
    "load_plugins",
    "plugins",
    "when_loaded",
]
