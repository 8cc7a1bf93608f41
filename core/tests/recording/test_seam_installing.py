"""Putting the seam in and taking it out again."""

import pytest
from agentlightning.recording import seam
from openai import _base_client

pytestmark = pytest.mark.usefixtures("installed")

HI = [{"role": "user", "content": "hi"}]


METHODS = [(owner, name) for owner in (_base_client.SyncAPIClient, _base_client.AsyncAPIClient)
           for name in ("request", "_process_response")]  # fmt: skip


@pytest.fixture
def uninstalled():
    seam.uninstall()
    yield [vars(owner)[name] for owner, name in METHODS]
    seam.install()


def test_uninstalling_restores_the_exact_originals_and_installs_are_counted(
    recording, uninstalled, client
):
    seam.install()
    seam.install()
    with recording.rollout() as context:
        client().chat.completions.create(model="m", messages=HI)
        seam.uninstall()
        client().chat.completions.create(model="m", messages=HI)
        seam.uninstall()
        client().chat.completions.create(model="m", messages=HI)
    assert len(recording.calls(context)) == 2
    assert [vars(owner)[name] for owner, name in METHODS] == uninstalled
    seam.uninstall()
    assert [vars(owner)[name] for owner, name in METHODS] == uninstalled


def test_a_wrapper_put_on_top_of_ours_is_not_thrown_away(recording, uninstalled, monkeypatch, client):
    owner, seen = _base_client.SyncAPIClient, []
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
    monkeypatch.setattr(owner, "request", uninstalled[0])
