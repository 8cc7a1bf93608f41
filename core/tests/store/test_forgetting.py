"""Answers to claims do not pile up, however long a server runs and however many attempts run on."""

import pytest
from agentlightning.store import forgetting
from agentlightning.store.memory import MemoryStore
from agentlightning.testing.store.making import Clock, ended, request


@pytest.fixture
def clock():
    return Clock()


def answers_in(store):
    with store._reading() as tables:
        return [key for key, _ in tables.answers("claim", after=None, limit=10**6)]


def test_answers_do_not_pile_up_behind_attempts_that_run_on(clock):
    with MemoryStore(clock=clock) as store:
        run_id = store.create_run("long", {}).run_id
        store.enqueue(run_id, [request(n, lease_s=1e9) for n in range(5000)])
        for number in range(300):  # more than are looked at in one go
            store.claim(run_id, "worker", key=f"runs on {number}")
        for number in range(4000):
            clock.advance(forgetting.KEPT_S / 100)
            claims = store.claim(run_id, "worker", key=f"ends {number}")
            store.finish([ended(claim, "succeeded") for claim in claims])
        kept = answers_in(store)
        assert {f"runs on {number}" for number in range(300)} <= set(kept)
        assert {f"ends {number}" for number in range(3901, 4000)} <= set(kept)
        assert len(kept) < 2 * (300 + 100) + 4 * forgetting.EVERY
