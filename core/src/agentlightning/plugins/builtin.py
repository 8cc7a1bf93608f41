"""What the core itself offers, through the same hooks as any plug-in."""

from __future__ import annotations

from keyword import iskeyword
from typing import TYPE_CHECKING

from agentlightning.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from agentlightning.plugins.kinds import (
        CommandRegistry,
        ExecutorRegistry,
        StoreBackendRegistry,
    )

COMMANDS = {
    "explain": "Say what became of every LLM call and reward of a rollout",
    "export": "Write a run to a file",
    "import": "Read an exported run into a store",
    "plugins": "List the plug-ins and why one is not in use",
    "rescore": "Score stored rollouts with another reward function or judge",
    "report": "Report on a run: rewards, what was recorded, trained on and dropped",
    "rollouts": "List rollouts",
    "run": "Run an agent on the rollouts of a run, here or on another machine",
    "store": "Serve a store to other machines, and make tokens for runners",
    "trace": "Show a rollout's trace as a tree",
    "train": "Train as a configuration file says",
    "workers": "List the workers of a store, and what each has done",
}


@hookimpl
def register_store_backends(registry: StoreBackendRegistry) -> None:
    """The store that lives in this process, and the one that a server has."""
    registry.add(
        "memory",
        "agentlightning.store.memory:MemoryStore",
        summary="in this process, gone when it ends",
        schemes=("memory",),
    )
    registry.add(
        "http",
        "agentlightning.store.http.client:HttpStore",
        summary="behind a server: agl store serve",
        schemes=("http", "https"),
    )


@hookimpl
def register_executors(registry: ExecutorRegistry) -> None:
    """Threads and processes of this machine."""
    registry.add(
        "threads",
        "agentlightning.executors.threads:ThreadExecutor",
        summary="runners in threads of this process",
    )
    registry.add(
        "processes",
        "agentlightning.executors.processes:ProcessExecutor",
        summary="runners in processes of this machine; they can be ended",
    )


@hookimpl
def register_commands(registry: CommandRegistry) -> None:
    """The commands of ``agl``."""
    for name, summary in COMMANDS.items():
        attribute = f"{name}_" if iskeyword(name) else name
        registry.add(name, f"agentlightning.cli.{name}_command:{attribute}", summary=summary)
