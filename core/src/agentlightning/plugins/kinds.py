"""The six kinds of things a plug-in can offer: one typed registry each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from agentlightning.errors import PluginError, UnknownName
from agentlightning.plugins.registry import Registry, canonical, import_target

if TYPE_CHECKING:
    import click

    from agentlightning.adapter import TracerAdapter
    from agentlightning.algorithm import Algorithm
    from agentlightning.engine import Engine
    from agentlightning.executor import Executor
    from agentlightning.store import Store

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):", re.IGNORECASE)


class AdapterRegistry(Registry["TracerAdapter"]):
    """Tracer adapters: ``get(name)(**options)``."""

    kind = "adapter"

    def add(
        self, name: str, target: str | Callable[..., TracerAdapter], *, summary: str, trigger: str
    ) -> None:
        """Offer an adapter.

        Args:
            name: what users call it.
            target: ``"module:Adapter"`` or the class.
            summary: one line for listings.
            trigger: the framework's module, whose import activates the adapter.
        """
        self._put(name, target, summary, facts={"trigger": trigger})


class StoreBackendRegistry(Registry["Store"]):
    """Store backends: ``for_url(url)(url)``."""

    kind = "store backend"

    def add(
        self, name: str, target: str | Callable[..., Store], *, summary: str, schemes: Sequence[str]
    ) -> None:
        """Offer a store backend.

        Args:
            name: what listings call it.
            target: ``"module:Store"`` or the class; called with the URL.
            summary: one line for listings.
            schemes: the schemes of the URLs it opens.
        """
        if isinstance(schemes, str) or not schemes:
            raise PluginError(
                f'the store backend "{name}" has the schemes {schemes!r}; expected a sequence such '
                'as ("sqlite",)'
            )
        lowered = tuple(scheme.lower() for scheme in schemes)
        self._put(name, target, summary, facts={"schemes": lowered})

    def for_url(self, url: str) -> Callable[[str], Store]:
        """The backend that opens a URL, by its scheme.

        Raises:
            UnknownName: no backend opens such URLs, or this is not a URL.
            PluginError: the backend's plug-in is inactive, or two distributions offer the scheme.
        """
        known = sorted({scheme for entry in self.entries() for scheme in entry.facts["schemes"]})
        examples = ", ".join(f"{scheme}://" for scheme in known)
        found = _SCHEME.match(url)
        if not found:
            shown = url.rpartition("@")[2]  # what is before it may be a password
            raise UnknownName(
                f'"{shown}" is not the URL of a store: it must begin with one of {examples}; '
                "a file is written sqlite:///path/to/file.db"
            )
        scheme = found[1].lower()
        offers = [entry for entry in self.entries(inactive=True) if scheme in entry.facts["schemes"]]
        if not offers:
            raise self._unknown(scheme, f'no store backend opens "{scheme}://" URLs', known)
        return self.resolve(self._choose(scheme, offers))


class AlgorithmRegistry(Registry["Algorithm"]):
    """Algorithms: ``get(name)(config)``."""

    kind = "algorithm"

    def add(
        self,
        name: str,
        target: str | Callable[..., Algorithm],
        *,
        summary: str,
        config: str | type | None = None,
        aliases: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Offer an algorithm.

        Args:
            name: what a configuration calls it.
            target: ``"module:Algorithm"`` or the class; called with its configuration.
            summary: one line for listings.
            config: ``"module:Config"`` or the class, a ``msgspec.Struct``. Its module imports no
                training library, so that a configuration is checked without one. None: the target's
                attribute ``Config``.
            aliases: further names, each with the configuration keys it sets.
        """
        facts = {"config": config}
        self._put(name, target, summary, facts=facts)
        for alias, sets in (aliases or {}).items():
            text = f"{name} with {', '.join(f'{key}={value}' for key, value in sets.items())}"
            self._put(alias, target, text, facts=facts, alias_of=canonical(name), sets=sets)

    def config_type(self, name: str) -> type[msgspec.Struct]:
        """The class of an algorithm's own configuration; works where its framework is missing.

        Raises:
            PluginError: it cannot be imported, or is none.
        """
        entry = self.entry(name)
        config = entry.facts["config"]
        if config is None:
            config = getattr(self.resolve(entry), "Config", None)
        if isinstance(config, str):
            config = import_target(config, f'"{entry.name}" of {entry.source}')
        if not (isinstance(config, type) and issubclass(config, msgspec.Struct)):
            raise PluginError(
                f'the configuration of the algorithm "{entry.name}" of {entry.source} is {config!r}; '
                "expected a subclass of msgspec.Struct"
            )
        return config


class EngineRegistry(Registry["Engine"]):
    """Engines: ``get(name)(model, **options)``."""

    kind = "engine"

    def add(self, name: str, target: str | Callable[..., Engine], *, summary: str) -> None:
        """Offer an engine.

        Args:
            name: what a configuration calls it.
            target: ``"module:Engine"`` or the class.
            summary: one line for listings.
        """
        self._put(name, target, summary)


class ExecutorRegistry(Registry["Executor"]):
    """Executors: ``get(name)(**options)``."""

    kind = "executor"

    def add(self, name: str, target: str | Callable[..., Executor], *, summary: str) -> None:
        """Offer an executor.

        Args:
            name: what a configuration calls it.
            target: ``"module:Executor"`` or the class.
            summary: one line for listings.
        """
        self._put(name, target, summary)


class CommandRegistry(Registry["click.Command"]):
    """Commands of ``agl``: ``get(name)`` is the click command itself."""

    kind = "command"

    def add(self, name: str, target: str | click.Command, *, summary: str) -> None:
        """Offer a command.

        Args:
            name: what is typed after ``agl``.
            target: ``"module:command"`` or the click command.
            summary: the line shown by ``agl --help``, without importing the command.
        """
        self._put(name, target, summary)
