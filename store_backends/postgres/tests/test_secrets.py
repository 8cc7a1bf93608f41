"""The password of a database is nobody's business: it is in no message, no record and no file."""

import json
import logging
import sys
from urllib.parse import quote

import agentlightning as agl
import pytest
from agentlightning.cli import main
from agentlightning.errors import StoreUnavailable
from agentlightning.store.opening import without_password
from agentlightning.testing.store import request
from agentlightning_postgres.store import PostgresStore


@pytest.fixture
def is_secret(server):
    """Whether a text has the password in it, plain or quoted."""
    return lambda text: any(word in text for word in (server.password, quote(server.password, safe="")))


@agl.algorithm("store-a-number")
def store_a_number(ctx):
    """Logs one number."""
    ctx.log({"val/reward": 0.5}, 0)
    return ctx.resources.resources


def test_a_run_tells_and_keeps_no_password(url, tmp_path, monkeypatch, capsys, caplog, is_secret):
    for name in ("agentlightning", "psycopg"):
        caplog.set_level(logging.DEBUG, name)
    monkeypatch.chdir(tmp_path)
    assert is_secret(url)
    trainer = agl.Trainer(
        algorithm="store-a-number", store=url, model="none", run_dir=str(tmp_path / "out")
    )
    result = trainer.train([{"prompt": "1+1="}])
    with PostgresStore(url) as store:
        run = store.run(result.run_id)
        assert store.url == run.config["store"] == without_password(url)
        assert not is_secret(json.dumps(run.config) + repr(store))
    printed = capsys.readouterr()
    assert "***@127.0.0.1" in printed.err
    assert not is_secret(printed.out + printed.err + caplog.text)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "summary.json" for path in files)
    assert not any(is_secret(path.read_text(errors="replace")) for path in files)


@pytest.mark.parametrize("command", ["rollouts", "report", "explain"])
def test_the_commands_name_a_store_that_cannot_be_opened_without_it(
    url, command, monkeypatch, capsys, is_secret
):
    elsewhere = url.replace("/postgres?", "/nowhere?")
    named = [] if command == "rollouts" else ["ro-1"]
    monkeypatch.setattr(sys, "argv", ["agl", command, *named, "--store", elsewhere])
    with pytest.raises(SystemExit):
        main()
    printed = capsys.readouterr()
    assert "***@127.0.0.1" in printed.err
    assert not is_secret(printed.out + printed.err)


def test_no_error_of_an_open_store_has_it(server, new_url, caplog, is_secret):
    store = PostgresStore(new_url())
    with pytest.raises(StoreUnavailable) as refused, store._writing() as tables:
        tables._execute("select 1 / 0").fetchone()
    assert not is_secret(str(refused.value))
    store.close()
    with pytest.raises(StoreUnavailable) as refused:
        store.begin("local", request(), "worker")
    assert not is_secret(str(refused.value) + caplog.text)
