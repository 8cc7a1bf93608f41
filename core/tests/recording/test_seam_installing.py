"""Putting the seam in and taking it out again."""

import importlib.util
import subprocess
import sys

import httpx
import openai
import pytest
from agentlightning.recording import seam
from openai import _base_client

pytestmark = pytest.mark.usefixtures("installed")

HI = [{"role": "user", "content": "hi"}]
PATCHED = [("openai._base_client", "APIClient", ("request", "_process_response")),
           ("anthropic._base_client", "APIClient", ("request", "_process_response")),
           ("httpx", "Client", ("send",)), ("httpx2", "Client", ("send",))]  # fmt: skip


def patched_methods():
    """The methods that are patched of what this environment has, as they are this moment."""
    found = {}
    for module, client, names in PATCHED:
        if importlib.util.find_spec(module.partition(".")[0]) is None:
            continue
        for kind in ("Sync" if client == "APIClient" else "", "Async"):
            owner = getattr(importlib.import_module(module), kind + client)
            found.update({(module, kind, name): vars(owner)[name] for name in names})
    return found


@pytest.fixture
def uninstalled():
    """The originals, with the seam taken out for the test."""
    patched_methods()  # all of them are imported, and patched
    seam.uninstall()
    yield patched_methods()
    seam.install()


def test_uninstalling_restores_the_exact_originals_and_installs_are_counted(
    recording, uninstalled, client
):
    seam.install()
    seam.install()
    inside = patched_methods()
    assert not [name for name in inside if inside[name] is uninstalled[name]]
    with recording.rollout() as context:
        client().chat.completions.create(model="m", messages=HI)
        seam.uninstall()
        assert patched_methods() == inside
        client().chat.completions.create(model="m", messages=HI)
        seam.uninstall()
        client().chat.completions.create(model="m", messages=HI)
    assert len(recording.calls(context)) == 2
    assert patched_methods() == uninstalled
    seam.uninstall()
    assert patched_methods() == uninstalled


def test_uninstalled_in_the_middle_of_a_call_its_record_is_still_made(recording, client):
    with recording.rollout() as context:
        stream = client().chat.completions.create(model="m", messages=HI, stream=True)
        seam.uninstall()
        list(stream)
        seam.install()
    (call,) = recording.calls(context)
    assert call.complete


def test_a_wrapper_put_on_top_of_ours_is_not_thrown_away(recording, uninstalled, monkeypatch, client):
    owner, seen = _base_client.SyncAPIClient, []
    original = owner.request
    seam.install()
    ours = owner.request

    def theirs(self, *args, **kwargs):
        seen.append(1)
        return ours(self, *args, **kwargs)

    monkeypatch.setattr(owner, "request", theirs)
    seam.uninstall()
    assert owner.request is theirs
    with recording.rollout() as context:
        client().chat.completions.create(model="m", messages=HI)
        seam.install()
        client().chat.completions.create(model="m", messages=HI)
        seam.uninstall()
    assert len(seen) == 2
    assert len(recording.calls(context)) == 1
    monkeypatch.setattr(owner, "request", original)


def test_clients_built_before_copied_or_derived_are_covered(
    recording, uninstalled, server, client, key
):
    class Own(openai.OpenAI):
        def request(self, *args, **kwargs):
            return super().request(*args, **kwargs)

    own = Own(base_url=server.url, api_key=key, max_retries=0, http_client=httpx.Client())
    early = client()
    seam.install()
    with recording.rollout() as context:
        for model in (early, early.with_options(timeout=3), early.copy(max_retries=1), own):
            model.chat.completions.create(model="m", messages=HI)
    seam.uninstall()
    assert len(recording.spans(context, "llm")) == 4


IMPORTED_LATER = """
import sys
from agentlightning.recording import seam
seam.install()
assert not {"openai", "anthropic", "httpx", "httpx2"} & set(sys.modules), "something was imported"
import openai
assert hasattr(openai._base_client.SyncAPIClient.request, "__wrapped__")
seam.uninstall()
assert not hasattr(openai._base_client.SyncAPIClient.request, "__wrapped__")
import anthropic
assert not hasattr(anthropic._base_client.SyncAPIClient.request, "__wrapped__")
seam.install()
assert hasattr(anthropic._base_client.SyncAPIClient.request, "__wrapped__")
"""


def test_nothing_is_imported_early_and_all_is_patched_when_it_is_imported():
    subprocess.run([sys.executable, "-c", IMPORTED_LATER], timeout=60, check=True)
