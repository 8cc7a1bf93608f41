"""Loads the plug-ins, so that a broken one hurts nobody but who asks for it by name.

The steps, for each entry point in name order: blocked by a switch? its framework's range met? import,
register; then validate all, and call the register hooks of one plug-in at a time. pluggy's own
``load_setuptools_entrypoints`` is not used, since one bad plug-in makes it raise and nothing after
that one loads. No other module touches the hooks: everyone else calls :class:`Plugins`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING, Any

import pluggy
from packaging.utils import canonicalize_name

from agentlightning.errors import PluginError
from agentlightning.plugins import builtin, hookspecs
from agentlightning.plugins.discovery import DISABLED, ONLY, Switches, installed, owner_of
from agentlightning.plugins.kinds import (
    AdapterRegistry,
    AlgorithmRegistry,
    CommandRegistry,
    EngineRegistry,
    ExecutorRegistry,
    StoreBackendRegistry,
)
from agentlightning.plugins.registry import PROGRAM, Registry, Source, canonical
from agentlightning.plugins.requirements import (
    CORE,
    Need,
    core_extras,
    core_need,
    framework_needs,
    install_command,
    unmet,
)
from agentlightning.plugins.status import PluginFailure, PluginInfo, State

if TYPE_CHECKING:
    from agentlightning.algorithm import RolloutResult
    from agentlightning.records import ResourcesVersion, Run
    from agentlightning.store import Store

log = logging.getLogger("agentlightning.plugins")


class Plugins:
    """All plug-ins of this process: what they offer, what became of each, and the observers.

    Attributes:
        failures: the plug-ins that could not be loaded. Each was warned of once.
        observer_errors: how often the observers of a distribution raised, by hook.
    """

    def __init__(self) -> None:
        """Hold the core's own offers; :func:`load_plugins` brings in what is installed."""
        self.adapters = AdapterRegistry(self._explain)
        self.store_backends = StoreBackendRegistry(self._explain)
        self.algorithms = AlgorithmRegistry(self._explain)
        self.engines = EngineRegistry(self._explain)
        self.executors = ExecutorRegistry(self._explain)
        self.commands = CommandRegistry(self._explain)
        self.failures: list[PluginFailure] = []
        self.observer_errors: Counter[tuple[str, str]] = Counter()
        self._switches = Switches.read()
        self._infos: dict[tuple[str, str], PluginInfo] = {}
        self._sources: dict[object, Source] = {}
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        core = Source(CORE, CORE, metadata.version(CORE), builtin=True)
        self._register(builtin, core)
        self._note(core, State.BUILTIN)
        self._call_register_hooks(builtin, core)

    # --- what everyone else uses --------------------------------------------------------------

    def store_backend_for(self, url: str) -> Callable[[str], Store]:
        """The store backend that opens a URL; see :meth:`StoreBackendRegistry.for_url`."""
        return self.store_backends.for_url(url)

    def infos(self) -> list[PluginInfo]:
        """Every plug-in with its state and what it offers, the core first, then by name."""
        offers: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for registry in self._registries().values():
            for entry in registry.entries(inactive=True):
                key = (entry.distribution, entry.source.plugin)
                offers.setdefault(key, []).append((registry.kind, entry.name))
        return [replace(info, offers=tuple(offers.get(key, ()))) for key, info in self._infos.items()]

    def register(self, plugin: object, name: str | None = None) -> None:
        """Add a plug-in by hand: a module or object with hooks. One already loaded is left alone.

        Raises:
            PluginError: it does not fit this version of the core; nothing of it is kept.
        """
        if self._manager.is_registered(plugin):
            return
        called = name or str(getattr(plugin, "__name__", type(plugin).__name__))
        source = Source(canonical(called), PROGRAM.distribution, "")
        try:
            self._register(plugin, source)
            self._manager.check_pending()
            self._call_register_hooks(plugin, source)
            self._note(source, State.ACTIVE)
        except Exception as error:
            self._forget(source)
            raise PluginError(f'plug-in "{called}" does not fit: {_one_line(error)}') from error

    def rollout_finished(self, *, run: Run, result: RolloutResult) -> None:
        """Tell the observers that a rollout is over."""
        self._notify("rollout_finished", run=run, result=result)

    def resources_published(self, *, run: Run, version: ResourcesVersion) -> None:
        """Tell the observers that resources were published."""
        self._notify("resources_published", run=run, version=version)

    def metrics_logged(self, *, run: Run, metrics: Mapping[str, float], step: int) -> None:
        """Tell the observers that numbers were logged."""
        self._notify("metrics_logged", run=run, metrics=metrics, step=step)

    # --- loading ------------------------------------------------------------------------------

    def load(self, points: Sequence[metadata.EntryPoint]) -> None:
        """Load what these entry points name, each isolated from the others."""
        self._check_selection(points)
        for point in points:
            self._load_one(point)
        self._validate()
        for plugin, source in list(self._sources.items()):
            if source.builtin:
                continue
            try:
                self._call_register_hooks(plugin, source)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - as in _load_one
                self._fail(source, "register", error)

    def _load_one(self, point: metadata.EntryPoint) -> None:
        source, stage = Source(canonical(point.name), owner_of(point), ""), "metadata"
        try:
            source = replace(source, version=(point.dist.version or "") if point.dist else "")
            if reason := self._switches.block(source.plugin, source.distribution):
                self._note(source, State.DISABLED, reason)
                return
            needs = _needs(point.dist)
            source = replace(source, inactive=unmet(needs))
            self._note(
                source, State.INACTIVE if source.inactive else State.ACTIVE, source.inactive, needs
            )
            # An inactive plug-in is imported all the same: its module is light, and its names are
            # wanted for saying what to install when one is asked for.
            stage = "import"
            plugin = point.load()
            stage = "register"
            self._register(plugin, source)
        # A stranger's module may raise anything, and one that calls sys.exit() must not end the host.
        except (Exception, SystemExit) as error:  # noqa: BLE001 - kept as a failure, and warned of
            self._fail(source, stage, error)

    def _check_selection(self, points: Sequence[metadata.EntryPoint]) -> None:
        """A plug-in that is asked for by the switch and not installed is a failure too."""
        there = {canonical(name) for point in points for name in (point.name, owner_of(point))}
        for name in sorted((self._switches.only or frozenset()) - there):
            install = install_command(name)
            hint = f"; to install it: {install}" if install else ""
            error = PluginError(f"named in {ONLY}, but not installed{hint}")
            self._fail(Source(name, "", ""), "select", error)

    def _register(self, plugin: object, source: Source) -> None:
        """Hand a plug-in to pluggy, which checks the arguments of its hooks."""
        if self._manager.is_registered(plugin):
            return  # two entry points that name one module: it is there once
        self._manager.register(plugin, name=f"{source.distribution}:{source.plugin}")
        self._sources[plugin] = source
        if not self._manager.get_hookcallers(plugin):
            raise PluginError("it implements no hook; mark its functions with @agentlightning.hookimpl")

    def _validate(self) -> None:
        """Drop every plug-in that implements a hook there is none of."""
        while True:
            try:
                return self._manager.check_pending()
            except pluggy.PluginValidationError as error:
                self._fail(self._sources[error.plugin], "validate", error)

    def _call_register_hooks(self, plugin: object, source: Source) -> None:
        others = self._manager.get_plugins() - {plugin}
        for hook, registry in self._registries().items():
            with registry.adding_as(source):
                self._manager.subset_hook_caller(hook, remove_plugins=others)(registry=registry)

    def _registries(self) -> dict[str, Registry[Any]]:
        """The registries by the hook that fills each."""
        return {
            "register_adapters": self.adapters,
            "register_store_backends": self.store_backends,
            "register_algorithms": self.algorithms,
            "register_engines": self.engines,
            "register_executors": self.executors,
            "register_commands": self.commands,
        }

    # --- what went wrong ----------------------------------------------------------------------

    def _fail(self, source: Source, stage: str, error: BaseException) -> None:
        """Keep nothing of a plug-in but the reason, and say so once."""
        self._forget(source)
        if source.inactive:
            log.info("%s is inactive: %s", source, source.inactive)
            return
        reason = _one_line(error)
        if isinstance(error, pluggy.PluginValidationError):
            reason += "; a plug-in for a newer agentlightning? pip install -U agentlightning"
        failure = PluginFailure(
            source.plugin, source.distribution, source.version, stage, reason, error
        )
        self.failures.append(failure)
        self._note(source, State.FAILED, f"{stage}: {reason}")
        if self._switches.strict:
            raise PluginError(str(failure)) from error
        if source.distribution:
            log.warning("%s; update or uninstall it, or set %s=%s", failure, DISABLED, source.plugin)
        else:
            log.warning("%s", failure)

    def _forget(self, source: Source) -> None:
        for plugin in [plugin for plugin, known in self._sources.items() if known == source]:
            del self._sources[plugin]
            self._manager.unregister(plugin)
        for registry in self._registries().values():
            registry.drop(source)

    def _note(
        self, source: Source, state: State, reason: str | None = None, needs: tuple[Need, ...] = ()
    ) -> None:
        key = (source.distribution, source.plugin)
        self._infos[key] = PluginInfo(
            source.plugin, source.distribution, source.version, state, reason, needs
        )

    def _explain(self, name: str) -> str | None:
        """Why nothing offers a name: the plug-in that would is there, but not in use."""
        brought = core_extras().get(canonicalize_name(name), frozenset())
        for info in self.infos():
            usable = info.state in (State.BUILTIN, State.ACTIVE) or info.offers
            if not usable and (info.name == name or canonicalize_name(info.distribution) in brought):
                owner = f"{info.distribution} {info.version}".rstrip()
                return f'plug-in "{info.name}" of {owner} is {info.state.value}: {info.reason}'
        return None

    def _notify(self, hook: str, **told: object) -> None:
        """Tell observers one at a time; what one raises is counted, and no other misses the news."""
        for implementation in getattr(self._manager.hook, hook).get_hookimpls():
            others = self._manager.get_plugins() - {implementation.plugin}
            source = self._sources[implementation.plugin]
            try:
                self._manager.subset_hook_caller(hook, remove_plugins=others)(**told)
            # A stranger's code, and training must go on.
            except (Exception, SystemExit) as error:
                if self._switches.strict:
                    raise PluginError(f"{hook} of {source} failed: {_one_line(error)}") from error
                self.observer_errors[source.distribution, hook] += 1
                log.warning("%s of %s failed", hook, source, exc_info=True)


def _needs(distribution: metadata.Distribution | None) -> tuple[Need, ...]:
    """What a distribution asks of its framework; raises if it asks for another core than this."""
    if distribution is None:
        return ()
    core = core_need(distribution)
    if core and not core.met:
        raise PluginError(f'{core}; to update it: pip install -U "{core.requirement}"')
    return framework_needs(distribution)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, PluginError) else f"{type(error).__name__}: {text}"


def load_plugins(*by_hand: object) -> Plugins:
    """Load everything installed, then the plug-ins given; always a fresh set.

    Args:
        by_hand: further plug-ins, modules or objects with hooks. One that an entry point names too
            is there once.

    Raises:
        PluginError: one given by hand does not fit; or, in strict mode, the first that fails.
    """
    loaded = Plugins()
    loaded.load(installed())
    for plugin in by_hand:
        loaded.register(plugin)
    return loaded
