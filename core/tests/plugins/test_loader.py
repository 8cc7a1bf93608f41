"""Plug-ins that are modules of this test, loaded as if installed; observers; switches."""

import logging
import sys
import types
from importlib.metadata import EntryPoint

import pytest
from agentlightning.errors import PluginError
from agentlightning.plugins import Plugins, State, hookimpl, load_plugins, plugins, when_loaded


@pytest.fixture(autouse=True)
def no_switches(monkeypatch):
    for name in ("PLUGINS", "DISABLED_PLUGINS", "STRICT_PLUGINS"):
        monkeypatch.delenv(f"AGENTLIGHTNING_{name}", raising=False)


@pytest.fixture
def install(monkeypatch):
    """Makes a module importable and returns an entry point that names it."""

    def make(name, **functions):
        module = types.ModuleType(f"plugin_of_test_{name}")
        for attribute, function in functions.items():
            setattr(module, attribute, hookimpl(function) if callable(function) else function)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return EntryPoint(name, module.__name__, "agentlightning")

    return make


def offers_engine(registry):
    registry.add("swift", "nowhere:Engine", summary="fast")


def loaded(*points):
    result = Plugins()
    result.load(points)
    return result


def state(result, name):
    return next((info.state, info.reason) for info in result.infos() if info.name == name)


def test_the_core_offers_its_own_through_the_hooks():
    result = Plugins()
    assert {entry.name for entry in result.executors.entries()} == {"threads", "processes"}
    assert {entry.name for entry in result.store_backends.entries()} == {"memory", "http"}
    assert "plugins" in {entry.name for entry in result.commands.entries()}
    (core,) = result.infos()
    assert (core.name, core.state) == ("agentlightning", State.BUILTIN)
    assert ("executor", "threads") in core.offers


def test_every_builtin_target_can_be_imported():
    result = Plugins()
    for registry in (result.executors, result.store_backends, result.commands):
        for entry in registry.entries():
            assert callable(registry.resolve(entry)), entry.name


def test_a_good_plugin_is_active_and_its_offers_are_known(install):
    result = loaded(install("good", register_engines=offers_engine))
    assert state(result, "good") == (State.ACTIVE, None)
    assert result.infos()[-1].offers == (("engine", "swift"),)
    assert result.failures == []


@pytest.mark.parametrize(
    ("functions", "stage", "reason"),
    [
        ({"register_engines": lambda registry, extra: None}, "register", "extra"),
        ({"register_rockets": lambda registry: None}, "validate", "register_rockets"),
        ({"register_engines": lambda registry: 1 / 0}, "register", "ZeroDivisionError"),
        ({"register_engines": lambda registry: sys.exit("bye")}, "register", "SystemExit: bye"),
        ({"nothing": 3}, "register", "implements no hook"),
    ],
    ids=["unknown argument", "unknown hook", "raises", "exits", "no hook"],
)
def test_a_broken_plugin_loses_only_itself(install, caplog, functions, stage, reason):
    bad = install("bad", **functions)
    good = install("good", register_engines=offers_engine)
    with caplog.at_level(logging.WARNING, "agentlightning"):
        result = loaded(bad, good)
    assert result.engines.entry("swift").source.plugin == "good"
    (failure,) = result.failures
    assert (failure.name, failure.stage) == ("bad", stage)
    assert reason in failure.reason
    assert state(result, "bad")[0] is State.FAILED
    assert [record.message.count('plug-in "bad"') for record in caplog.records] == [1]
    with pytest.raises(PluginError, match=r'plug-in "bad" of .* is failed'):
        result.engines.get("bad")


def test_a_plugin_that_fails_halfway_leaves_nothing_behind(install):
    def two_then_fail(registry):
        registry.add("half", "nowhere:X", summary="…")
        raise ValueError("no more")

    result = loaded(install("bad", register_engines=offers_engine, register_executors=two_then_fail))
    assert result.engines.entries() == []
    assert "half" not in {entry.name for entry in result.executors.entries()}


def test_strict_mode_raises_at_the_first_failure(install, monkeypatch):
    monkeypatch.setenv("AGENTLIGHTNING_STRICT_PLUGINS", "1")
    bad = install("bad", register_engines=lambda registry: 1 / 0)
    with pytest.raises(PluginError, match=r'plug-in "bad" .* failed at register: ZeroDivisionError'):
        loaded(bad)


def test_a_switch_that_is_neither_yes_nor_no_is_refused(monkeypatch):
    monkeypatch.setenv("AGENTLIGHTNING_STRICT_PLUGINS", "maybe")
    with pytest.raises(PluginError, match='AGENTLIGHTNING_STRICT_PLUGINS is "maybe"; expected 1 or 0'):
        Plugins()


