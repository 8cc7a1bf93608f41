"""The seam on packages that have moved what it stands on."""

import importlib
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from agentlightning.recording import seam
from agentlightning.recording.seam.selftest import problems_of_http, problems_of_sdk
from openai import _base_client, _models


class Moved:
    def send(self):
        """What used to be called request."""

    def _process_response(self, *, cast_to, options, response, stream):
        """As before, but not a coroutine function."""


@pytest.mark.parametrize("package", ["openai", "anthropic"])
def test_todays_sdk_is_as_expected(package):
    pytest.importorskip(package)
    base_client, models = (
        importlib.import_module(f"{package}.{it}") for it in ("_base_client", "_models")
    )
    assert problems_of_sdk(base_client, models) == []


@pytest.mark.parametrize("package", ["httpx", "httpx2"])
def test_todays_http_library_is_as_expected(package):
    assert problems_of_http(pytest.importorskip(package)) == []


def test_what_has_moved_is_named():
    moved = SimpleNamespace(SyncAPIClient=Moved, AsyncAPIClient=Moved, Client=Moved)
    problems = problems_of_sdk(moved, SimpleNamespace())
    assert "SyncAPIClient has no method request" in problems
    assert any("AsyncAPIClient._process_response changed" in problem for problem in problems)
    assert "FinalRequestOptions has no extra_json" in problems
    assert (
        problems_of_sdk(SimpleNamespace(), SimpleNamespace())[0]
        == "SyncAPIClient has no method request"
    )
    assert problems_of_http(moved) == [
        "Client.send takes no auth, request, stream",
        "AsyncClient has no method send",
    ]


def test_another_tools_wrapper_beneath_ours_is_no_move(recording, client, monkeypatch):
    owner, seen = _base_client.SyncAPIClient, []
    original = owner.request

    def theirs(*args, **kwargs):
        seen.append(1)
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, "request", theirs)
    assert problems_of_sdk(_base_client, _models) == []
    seam.install()
    try:
        with recording.rollout() as context:
            client().chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    finally:
        seam.uninstall()
    assert owner.request is theirs
    assert len(recording.calls(context)) == len(seen) == 1


MOVED = {
    "del openai._base_client.SyncAPIClient._process_response": "has no method _process_response",
    "openai._base_client.AsyncAPIClient.request = lambda self, cast_to, *, data: None": (
        "AsyncAPIClient.request takes no options, stream"
    ),
    "del sys.modules['openai._models']; sys.modules['openai._models'] = None": (
        "it has no module openai._models"
    ),
    "import anthropic._base_client as a; del a.SyncAPIClient.request": (
        "anthropic package can't be recorded"
    ),
    "import httpx; del httpx.AsyncClient.send": "httpx package can't be recorded",
}
SCRIPT = """
import logging, sys
logging.basicConfig(format="%(message)s")
import openai._base_client
{moved}
from agentlightning.recording import seam
from agentlightning.recording.attempt import attempt
from agentlightning.recording.sink import Sink
from agentlightning.records import RolloutRequest
from agentlightning.store.memory import MemoryStore
seam.install()
store = MemoryStore()
claim = store.begin("local", RolloutRequest(input=1), "worker")
with attempt(claim, Sink(store), resolve=lambda info: None):
    print("the agent ran")
"""


@pytest.mark.parametrize("moved", MOVED)
def test_a_package_that_moved_is_a_warning_and_an_error_once_a_rollout_is_active(moved):
    if "anthropic" in moved:
        pytest.importorskip("anthropic")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(moved=moved)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "the agent ran" not in done.stdout
    warning, _, rest = done.stderr.partition("Traceback")
    assert MOVED[moved] in warning
    assert "SeamError" in rest


IMPORTED_INSIDE = """
from agentlightning.errors import SeamError
from agentlightning.recording import seam
from agentlightning.recording.attempt import attempt
from agentlightning.recording.sink import Sink
from agentlightning.records import RolloutRequest
from agentlightning.store.memory import MemoryStore
seam.install()
store = MemoryStore()
claim = store.begin("local", RolloutRequest(input=1), "worker")
with attempt(claim, Sink(store), resolve=lambda info: None):
    try:
        import anthropic
    except SeamError as error:
        print(error)
"""


def test_a_package_that_moved_and_is_imported_inside_a_rollout_is_an_error_there(tmp_path):
    package = tmp_path / "anthropic"
    package.mkdir()
    for module in ("__init__", "_models", "_types"):
        (package / f"{module}.py").touch()
    (package / "_base_client.py").write_text("class SyncAPIClient: pass")
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED_INSIDE],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "anthropic package can't be recorded" in done.stdout
    assert "SyncAPIClient has no method request" in done.stdout
    assert "Install a version" in done.stdout
