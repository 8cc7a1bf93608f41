"""A disk that is full, a real one: a small tmpfs in a mount namespace of its own."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from nursery import Nursery

NAMESPACES = [("unshare", "--mount"), ("unshare", "--map-root-user", "--mount")]
"""How a process gets to mount something that nobody else sees: as root, or as any user."""


@pytest.fixture(scope="module")
def nursery(tmp_path_factory):
    probe = tmp_path_factory.mktemp("probe")
    mount = ("mount", "-t", "tmpfs", "none", str(probe))
    for namespace in NAMESPACES if shutil.which("unshare") else ():
        if subprocess.run([*namespace, *mount], check=False, capture_output=True).returncode == 0:
            with Nursery("full_disk", "agentlightning_sqlite.store", before=namespace) as nursery:
                yield nursery
            return
    # SQLite's own limit of pages stands in for the disk in the tests of the sqlite package.
    pytest.skip("this user may mount no tmpfs, so there is no small disk to fill")


CASES = [
    "refuses_and_goes_on",
    "keeps_no_trace_of_a_refused_version",
    "is_read_by_others",
    "is_opened_with_no_room_at_all",
]


@pytest.mark.parametrize("case", CASES)
def test_a_store_on_a_full_disk(nursery, tmp_path, chance, case):
    disk = tmp_path / "disk"
    disk.mkdir()
    assert nursery.start("full_disk", case, str(disk), str(chance.random())).end() == 0
