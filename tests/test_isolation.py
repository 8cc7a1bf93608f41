"""Broken plug-ins, installed for real: the host starts, says what is wrong once, and goes on."""

import json
import os
import subprocess
import sys

import pytest

GOOD = """
from agentlightning import hookimpl

@hookimpl
def register_engines(registry):
    registry.add("good", "good_module:Engine", summary="works")

class Engine: ...
"""
BROKEN = {
    "bad": ("from agentlightning import no_such_name", "import", "no_such_name"),
    "exits": ("import sys; sys.exit('goodbye')", "import", "SystemExit: goodbye"),
    "asks": (
        "from agentlightning import hookimpl\n@hookimpl\ndef register_engines(registry, moon): ...",
        "register",
        "moon",
    ),
    "future": (
        "from agentlightning import hookimpl\n@hookimpl\ndef register_rockets(registry): ...",
        "validate",
        "register_rockets",
    ),
    "twice": (
        GOOD + "\n@hookimpl\ndef register_executors(registry):\n"
        "    registry.add('x', 'a:b', summary='')\n    registry.add('X', 'a:c', summary='')",
        "register",
        'adds the executor "x" twice',
    ),
    "mute": ("answer = 42", "register", "implements no hook"),
}

REPORT = """
import json, sys
from agentlightning.errors import PluginError
from agentlightning.plugins import load_plugins
import good_module
loaded = load_plugins(good_module)          # by hand as well: it must be there once
asked = {}
for name in sys.argv[1].split(","):
    try:
        asked[name] = loaded.engines.get(name).__name__
    except PluginError as error:
        asked[name] = f"{type(error).__name__}: {error}"
print(json.dumps({
    "asked": asked,
    "engines": [entry.qualified for entry in loaded.engines.entries()],
    "failures": {failure.name: [failure.stage, failure.reason, failure.distribution] for failure in loaded.failures},
    "states": {info.name: [info.state.value, info.reason] for info in loaded.infos()},
}))
"""


