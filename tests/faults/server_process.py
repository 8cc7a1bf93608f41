"""``agl store serve`` in a process of its own, and the server as a test starts, kills and restarts it."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

from agentlightning.cli.main import agl
from nursery import Member, Nursery

START_S = 30.0


def main(store: str, port: str, output: str) -> None:
    os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    agl(["store", "serve", "--store", store, "--port", port, "--json"], standalone_mode=False)


class StoreServer:
    """A server on one port, however often it is started.

    Args:
        nursery: bears its processes.
        store: the URL of what it serves.
        folder: where it says what it has to say.
    """

    def __init__(self, nursery: Nursery, store: str, folder: Path) -> None:
        self._nursery = nursery
        self._store = store
        self._folder = folder
        self._port = free_port()
        self._process: Member | None = None
        self.url = f"http://127.0.0.1:{self._port}"
        self.owner_token = ""
        self.runner_token = ""

    def start(self) -> None:
        """Start it and wait until it answers."""
        output = self._folder / "served.json"
        output.write_text("")
        self._process = self._nursery.start("server_process", self._store, str(self._port), str(output))
        deadline = time.monotonic() + START_S
        while not (told := output.read_text()).endswith("\n"):
            assert time.monotonic() < deadline, "the server says nothing"
            time.sleep(0.005)
        facts = json.loads(told)
        assert facts["url"] == self.url
        self.owner_token, self.runner_token = facts["owner_token"], facts["runner_token"]

    def kill(self) -> None:
        """Kill -9."""
        self._process.kill()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