def test_a_disabled_plugin_is_not_even_imported(install, monkeypatch):
    monkeypatch.setenv("AGENTLIGHTNING_DISABLED_PLUGINS", "Some-Name, other")
    result = loaded(EntryPoint("some_name", "module_that_does_not_exist", "agentlightning"))
    assert result.failures == []
    assert state(result, "some_name") == (State.DISABLED, "disabled by AGENTLIGHTNING_DISABLED_PLUGINS")
    with pytest.raises(PluginError, match="disabled by AGENTLIGHTNING_DISABLED_PLUGINS"):
        result.adapters.get("some-name")


def test_only_the_selected_plugins_are_loaded_and_an_empty_selection_is_none(install, monkeypatch):
    one = install("one", register_engines=offers_engine)
    two = install("two", register_engines=lambda registry: registry.add("slow", "x:Y", summary="…"))
    monkeypatch.setenv("AGENTLIGHTNING_PLUGINS", "two")
    assert [entry.name for entry in loaded(one, two).engines.entries()] == ["slow"]
    monkeypatch.setenv("AGENTLIGHTNING_PLUGINS", "")
    result = loaded(one, two)
    assert result.engines.entries() == []
    assert state(result, "one")[0] is State.DISABLED


def test_selecting_a_plugin_that_is_not_installed_is_reported_with_what_to_install(monkeypatch):
    monkeypatch.setenv("AGENTLIGHTNING_PLUGINS", "langchain")
    (failure,) = loaded().failures
    assert "not installed" in failure.reason
    assert 'pip install "agentlightning[langchain]"' in failure.reason


def test_two_entry_points_of_one_module_are_there_once(install):
    point = install("good", register_engines=offers_engine)
    result = loaded(point, EntryPoint("again", point.value, point.group))
    assert len(result.engines.entries()) == 1
    assert result.failures == []


def test_a_plugin_registered_by_hand_as_well_is_there_once(install):
    point = install("good", register_engines=offers_engine)
    result = loaded(point)
    result.register(sys.modules[point.value])
    result.register(sys.modules[point.value])
    assert len(result.engines.entries()) == 1


class ByHand:
    """A plug-in made of an object, as a notebook would write it."""

    @hookimpl
    def register_engines(self, registry):
        registry.add("mine", "nowhere:Engine", summary="…")


def test_an_object_can_be_registered_by_hand():
    result = load_plugins(ByHand())
    assert result.engines.entry("mine").distribution == "program"
    assert state(result, "byhand") == (State.ACTIVE, None)


def test_an_object_that_does_not_fit_is_refused_and_leaves_nothing_behind():
    class Wrong(ByHand):
        @hookimpl
        def register_rockets(self, registry): ...

    result = Plugins()
    with pytest.raises(PluginError, match=r'plug-in "Wrong" does not fit.*register_rockets'):
        result.register(Wrong())
    assert result.engines.entries() == []
    result.register(ByHand())
    assert len(result.engines.entries()) == 1


class Watcher:
    """An observer that keeps what it was told."""

    def __init__(self):
        self.seen = []

    @hookimpl
    def metrics_logged(self, metrics, step):
        self.seen.append((dict(metrics), step))


class Clumsy:
    """An observer that raises."""

    @hookimpl
    def metrics_logged(self):
        raise RuntimeError("cannot write")


def test_an_observer_that_raises_is_counted_and_keeps_the_news_from_nobody(caplog):
    result, first, last = Plugins(), Watcher(), Watcher()
    for plugin, name in ((first, "first"), (Clumsy(), "clumsy"), (last, "last")):
        result.register(plugin, name)
    with caplog.at_level(logging.WARNING, "agentlightning"):
        result.metrics_logged(run=None, metrics={"loss": 0.5}, step=3)
    assert first.seen == last.seen == [({"loss": 0.5}, 3)]
    assert result.observer_errors == {("program", "metrics_logged"): 1}
    assert "cannot write" in caplog.text


def test_in_strict_mode_an_observer_that_raises_is_an_error(monkeypatch):
    monkeypatch.setenv("AGENTLIGHTNING_STRICT_PLUGINS", "1")
    result = Plugins()
    result.register(Clumsy())
    with pytest.raises(
        PluginError, match="metrics_logged of program failed: RuntimeError: cannot write"
    ):
        result.metrics_logged(run=None, metrics={}, step=0)


def test_the_shared_set_is_loaded_once_and_runs_what_waited_for_it():
    told = []
    when_loaded(told.append)
    shared = plugins()
    assert plugins() is shared
    assert told == [shared]
    when_loaded(told.append)
    assert told == [shared, shared]
