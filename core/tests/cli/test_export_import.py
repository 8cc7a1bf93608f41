"""``agl export`` and ``agl import`` as they are typed, on real stores."""

from __future__ import annotations

import io
import json
import sys
from types import SimpleNamespace

import pytest
from agentlightning.cli import main
from agentlightning.store.opening import open_store
from agentlightning.testing.store.making import request
from agentlightning.testing.store.moving import picture

LAPTOP = "sqlite:///agentlightning.db"
OTHER = "sqlite:///other.db"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder to work in, with no store named by the environment."""
    monkeypatch.delenv("AGENTLIGHTNING_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def command(monkeypatch, capsysbinary):
    """Runs ``agl`` with arguments; returns exit code, standard output and standard error."""

    def run(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "argv", ["agl", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as left:
            main()
        captured = capsysbinary.readouterr()
        return left.value.code or 0, captured.out, captured.err.decode()

    return run


@pytest.fixture
def run_id(folder):
    with open_store(LAPTOP) as store:
        run_id = store.create_run("mine", {}).run_id
        store.publish(run_id, {})
        store.enqueue(run_id, [request({"n": n}) for n in range(3)], key="k")
        store.claim(run_id, "worker", limit=2)
    return run_id


def same(run_id, left=LAPTOP, right=OTHER):
    with open_store(left) as one, open_store(right) as two:
        return picture(one, run_id) == picture(two, run_id)


def test_a_run_moves_to_another_store_and_back(command, run_id, folder):
    code, out, err = command("export", run_id)
    assert (code, out) == (0, b"")
    assert (
        f"exported 8 rows (1 run, 1 resources, 3 rollout, 2 attempt, 1 answer) to {run_id}.jsonl" in err
    )
    code, out, _ = command("import", f"{run_id}.jsonl", "--store", OTHER)
    assert code == 0
    assert b"8 new, 0 there already" in out
    assert f"run {run_id}".encode() in out
    assert same(run_id)
    assert command("export", run_id, "--store", OTHER, "--to", "back.parquet")[0] == 0
    assert command("import", "back.parquet", "--store", "sqlite:///third.db")[0] == 0
    assert same(run_id, right="sqlite:///third.db")
    code, out, _ = command("import", "back.parquet")
    assert b"0 new, 8 there already" in out


def test_a_run_goes_through_a_pipe(command, run_id):
    code, out, err = command("export", run_id, "--to", "-")
    assert code == 0
    assert out.startswith(b'{"kind":"header"')
    assert "to -" in err
    assert command("import", "-", "--store", OTHER, stdin=out)[0] == 0
    assert same(run_id)


def test_both_tell_machines_what_they_did(command, run_id):
    _, out, err = command("export", run_id, "--to", "run.jsonl.gz", "--json")
    told = json.loads(out)
    assert (told["format"], told["path"], told["rows"]["rollout"]) == ("jsonl", "run.jsonl.gz", 3)
    assert told["bytes"] > 0
    assert err == ""
    _, out, _ = command("import", "jsonl", "run.jsonl.gz", "--store", OTHER, "--json")
    told = json.loads(out)
    assert (told["runs"], told["new"], told["there_already"]) == ([run_id], 8, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export", "run-nobody-made"], "no run 'run-nobody-made'; its latest are: run-"),
        (["export", "RUN", "--to", "x.parquet", "--format", "jsonl"], "is named like parquet"),
        (["export", "RUN", "--to", "-", "--json"], "both write to standard output"),
        (
            ["export", "RUN", "--to", "-", "--format", "parquet"],
            "a folder cannot go to standard output",
        ),
        (["export", "RUN", "--to", "nowhere/x.jsonl"], "cannot write nowhere"),
        (["export", "RUN", "--to", "agentlightning.db"], "exists already"),
        (["export", "RUN", "--store", "sqlite:///none.db"], "no store at sqlite:///none.db"),
        (["import", "nothing.jsonl"], "there is no file or folder nothing.jsonl"),
        (["import", "agentlightning.db"], "agentlightning.db line 1 is no header of an export"),
        (["import", "csv", "x.csv"], "expected a path, perhaps after one of the formats"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(command, run_id, folder, arguments, message):
    before = sorted(folder.rglob("*"))
    code, out, err = command(*[run_id if item == "RUN" else item for item in arguments])
    assert (code, out) == (1, b"")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert sorted(folder.rglob("*")) == before


def test_a_run_that_went_on_elsewhere_is_not_overwritten(command, run_id):
    command("export", run_id, "--to", "run.jsonl")
    command("import", "run.jsonl", "--store", OTHER)
    with open_store(OTHER) as store:
        store.set_run_status(run_id, "succeeded")
    code, _, err = command("import", "run.jsonl", "--store", OTHER)
    assert code == 1
    assert f"run.jsonl, line 2 to line 9: run {run_id} is there already, with another status" in err
