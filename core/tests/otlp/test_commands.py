"""``agl import otlp`` and ``agl export --format otlp`` as they are typed."""

from __future__ import annotations

import json
import sys

import pytest
from agentlightning.cli import main

STORE = "sqlite:///traces.db"


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """Runs ``agl`` in an empty folder; returns exit code, standard output and standard error."""
    monkeypatch.delenv("AGENTLIGHTNING_STORE", raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["agl", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        captured = capsys.readouterr()
        return left.value.code or 0, captured.out, captured.err

    return run


def test_imported_traces_are_listed_shown_exported_and_read_again(command, traced):
    folder = traced("openinference")
    code, out, _ = command(
        "import", "otlp", folder / "scored.json", folder / "longer.protobuf", "--run", "shop",
        "--reward", "eval.correct=correct", "--store", STORE, "--json",
    )  # fmt: skip
    told = json.loads(out)
    assert (code, told["rows"]["rollout"], told["there_already"]) == (0, 5, 0)
    assert sum(told["skipped"].values()) == 1
    (run_id,) = told["runs"]
    code, out, _ = command("rollouts", "--store", STORE, "--json")
    listed = json.loads(out)["rollouts"]
    assert [item["output"] for item in listed] == ["more", *["two"] * 4]  # as they began
    code, out, _ = command("trace", "show", listed[1]["rollout_id"], "--store", STORE)
    assert "tool add" in out
    assert "correct = 0.25" in out
    assert "add({" in out
    code, _, err = command("export", run_id, "--format", "otlp", "--to", "out.json", "--store", STORE)
    assert "5 rollout" in err
    code, out, _ = command("import", "otlp", "out.json", "--store", "sqlite:///other.db")
    assert "5 rollout" in out
    assert command("export", run_id, "--store", STORE, "--to", "run.otlp")[0] == 0
    assert command("import", "run.otlp", "--store", "sqlite:///third.db")[0] == 0


def test_what_was_left_out_is_told_with_the_reason(command, traced):
    code, _, err = command("import", "otlp", traced("openllmetry") / "silent.json", "--store", STORE)
    assert code == 0
    assert "note: 2: an LLM span without its prompt" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["jsonl", "x.jsonl", "--run", "r"], "are for otlp only"),
        (["otlp", "x.json"], "cannot read x.json"),
        (["jsonl", "x", "y"], "several paths after otlp only"),
        (["otlp", "x", "--reward", "a", "--reward", "b"], "two rewards of one name"),
    ],
)
def test_a_mistake_is_one_line(command, arguments, message):
    code, out, err = command("import", *arguments)
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert message in err
