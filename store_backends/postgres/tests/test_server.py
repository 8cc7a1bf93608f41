"""The server that tests start, from the system's programs and from the wheel's."""

import os
import shutil

import psutil
import psycopg
import pytest
from agentlightning.testing.postgres import (
    PostgresError,
    PostgresServer,
    find_binaries,
    wheel_binaries,
)
from agentlightning_postgres.store import PostgresStore


@pytest.mark.parametrize("find", [find_binaries, wheel_binaries])
def test_a_server_starts_asks_for_its_password_survives_a_crash_and_is_gone(find):
    binaries = find()
    if binaries is None:
        pytest.skip('the wheel is not installed: pip install "agentlightning-postgres[testing]"')
    with PostgresServer(binaries=binaries) as server:
        folder, process = server._folder, server._main_process()
        with PostgresStore(server.create_database()) as store:
            run_id = store.create_run("kept", {}).run_id
            server.kill()
            assert not server.is_running
            server.start()
            assert [run.run_id for run in store.runs()] == [run_id]
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(server.url.replace("//agentlightning:", "//agentlightning:x"))
    assert not folder.exists()
    assert not psutil.pid_exists(process.pid) or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user run the server")
def test_programs_in_a_folder_that_only_root_may_enter_are_copied_and_the_copy_is_removed(tmp_path):
    binaries = wheel_binaries()
    if binaries is None:
        pytest.skip('the wheel is not installed: pip install "agentlightning-postgres[testing]"')
    package, closed = binaries.parent.parent, tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for folder in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(folder, closed / folder.name, symlinks=True)
    server = PostgresServer(binaries=closed / binaries.relative_to(package.parent))
    with server:
        copy = server._copied
        PostgresStore(server.create_database()).close()
    assert not copy.exists()


def test_a_setting_it_does_not_know_is_told_with_the_servers_own_words():
    server = PostgresServer(settings={"no_such_setting": "1"})
    with pytest.raises(PostgresError, match="no_such_setting"):
        server.start()
    server.stop()


def test_an_unstarted_server_has_no_url():
    with pytest.raises(PostgresError, match="start"):
        _ = PostgresServer().url
