"""The hooks: everything a plug-in may implement.

A plug-in is a module (or any object) that an entry point of the group ``agentlightning`` names. It
implements the hooks it needs, each a function marked with ``@agentlightning.hookimpl``::

    from agentlightning import hookimpl

    @hookimpl
    def register_adapters(registry):
        registry.add("mine", "my_package.adapter:MyAdapter", summary="…", trigger="my_framework")

Register hooks are called once, when the plug-ins are loaded. Targets are strings, so that nothing
heavy is imported before it is asked for. Observer hooks are called in the trainer's process; what
they raise is reported and stops nothing. A hook may leave out arguments it does not use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentlightning.algorithm import RolloutResult
    from agentlightning.plugins.kinds import (
        AdapterRegistry,
        AlgorithmRegistry,
        CommandRegistry,
        EngineRegistry,
        ExecutorRegistry,
        StoreBackendRegistry,
    )
    from agentlightning.records import ResourcesVersion, Run

PROJECT = "agentlightning"
"""The name of the entry-point group and of the hook markers."""

HOOK_API = 1
"""Grows by one with every release that adds a hook or an argument."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

# --- what there is, told once when the plug-ins are loaded ------------------------------------


@hookspec
def register_adapters(registry: AdapterRegistry) -> None:
    """Offer tracer adapters: ``registry.add(name, target, summary=…, trigger="framework_module")``.

    Args:
        registry: makes an adapter from ``adapter(**options)``.
    """


@hookspec
def register_store_backends(registry: StoreBackendRegistry) -> None:
    """Offer store backends: ``registry.add(name, target, summary=…, schemes=("sqlite",))``.

    Args:
        registry: makes a store from ``store(url)``.
    """


@hookspec
def register_algorithms(registry: AlgorithmRegistry) -> None:
    """Offer algorithms: ``registry.add(name, target, summary=…, config="module:Config")``.

    Args:
        registry: makes an algorithm from ``algorithm(config)``.
    """


@hookspec
def register_engines(registry: EngineRegistry) -> None:
    """Offer engines: ``registry.add(name, target, summary=…)``.

    Args:
        registry: makes an engine from ``engine(model, **options)``.
    """


@hookspec
def register_executors(registry: ExecutorRegistry) -> None:
    """Offer executors: ``registry.add(name, target, summary=…)``.

    Args:
        registry: makes an executor from ``executor(**options)``.
    """


@hookspec
def register_commands(registry: CommandRegistry) -> None:
    """Offer commands of ``agl``: ``registry.add(name, target, summary=…)``, each a click command.

    Args:
        registry: holds the commands by the name they are typed with.
    """


# --- what happens, told in the trainer's process ----------------------------------------------


@hookspec
def rollout_finished(run: Run, result: RolloutResult) -> None:
    """A rollout is over, whatever its status, and its samples are complete.

    Args:
        run: the run it belongs to.
        result: the rollout with its spans, rewards and transitions.
    """


@hookspec
def resources_published(run: Run, version: ResourcesVersion) -> None:
    """An algorithm published resources; candidates are told too.

    Args:
        run: the run they belong to.
        version: the resources with their number and note.
    """


@hookspec
def metrics_logged(run: Run, metrics: Mapping[str, float], step: int) -> None:
    """An algorithm logged numbers.

    Args:
        run: the run they belong to.
        metrics: values by name.
        step: the algorithm's own count of steps.
    """
