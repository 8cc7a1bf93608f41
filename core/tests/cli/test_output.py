"""What ``agl`` leaves as it is: recorded text in what it prints, and exit codes that others gave."""

from __future__ import annotations

import subprocess
import sys

import agentlightning as agl
import pytest
from agentlightning.cli.main import agl as group
from agentlightning.records import PromptTemplate
from agentlightning.store.opening import open_store
from click.testing import CliRunner

ODD = "[/INST] [b]bold[/b] :key: back\\"


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/odd.db"


@pytest.fixture
def odd(url):
    """A run and a rollout full of text that a terminal library could take for markup."""

    def fail():
        with agl.Tracer(url).trace(ODD, input=ODD) as trace:
            agl.emit_message(ODD)
            agl.emit_reward(0.5, name=ODD)
            made.append(trace.rollout_id)
            raise ValueError(ODD)

    made = []
    with pytest.raises(ValueError, match="INST"):
        fail()
    with open_store(url) as store:
        run = store.create_run(ODD, {})
        store.publish(run.run_id, {"prompt": PromptTemplate(template=ODD)})
        store.log_metrics(run.run_id, 0, {ODD: 1.0})
    return run.run_id, made[0]


@pytest.fixture
def printed(url):
    """What a command prints."""

    def run(*arguments):
        done = CliRunner().invoke(group, [*arguments, "--store", url])
        assert done.exit_code == 0, done.output
        return done.output

    return run


def test_recorded_text_is_printed_as_it_is(printed, odd):
    run_id, rollout_id = odd
    assert ODD in printed("rollouts")
    assert printed("trace", "show", rollout_id).count(ODD) == 4
    assert f"ValueError: {ODD}" in printed("explain", rollout_id)
    assert printed("report", run_id).count(ODD) == 2


def test_a_task_is_also_printed_as_it_is_where_the_terminal_has_colours(printed, odd, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    assert ODD in printed("rollouts")
    assert ODD in printed("trace", "show", odd[1])


# --- exit codes -------------------------------------------------------------------------------

PROGRAM = """
import os, signal
import agentlightning as agl
import click
from agentlightning.cli import main
from agentlightning.plugins import plugins

@agl.algorithm("interrupted")
def interrupted(ctx):
    os.kill(os.getpid(), signal.SIGINT)
    while not ctx.stopping():
        pass
    return ctx.resources.resources

def wait():
    signal.raise_signal(signal.SIGINT)

def complain():
    error = click.ClickException("not today")
    error.exit_code = 7
    raise error

for function in (wait, complain):
    name = function.__name__
    plugins().commands.add(name, click.Command(name, callback=function), summary="")
main()
"""
CONFIG = "algorithm: interrupted\nmodel: owner/name\ntrain_dataset: tasks.jsonl\n"


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Runs ``agl`` as a program of its own, with two more commands and an algorithm."""
    monkeypatch.delenv("AGENTLIGHTNING_STORE", raising=False)

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def test_an_interrupted_run_says_how_to_go_on_and_ends_like_any_interrupted_program(program, tmp_path):
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "tasks.jsonl").write_text('{"prompt": "1+1="}\n')
    done = program("train", "config.yaml")
    assert (done.returncode, done.stdout) == (130, "")
    assert "was interrupted; go on with" in done.stderr.splitlines()[-1]
    assert "Aborted" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["wait"], 130, "interrupted"),
        (["complain"], 7, "Error: not today"),
        (["train"], 2, "Error: Missing argument 'CONFIG'."),
        (["rollouts", "--status", "odd"], 2, "Error: Invalid value for '--status'"),
    ],
)
def test_whatever_else_ends_a_command_keeps_its_exit_code_and_message(program, arguments, code, line):
    done = program(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.splitlines()[-1].startswith(line)
    assert done.stderr.startswith("Usage: agl " if code == 2 else line)