def run(site, program, *arguments, **environment):
    """A fresh interpreter with the folder of installed plug-ins on its path."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("AGENTLIGHTNING_")
    }
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**inherited, "PYTHONPATH": str(site), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def report(site, *names, **environment):
    done = run(site, REPORT, ",".join(names), **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.fixture
def site(install):
    for name, (source, _, _) in BROKEN.items():
        install(f"plugin-{name}", {f"{name}_module": source}, points={name: f"{name}_module"})
    return install("plugin-good", {"good_module": GOOD}, points={"good": "good_module"})


def test_broken_plugins_are_listed_with_their_reason_and_the_good_one_works_once(site):
    told, _ = report(site, "good")
    assert told["asked"] == {"good": "Engine"}
    assert told["engines"].count("plugin-good:good") == 1
    for name, (_, stage, reason) in BROKEN.items():
        failed_at, why, distribution = told["failures"][name]
        assert (failed_at, distribution) == (stage, f"plugin-{name}")
        assert reason in why
        assert told["states"][name][0] == "failed"
    assert set(told["failures"]) == set(BROKEN)
    assert told["states"]["good"] == ["active", None]


def test_each_is_warned_of_once_with_its_distribution_and_what_to_do(site):
    _, warnings = report(site, "good")
    for name in BROKEN:
        (line,) = [line for line in warnings.splitlines() if f'plug-in "{name}"' in line]
        assert f"plugin-{name} 1.0" in line
        assert f"AGENTLIGHTNING_DISABLED_PLUGINS={name}" in line
    assert len(warnings.splitlines()) == len(BROKEN)


def test_a_broken_one_raises_only_when_it_is_asked_for_by_name(site):
    told, _ = report(site, *BROKEN)
    for name, (_, _, reason) in BROKEN.items():
        assert told["asked"][name].startswith("PluginError: ")
        assert reason in told["asked"][name]


@pytest.mark.parametrize("name", BROKEN)
def test_in_strict_mode_each_is_an_error_that_names_it(install, name):
    site = install(
        f"plugin-{name}", {f"{name}_module": BROKEN[name][0]}, points={name: f"{name}_module"}
    )
    done = run(
        site, "import agentlightning.plugins as p; p.plugins()", AGENTLIGHTNING_STRICT_PLUGINS="1"
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("agentlightning.errors.PluginError: ")
    assert f'plug-in "{name}" of plugin-{name} 1.0' in last


def test_a_disabled_one_is_not_imported_and_not_warned_of(site):
    names = ",".join(BROKEN)
    told, warnings = report(site, "good", "bad", AGENTLIGHTNING_DISABLED_PLUGINS=names)
    assert (told["failures"], warnings) == ({}, "")
    assert "disabled by AGENTLIGHTNING_DISABLED_PLUGINS" in told["asked"]["bad"]


def test_the_command_line_goes_on_and_lists_them(site):
    main = "from agentlightning.cli import main; main()"
    done = run(site, main, "plugins", "--json")
    assert done.returncode == 0, done.stderr
    states = {plugin["name"]: plugin["state"] for plugin in json.loads(done.stdout)["plugins"]}
    assert {name: states[name] for name in BROKEN} == dict.fromkeys(BROKEN, "failed")
    strict = run(site, main, "plugins", AGENTLIGHTNING_STRICT_PLUGINS="1")
    assert strict.returncode == 1
    assert strict.stderr.startswith("error: plug-in ")
    assert "Traceback" not in strict.stderr


def test_two_distributions_with_one_name_are_both_named_when_it_is_asked_for(site, install):
    install(
        "plugin-rival",
        {"rival_module": GOOD.replace("good_module", "rival_module")},
        points={"rival": "rival_module"},
    )
    told, _ = report(site, "good", "plugin-rival:good", "plugin-good:good")
    assert "plugin-good 1.0 and plugin-rival 1.0 both offer" in told["asked"]["good"]
    assert told["asked"]["plugin-rival:good"] == told["asked"]["plugin-good:good"] == "Engine"


def test_a_builtin_is_not_replaced(install, site):
    source = GOOD.replace("register_engines", "register_executors").replace('"good"', '"threads"')
    install("plugin-thief", {"thief_module": source}, points={"thief": "thief_module"})
    program = (
        "from agentlightning.plugins import plugins; e = plugins().executors\n"
        "print(e.entry('threads').distribution, e.entry('plugin-thief:threads').distribution)"
    )
    done = run(site, program, AGENTLIGHTNING_PLUGINS="thief")
    assert done.stdout.split() == ["agentlightning", "plugin-thief"], done.stderr


@pytest.mark.parametrize(
    ("requirement", "reason"),
    [
        ("toy-framework>=0.3.86", "needs toy-framework>=0.3.86, found 0.2.9"),
        ("absent-framework>=1", "needs absent-framework>=1, which is not installed"),
    ],
)
def test_a_framework_missing_or_out_of_range_is_inactive_and_no_failure(install, requirement, reason):
    install("toy-framework", {"toy_framework": ""}, version="0.2.9")
    site = install(
        "plugin-good",
        {"good_module": GOOD},
        points={"good": "good_module"},
        requires=(f"{requirement} ; extra == 'framework'",),
    )
    told, warnings = report(site, "good")
    assert told["states"]["good"] == ["inactive", reason]
    assert (told["failures"], warnings) == ({}, "")
    assert reason in told["asked"]["good"]
    assert 'pip install "plugin-good[framework]"' in told["asked"]["good"]
    assert "plugin-good:good" not in told["engines"]


def test_an_inactive_plugin_that_imports_its_framework_at_once_is_still_only_inactive(install):
    install("plugin-good", {"good_module": GOOD}, points={"good": "good_module"})
    site = install(
        "plugin-heavy",
        {"heavy_module": "import absent_framework"},
        points={"heavy": "heavy_module"},
        requires=("absent-framework>=1 ; extra == 'framework'",),
    )
    told, warnings = report(site, "heavy")
    assert told["states"]["heavy"] == ["inactive", "needs absent-framework>=1, which is not installed"]
    assert (told["failures"], warnings) == ({}, "")
    assert "needs absent-framework>=1" in told["asked"]["heavy"]


def test_a_plugin_for_a_newer_core_says_so(install):
    install("plugin-good", {"good_module": GOOD}, points={"good": "good_module"})
    site = install(
        "plugin-new",
        {"new_module": GOOD},
        points={"new": "new_module"},
        requires=("agentlightning>=99",),
    )
    told, _ = report(site, "new")
    stage, reason, _ = told["failures"]["new"]
    assert stage == "metadata"
    assert reason.startswith("needs agentlightning>=99, found 2.")
    assert "pip install -U" in reason


def test_metadata_that_cannot_be_read_hurts_only_its_plugin(install, site):
    install(
        "plugin-odd",
        {"odd_module": GOOD},
        points={"odd": "odd_module"},
        requires=("not a requirement !!",),
    )
    told, _ = report(site, "good")
    assert told["failures"]["odd"][0] == "metadata"
    assert told["asked"] == {"good": "Engine"}


def test_what_an_uninstallation_left_behind_hurts_nobody(site):
    next(site.glob("plugin_bad-*.dist-info/METADATA")).unlink()
    told, warnings = report(site, "good", "bad")
    assert told["asked"]["good"] == "Engine"
    assert told["states"]["bad"][0] == "failed"
    assert "PluginError" in told["asked"]["bad"]
    assert warnings.count('plug-in "bad"') == 1
