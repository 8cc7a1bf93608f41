"""The commands on a real store: what they print, and the one line that a mistake is answered with."""

from __future__ import annotations

import json
import sys

import agentlightning as agl
import pytest
from agentlightning.cli import main
from agentlightning.store.opening import open_store

STORE = "sqlite:///agentlightning.db"


@agl.algorithm("count-tasks")
def count_tasks(ctx, fail: bool = False):
    """Logs how many tasks there are."""
    if fail:
        raise agl.errors.AlgorithmError("the algorithm cannot go on")
    ctx.log({"val/reward": 0.5, "tasks": float(len(ctx.train))}, 0)
    return ctx.resources.resources


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder to work in, with no store or model named by the environment."""
    for variable in ("AGENTLIGHTNING_STORE", "AGENTLIGHTNING_MODEL", "OPENAI_MODEL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs ``agl`` with arguments; returns exit code, standard output and standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["agl", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        captured = capsys.readouterr()
        return left.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def refused(command, folder):
    """The line a wrong call is answered with; it makes no file and prints nothing else."""

    def run(*arguments):
        before = sorted(folder.rglob("*"))
        code, out, err = command(*arguments)
        assert (code, out) == (1, "")
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert sorted(folder.rglob("*")) == before
        return err

    return run


@pytest.fixture
def traced(folder):
    """The id of a rollout in the default store, with text that looks like markup in it."""
    with agl.Tracer(STORE).trace("helper", input="tidy [/up] the [red]desk[/red]") as trace:
        agl.emit_message("on my way")
        trace.output = "done [/quickly]"
        trace.reward(1.0)
    return trace.rollout_id


@pytest.fixture
def write(folder):
    """Write a file of the folder; returns its name."""

    def make(name, text):
        (folder / name).write_text(text)
        return name

    return make


CONFIG = "algorithm: count-tasks\nmodel: owner/name\ntrain_dataset: tasks.jsonl\n"


@pytest.fixture
def config(write):
    write("tasks.jsonl", '{"prompt": "1+1="}\n')
    return write("config.yaml", CONFIG)


# --- what was recorded ------------------------------------------------------------------------


def test_rollouts_are_listed_with_ids_that_can_be_copied_from_a_pipe(command, traced):
    code, out, _ = command("rollouts")
    assert code == 0
    assert traced in out
    assert "tidy [/up] the [red]desk[/red]" in out
    assert "done [/quickly]" in out


def test_rollouts_are_listed_as_json(command, traced):
    code, out, _ = command("rollouts", "--status", "succeeded", "--mode", "test", "--json")
    assert code == 0
    answer = json.loads(out)
    assert [rollout["rollout_id"] for rollout in answer["rollouts"]] == [traced]
    assert answer["cursor"] is None


def test_a_trace_is_shown_as_a_tree_and_as_json(command, traced):
    code, out, _ = command("trace", "show", traced)
    assert code == 0
    assert "on my way" in out
    assert "reward = 1" in out
    code, out, _ = command("trace", "show", traced, "--json")
    answer = json.loads(out)
    assert answer["rollout"]["rollout_id"] == traced
    assert sorted(span["kind"] for span in answer["spans"]) == ["agent", "message", "reward"]


def test_a_rollout_is_explained_in_text_and_as_json(command, traced):
    code, out, _ = command("explain", traced)
    assert code == 0
    assert "reward 1" in out
    assert "no LLM call was recorded" in out
    code, out, _ = command("explain", traced, "--json")
    answer = json.loads(out)
    assert answer["explanation"]["rows"] == 0
    assert [attempt["status"] for attempt in answer["attempts"]] == ["succeeded"]


def test_a_run_is_reported_in_text_as_json_and_as_a_picture(command, config, folder):
    run_id = json.loads(command("train", config, "--json")[1])["run_id"]
    code, out, _ = command("report", run_id, "--plot", "curve.png")
    assert code == 0
    assert "validation reward at step 0" in out
    assert "reward curve: curve.png" in out
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    code, out, _ = command("report", run_id, "--json")
    answer = json.loads(out)
    assert (answer["status"], answer["latest"]["tasks"], answer["plot"]) == ("succeeded", 1.0, None)


# --- mistakes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [("report", "RUN"), ("rollouts",), ("explain", "ROLLOUT"), ("trace", "show", "ROLLOUT")],
)
@pytest.mark.parametrize(
    ("store", "expected"),
    [
        ("sqlite:///nowhere.db", "there is no store at sqlite:///nowhere.db"),
        ("nowhere.db", "is not the URL of a store"),
        ("sqlit:///nowhere.db", 'did you mean "sqlite"?'),
        ("sqlite:///", "names no file"),
    ],
)
@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_a_store_that_is_not_there_is_one_line(refused, arguments, store, expected, as_json):
    assert expected in refused(*arguments, "--store", store, *as_json)


def test_a_file_that_is_no_store_is_one_line_and_stays_as_it_was(refused, write, folder):
    text = "a letter " * 1000
    write("letter.txt", text)
    assert "it is another kind of file" in refused("report", "x", "--store", "sqlite:///letter.txt")
    assert (folder / "letter.txt").read_text() == text


@pytest.mark.parametrize("as_json", [(), ("--json",)])
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("report", "run-x"), "the store has no run 'run-x'; its latest are: run-"),
        (("rollouts", "--run", "run-x"), "the store has no run 'run-x'"),
        (("rollouts", "--cursor", "junk"), "the cursor 'junk'"),
        (("rollouts", "--limit", "0"), "limit is 0; expected at least 1"),
        (("explain", "ro-x"), "the store has no rollout 'ro-x'"),
        (("trace", "show", "ro-x"), "the store has no rollout 'ro-x'"),
    ],
)
def test_an_id_that_the_store_does_not_know_is_one_line(refused, traced, arguments, expected, as_json):
    assert expected in refused(*arguments, *as_json)


def test_an_attempt_that_was_not_made_is_one_line(refused, traced):
    assert "has no attempt 9" in refused("trace", "show", traced, "--attempt", "9")


def test_a_picture_that_cannot_be_written_is_one_line(command, refused, config):
    run_id = json.loads(command("train", config, "--json")[1])["run_id"]
    assert "--plot" in refused("report", run_id, "--plot", "nowhere/curve.png")
    assert "--plot" in refused("report", run_id, "--plot", "curve.unknown")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("algorithm: count_taks", 'did you mean "count_tasks"?'),
        ("algorithm: count-tasks", "model: none given"),
        ("algorithm: rl\n\tmodel: x", "cannot be read as YAML"),
        ("[1, 2]", "holds a list"),
        ("", "is empty"),
        (CONFIG + "trian_dataset: x", "did you mean 'train_dataset'?"),
        (CONFIG, "train_dataset: there is no file 'tasks.jsonl'"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_one_line(refused, write, text, expected):
    write("config.yaml", text)
    assert expected in refused("train", "config.yaml")
    assert expected in refused("train", "config.yaml", "--json")


def test_a_configuration_file_that_is_not_there_is_one_line(refused, folder):
    assert "there is no configuration file 'nowhere.yaml'" in refused("train", "nowhere.yaml")
    assert "Is a directory" in refused("train", folder)


@pytest.mark.parametrize("change", ["model", "=x", "model=[1"])
def test_a_change_that_is_none_is_one_line(refused, config, change):
    assert f"--set {change!r}" in refused("train", config, "--set", change)


def test_a_change_is_checked_like_what_the_file_says(refused, config):
    assert "algorithm" in refused("train", config, "--set", "algorithm=nothing-of-the-kind")
    assert "runners: count is -1" in refused("train", config, "--set", "runners={count: -1}")


def test_a_run_that_fails_ends_in_one_line_and_is_kept(command, config):
    code, out, err = command("train", config, "--set", "fail=true")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1] == "error: the algorithm cannot go on"
    assert "Traceback" not in err
    with open_store(STORE) as store:
        (run,) = store.runs()
    assert run.status == "failed"
    assert command("report", run.run_id)[0] == 0


def test_a_run_to_resume_that_is_not_there_makes_no_store(refused, config):
    assert "there is no store" in refused("train", config, "--resume", "run-x")
