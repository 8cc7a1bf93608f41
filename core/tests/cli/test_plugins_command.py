"""``agl plugins`` and what ``agl`` does with any command."""

import json
import os
import subprocess
import sys

import pytest
from agentlightning.cli.main import agl as group
from agentlightning.plugins import HOOK_API, load_plugins
from click.testing import CliRunner


def agl(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-c", "from agentlightning.cli import main; main()", *arguments],
        env={**os.environ, "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_plugins_lists_everything_installed_as_json():
    done = CliRunner().invoke(group, ["plugins", "--json"])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.output)
    assert answer["hook_api"] == HOOK_API
    assert [plugin["name"] for plugin in answer["plugins"]] == [
        info.name for info in load_plugins().infos()
    ]
    core = answer["plugins"][0]
    assert (core["name"], core["state"], core["reason"]) == ("agentlightning", "built-in", None)
    assert {"kind": "executor", "name": "threads"} in core["offers"]


def test_plugins_shows_a_table_with_the_state_and_reason_of_each():
    done = agl("plugins", AGENTLIGHTNING_PLUGINS="no-such-plugin")
    assert done.returncode == 0, done.stderr
    assert "built-in" in done.stdout
    assert "failed" in done.stdout
    assert "select: named in" in done.stdout
    assert f"hook API {HOOK_API}" in done.stdout
    assert done.stderr.count("no_such_plugin") == 1  # warned of once


def test_help_lists_the_commands_without_importing_them():
    program = (
        "import sys\nfrom agentlightning.cli.main import agl\n"
        "try: agl(['--help'])\nexcept SystemExit: pass\n"
        "sys.exit('agentlightning.cli.plugins_command' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "plugins" in done.stdout


def test_an_error_is_one_line_and_exit_code_one():
    done = agl("plugin")
    assert done.returncode == 1
    assert done.stderr.startswith('error: no command is called "plugin"')
    assert 'did you mean "plugins"?' in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_traceback_of_an_error_is_shown_when_asked_for():
    done = agl("plugin", AGENTLIGHTNING_TRACEBACK="1")
    assert done.returncode != 0
    assert "Traceback" in done.stderr
    assert "UnknownName" in done.stderr


@pytest.mark.parametrize("arguments", [("--version",), ("-h",), ("plugins", "-h")])
def test_version_and_help_work(arguments):
    done = agl(*arguments)
    assert done.returncode == 0, done.stderr
