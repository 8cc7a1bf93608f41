"""Adapters: made when their framework is imported, and why one is left out."""

import sys
import types

import agentlightning.recording.instruments as instruments_module
import pytest
from agentlightning.adapter import TracerAdapter
from agentlightning.errors import PluginError, UnknownName
from agentlightning.plugins import load_plugins
from agentlightning.plugins.registry import Source
from agentlightning.recording import seam
from agentlightning.recording.instruments import Instruments


class Adapter(TracerAdapter):
    capabilities = frozenset()
    made = []

    def __init__(self, **options):
        self.options = options
        self.state = "new"
        Adapter.made.append(self)

    def install(self, recorder):
        self.state = "installed"

    def uninstall(self):
        self.state = "uninstalled"


class Broken(Adapter):
    def install(self, recorder):
        raise RuntimeError("the framework moved")


@pytest.fixture
def offered(monkeypatch, tmp_path):
    """Two adapters, whose frameworks can be imported from a folder of their own."""
    for name in ("fake_framework", "broken_framework"):
        (tmp_path / f"{name}.py").write_text("")
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("AGENTLIGHTNING_PLUGINS", "")
    Adapter.made.clear()
    loaded = load_plugins()
    loaded.adapters.add("fake", Adapter, summary="", trigger="fake_framework")
    loaded.adapters.add("broken", Broken, summary="", trigger="broken_framework")
    monkeypatch.setattr(instruments_module, "plugins", lambda: loaded)
    yield
    for name in ("fake_framework", "broken_framework"):
        sys.modules.pop(name, None)


def test_an_adapter_is_installed_when_its_framework_is_imported_and_removed_with_the_last(offered):
    instruments = Instruments()
    instruments.install({"fake": {"deep": True}})
    instruments.install()
    assert Adapter.made == []
    import fake_framework  # noqa: F401

    (adapter,) = instruments.adapters
    assert (adapter.state, adapter.options) == ("installed", {"deep": True})
    instruments.uninstall()
    assert adapter.state == "installed"
    instruments.uninstall()
    assert adapter.state == "uninstalled"
    instruments.install()
    assert len(instruments.adapters) == 1
    assert Adapter.made[-1].state == "installed"
    instruments.uninstall()


def test_a_broken_adapter_is_named_once_and_the_import_goes_on(offered, caplog):
    instruments = Instruments()
    instruments.install()
    import broken_framework
    import fake_framework  # noqa: F401

    assert isinstance(broken_framework, types.ModuleType)
    assert len(instruments.adapters) == 1
    assert "the framework moved" in instruments.failures["broken"]
    assert caplog.text.count("'broken' was left out") == 1
    instruments.uninstall()


@pytest.fixture
def outdated(offered):
    """The framework of one adapter is there, in a version that it does not support."""
    source = Source("old", "agentlightning-old", "2.0.0", inactive="needs fake>=2, found 1.0")
    registry = instruments_module.plugins().adapters
    with registry.adding_as(source):
        registry.add("old", Adapter, summary="", trigger="fake_framework")


def test_an_adapter_that_does_not_support_the_version_says_so_once_when_it_is_imported(
    outdated, caplog
):
    instruments = Instruments()
    instruments.install()
    assert "needs fake>=2" not in caplog.text
    import fake_framework  # noqa: F401

    instruments.install()
    assert len(instruments.adapters) == 1
    assert caplog.text.count("needs fake>=2, found 1.0") == 1
    assert "needs fake>=2, found 1.0" in instruments.failures["old"]
    assert "Traceback" not in caplog.text
    instruments.uninstall()
    instruments.uninstall()


def test_options_of_an_adapter_that_cannot_be_used_are_refused(outdated):
    instruments = Instruments()
    with pytest.raises(PluginError, match=r"needs fake>=2, found 1\.0; to install it: pip install"):
        instruments.install({"old": {"deep": True}})
    assert seam._seam._installs == 0


def test_options_of_an_unknown_adapter_are_refused(offered):
    with pytest.raises(UnknownName, match="fake"):
        Instruments().install({"fak": {}})
