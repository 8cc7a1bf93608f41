"""Names, lazy targets and the errors that teach."""

import sys
from dataclasses import dataclass

import msgspec
import pytest
from agentlightning.errors import PluginError, UnknownName
from agentlightning.plugins.kinds import (
    AdapterRegistry,
    AlgorithmRegistry,
    EngineRegistry,
    StoreBackendRegistry,
)
from agentlightning.plugins.registry import Source

ACME = Source("acme", "acme-engines", "1.2")
OTHER = Source("other", "other-engines", "3.0")
CORE = Source("agentlightning", "agentlightning", "2.0.0", builtin=True)


class Engine:
    """Stands for an engine; registries do not look inside."""


class OtherEngine:
    """A second one."""


def engines(*offers):
    registry = EngineRegistry()
    for source, name, target in offers:
        with registry.adding_as(source):
            registry.add(name, target, summary="an engine")
    return registry


def test_names_ignore_case_and_treat_dash_and_underscore_alike():
    registry = engines((ACME, "Fast-Engine", Engine))
    assert registry.get("fast_engine") is registry.get("FAST-ENGINE") is Engine
    assert registry.entries()[0].name == "fast_engine"


@pytest.mark.parametrize("name", ["", "9lives", "a b", "a:b", "ä"])
def test_a_name_nobody_could_type_is_refused(name):
    with pytest.raises(PluginError, match="is no valid engine name"):
        engines((ACME, name, Engine))


@pytest.mark.parametrize("target", ["module", "module:", 7, None, "a b:c"])
def test_a_target_that_is_no_target_is_refused(target):
    with pytest.raises(PluginError, match=r"package\.module:attribute"):
        engines((ACME, "fast", target))


