"""The seam on an SDK that has moved what it stands on."""

import subprocess
import sys
from types import SimpleNamespace

from agentlightning.recording.seam.selftest import problems_of_sdk
from openai import _base_client, _models


class Moved:
    def send(self):
        """What used to be called request."""

    def _process_response(self, *, cast_to, options, response, stream):
        """As before, but not a coroutine function."""


def test_todays_sdk_is_as_expected():
    assert problems_of_sdk(_base_client, _models) == []


def test_what_has_moved_is_named():
    moved = SimpleNamespace(SyncAPIClient=Moved, AsyncAPIClient=Moved)
    problems = problems_of_sdk(moved, SimpleNamespace())
    assert "SyncAPIClient has no method request" in problems
    assert any("AsyncAPIClient._process_response changed" in problem for problem in problems)
    assert "FinalRequestOptions has no extra_json" in problems
    assert problems_of_sdk(SimpleNamespace(), _models)[0] == "SyncAPIClient has no method request"


SCRIPT = """
import logging, sys
logging.basicConfig(format="%(message)s")
import openai._base_client
del openai._base_client.SyncAPIClient._process_response
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


def test_an_sdk_that_moved_is_a_warning_and_an_error_once_a_rollout_is_active():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert "the agent ran" not in done.stdout
    warning, _, rest = done.stderr.partition("Traceback")
    assert "SyncAPIClient has no method _process_response" in warning
    assert "SeamError" in rest


def test_installing_imports_no_sdk():
    script = "import sys; from agentlightning.recording import seam; seam.install(); assert 'openai' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], timeout=60, check=True)