def test_a_string_target_is_imported_at_the_first_get_and_only_once(tmp_path, monkeypatch):
    (tmp_path / "slow_engine.py").write_text("class Engine: made = []\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry = engines((ACME, "slow", "slow_engine:Engine"))
    assert registry.entry("slow").summary == "an engine"
    assert "slow_engine" not in sys.modules
    first = registry.get("slow")
    del sys.modules["slow_engine"]
    assert registry.get("slow") is first
    assert "slow_engine" not in sys.modules


def test_a_target_may_be_an_attribute_of_an_attribute():
    assert engines((ACME, "paths", "pathlib:Path.cwd")).get("paths")().is_dir()


@pytest.mark.parametrize("body", ["import missing_library", "raise SystemExit(3)", "x = 1"])
def test_a_target_that_cannot_be_imported_names_its_plugin(tmp_path, monkeypatch, body):
    (tmp_path / "broken_engine.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    registry = engines((ACME, "broken", "broken_engine:Engine"))
    with pytest.raises(
        PluginError, match=r'"broken_engine:Engine" of "broken" of acme-engines 1.2'
    ) as caught:
        registry.get("broken")
    assert isinstance(caught.value.__cause__, (ImportError, SystemExit, AttributeError))
    sys.modules.pop("broken_engine", None)


def test_an_unknown_name_lists_the_known_ones_and_the_nearest():
    registry = engines((ACME, "transformer", Engine), (ACME, "other", Engine))
    with pytest.raises(UnknownName) as caught:
        registry.get("transfomer")
    message = str(caught.value)
    assert 'no engine is called "transfomer"' in message
    assert "known: other, transformer" in message
    assert 'did you mean "transformer"?' in message
    assert "pip install" not in message


def test_an_unknown_name_that_is_an_extra_of_the_core_gives_the_command_that_installs_it():
    with pytest.raises(
        UnknownName,
        match=r'none is installed; to install it: pip install "agentlightning\[langchain\]"',
    ):
        AdapterRegistry().get("langchain")


def test_a_misspelt_name_of_something_that_is_not_installed_gives_that_command_too():
    with pytest.raises(
        UnknownName,
        match=r'none is installed; did you mean "langchain"\? '
        r'To install it: pip install "agentlightning\[langchain\]"',
    ):
        AdapterRegistry().get("langchian")


def test_a_name_that_failed_to_load_says_why_and_is_not_unknown():
    registry = EngineRegistry(lambda name: f'plug-in "{name}" failed: boom')
    with pytest.raises(
        PluginError, match='no engine is called "bad": plug-in "bad" failed: boom'
    ) as caught:
        registry.get("bad")
    assert not isinstance(caught.value, UnknownName)


def test_two_distributions_with_one_name_are_both_named_and_both_reachable():
    registry = engines((ACME, "fast", Engine), (OTHER, "fast", OtherEngine))
    with pytest.raises(PluginError) as caught:
        registry.get("fast")
    assert "acme-engines 1.2 and other-engines 3.0 both offer" in str(caught.value)
    assert '"acme-engines:fast" or "other-engines:fast"' in str(caught.value)
    assert registry.get("acme-engines:fast") is Engine
    assert registry.get("Other_Engines:fast") is OtherEngine


def test_a_builtin_name_stays_the_builtin():
    registry = engines((CORE, "fast", Engine), (OTHER, "fast", OtherEngine))
    assert registry.get("fast") is Engine
    assert registry.get("other-engines:fast") is OtherEngine


def test_one_distribution_adding_a_name_twice_is_an_error():
    with pytest.raises(PluginError, match=r'acme-engines 1\.2 adds the engine "fast" twice'):
        engines((ACME, "fast", Engine), (ACME, "fast", OtherEngine))


def test_the_program_may_add_a_name_again_as_a_notebook_does():
    registry = EngineRegistry()
    registry.add("mine", Engine, summary="first")
    registry.add("mine", OtherEngine, summary="second")
    assert registry.get("mine") is OtherEngine
    assert len(registry.entries()) == 1


def test_what_a_plugin_offers_and_the_program_adds_again_is_there_once():
    registry = engines((ACME, "fast", f"{__name__}:Engine"))
    registry.add("fast", Engine, summary="by hand")
    assert [entry.source for entry in registry.entries()] == [ACME]


def test_an_inactive_entry_is_known_but_getting_it_says_what_to_install():
    missing = Source("langchain", "agentlightning-langchain", "2.0.0", inactive="needs x>=1, found 0.9")
    registry = AdapterRegistry()
    with registry.adding_as(missing):
        registry.add("langchain", "nowhere:Adapter", summary="…", trigger="langchain_core")
    assert registry.entries() == []
    assert [entry.name for entry in registry.entries(inactive=True)] == ["langchain"]
    with pytest.raises(PluginError) as caught:
        registry.get("langchain")
    assert "needs x>=1, found 0.9" in str(caught.value)
    assert 'pip install "agentlightning[langchain]"' in str(caught.value)


def test_an_inactive_stranger_is_installed_by_its_own_extra():
    registry = engines((Source("acme", "acme-engines", "1.2", inactive="needs y"), "fast", Engine))
    with pytest.raises(PluginError, match=r'pip install "acme-engines\[framework\]"'):
        registry.get("fast")


def test_of_two_offers_of_one_name_the_usable_one_is_meant():
    registry = engines(
        (Source("a", "a", "1", inactive="needs y"), "fast", Engine), (OTHER, "fast", OtherEngine)
    )
    assert registry.get("fast") is OtherEngine


def test_an_adapter_must_say_what_triggers_it():
    with pytest.raises(TypeError, match="trigger"):
        AdapterRegistry().add("x", "module:X", summary="…")


def stores():
    registry = StoreBackendRegistry()
    with registry.adding_as(CORE):
        registry.add("memory", Engine, summary="…", schemes=("memory",))
    with registry.adding_as(ACME):
        registry.add("postgres", OtherEngine, summary="…", schemes=("postgresql", "Postgres"))
    return registry


@pytest.mark.parametrize("url", ["postgresql://h/db", "POSTGRES://h/db", "postgres:db"])
def test_a_store_backend_is_found_by_the_scheme_of_a_url(url):
    assert stores().for_url(url) is OtherEngine


def test_an_unknown_scheme_lists_the_known_ones_and_what_to_install():
    with pytest.raises(UnknownName) as caught:
        stores().for_url("sqlite:///runs.db")
    assert 'no store backend opens "sqlite://" URLs' in str(caught.value)
    assert "known: memory, postgres, postgresql" in str(caught.value)
    assert 'pip install "agentlightning[sqlite]"' in str(caught.value)
    with pytest.raises(UnknownName, match='did you mean "postgresql"'):
        stores().for_url("postgresq://h/db")


@pytest.mark.parametrize("url", ["runs.db", "", "/tmp/runs.db", "C\\runs.db"])
def test_a_path_is_not_taken_for_a_url(url):
    with pytest.raises(UnknownName, match=r"is not the URL of a store.*sqlite:///path"):
        stores().for_url(url)


def test_two_backends_of_one_scheme_are_both_named():
    registry = stores()
    with registry.adding_as(OTHER):
        registry.add("pg", Engine, summary="…", schemes=("postgresql",))
    with pytest.raises(PluginError, match=r"acme-engines 1.2 and other-engines 3.0 both offer"):
        registry.for_url("postgresql://h/db")


def test_a_string_of_schemes_is_refused_rather_than_split_into_letters():
    with pytest.raises(PluginError, match=r"expected a sequence"):
        StoreBackendRegistry().add("x", Engine, summary="…", schemes="sqlite")


class Config(msgspec.Struct):
    """Stands for an algorithm's configuration."""


class Learner:
    """Stands for an algorithm."""

    Config = Config


def algorithms(**facts):
    registry = AlgorithmRegistry()
    with registry.adding_as(ACME):
        registry.add("rl", Learner, summary="learns", **facts)
    return registry


def test_an_alias_stands_for_its_algorithm_and_says_what_it_sets():
    registry = algorithms(aliases={"ppo": {"policy": "ppo"}, "Dr-GRPO": {"policy": "dr_grpo"}})
    assert registry.get("dr-grpo") is registry.get("ppo") is Learner
    alias = registry.entry("ppo")
    assert (alias.alias_of, dict(alias.sets)) == ("rl", {"policy": "ppo"})
    assert registry.entry("rl").alias_of is None


@pytest.mark.parametrize("config", [None, Config, f"{__name__}:Config"])
def test_the_configuration_class_comes_from_the_config_target_or_the_algorithm(config):
    assert algorithms(config=config).config_type("rl") is Config


def test_a_configuration_is_checked_where_the_framework_is_missing():
    registry = AlgorithmRegistry()
    with registry.adding_as(Source("rl", "agentlightning-rl", "2.0.0", inactive="needs torch>=2.6")):
        registry.add("rl", "nowhere:Learner", summary="…", config=Config)
    assert registry.config_type("rl") is Config
    with pytest.raises(PluginError, match="needs torch"):
        registry.get("rl")


@dataclass
class OfAnotherKind:
    steps: int = 1


@pytest.mark.parametrize("config", ["math:pi", OfAnotherKind, f"{__name__}:OfAnotherKind"])
def test_a_configuration_of_another_kind_is_refused(config):
    expected = r'"rl" of acme-engines 1\.2 is .*; expected a subclass of msgspec'
    with pytest.raises(PluginError, match=expected):
        algorithms(config=config).config_type("rl")


def test_an_algorithm_without_a_configuration_is_refused():
    registry = AlgorithmRegistry()
    registry.add("rl", lambda config: None, summary="…")
    with pytest.raises(PluginError, match=r"is None; expected a subclass of msgspec"):
        registry.config_type("rl")
