"""Watching and waiting over HTTP: nothing is missed, and nobody waits for a store that was closed."""

import asyncio
import threading
import time

import pytest
from agentlightning.errors import Deadline, StoreClosed, StoreUnavailable
from agentlightning.server import Server, build_app
from agentlightning.store import waiting
from agentlightning.store.http.client import HttpStore
from agentlightning.store.memory import MemoryStore
from agentlightning.testing.store.making import claimed, request, result

WAKE_S = 5.0
"""Far more than waking takes."""


def watching_threads():
    return sum(thread.name == "agentlightning-watch" for thread in threading.enumerate())


def until(condition):
    deadline = time.monotonic() + WAKE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Comings:
    """A server that goes away and comes back at the same address, with the same store."""

    def __init__(self):
        self.behind = MemoryStore()
        self.server = Server(build_app(store=self.behind))
        self.url = self.server.start()

    def go(self):
        self.server.stop(drain_s=0)

    def come_back(self):
        self.server = Server(build_app(store=self.behind), port=int(self.url.rpartition(":")[2]))
        self.server.start()

    def client(self, **options):
        return HttpStore(self.url, token=self.behind.access_token("owner"), **options)


@pytest.fixture
def comings():
    comings = Comings()
    yield comings
    comings.go()
    comings.behind.close()


# --- watching -------------------------------------------------------------------------------------


def test_what_happens_right_after_watching_begins_is_not_missed(store, serving, run_id):
    for _ in range(20):
        woken = threading.Event()
        leave = store.watch(run_id, woken.set, on="queued")
        serving.behind.enqueue(run_id, [request()])
        assert woken.wait(WAKE_S)
        leave()


def test_watchers_of_the_same_share_one_request(proxied, proxy, run_id):
    before = watching_threads()
    woken = [threading.Event() for _ in range(50)]
    leaves = [proxied.watch(run_id, event.set, on="queued") for event in woken]
    assert watching_threads() == before + 1
    proxied.enqueue(run_id, [request()])
    assert all(event.wait(WAKE_S) for event in woken)
    assert len(proxy.sent("changes")) <= 4
    for leave in leaves:
        leave()


def test_nothing_is_asked_when_nobody_watches_any_more(store, serving, run_id):
    before = watching_threads()
    for _ in range(3):
        leaves = [store.watch(run_id, lambda: None, on=on) for on in ("queued", "over", None)]
        assert watching_threads() == before + 3
        for leave in leaves:
            leave()
        until(lambda: watching_threads() == before)


def test_a_watcher_may_leave_when_it_is_woken(store, run_id):
    before = watching_threads()
    woken = threading.Event()

    def wake():
        leave()
        woken.set()

    leave = store.watch(run_id, wake, on="queued")
    store.enqueue(run_id, [request()])
    assert woken.wait(WAKE_S)
    until(lambda: watching_threads() == before)


def test_closing_ends_the_watching_at_once_and_wakes_everybody(store, run_id):
    before = watching_threads()
    woken = threading.Event()
    store.watch(run_id, woken.set)
    time.sleep(0.1)  # the request is held back by now
    began = time.monotonic()
    store.close()
    assert time.monotonic() - began < 1
    assert woken.is_set()
    assert watching_threads() == before
    with pytest.raises(StoreClosed):
        store.watch(run_id, woken.set)


def test_watchers_are_woken_when_the_server_goes_and_when_it_is_back(comings):
    with comings.client(retry_s=0.1) as store:
        woken = threading.Event()
        store.watch(None, woken.set, on="queued")
        comings.go()
        assert woken.wait(WAKE_S)
        with pytest.raises(StoreUnavailable):
            store.runs()
        run_id = comings.behind.create_run("meanwhile", {}).run_id
        woken.clear()
        comings.come_back()
        assert woken.wait(WAKE_S)  # nobody knows what happened meanwhile
        until(lambda: store.runs() != [])
        woken.clear()
        comings.behind.enqueue(run_id, [request()])
        assert woken.wait(WAKE_S)


def test_watching_may_begin_while_the_server_is_away(comings):
    comings.go()
    with comings.client(retry_s=0.1) as store:
        woken = threading.Event()
        store.watch(None, woken.set)
        comings.come_back()
        assert woken.wait(WAKE_S)


# --- waiting --------------------------------------------------------------------------------------


def test_a_held_claim_is_one_request(proxied, proxy, store, run_id):
    timer = threading.Timer(0.3, store.enqueue, (run_id, [request("late")]))
    timer.start()
    (claim,) = waiting.claim_when_ready(proxied, run_id, "worker", timeout_s=WAKE_S)
    timer.join()
    assert claim.rollout.input == "late"
    assert [sent.operation for sent in proxy.requests] == ["claim"]


def test_a_held_wait_is_one_request(proxied, proxy, store, run_id):
    claim = claimed(store, run_id)
    timer = threading.Timer(0.3, store.finish, ([result(claim)],))
    timer.start()
    (rollout,) = waiting.wait(proxied, [claim.key.rollout_id], timeout_s=WAKE_S)
    timer.join()
    assert rollout.status == "succeeded"
    assert [sent.operation for sent in proxy.requests] == ["wait_over"]


def test_a_claim_whose_reply_is_lost_comes_with_the_next_one(store, proxied, proxy, run_id):
    proxy.do("claim", "lose")
    timer = threading.Timer(0.1, store.enqueue, (run_id, [request("a"), request("b")]))
    timer.start()
    (claim,) = waiting.claim_when_ready(proxied, run_id, "worker", timeout_s=WAKE_S)
    timer.join()
    assert claim.rollout.input == "a"
    assert len(proxy.sent("claim")) == 2
    assert store.statistics(run_id).rollouts["running"] == 1


def test_a_claim_whose_reply_is_lost_comes_with_the_next_one_to_a_coroutine_too(
    store, serving, proxy, run_id
):
    (queued,) = store.enqueue(run_id, [request()])
    impatient = serving.client(url=proxy.url, retry_s=0.0)
    proxy.do("claim", "lose", "lose")  # the try and the one more that it is owed
    claims = asyncio.run(waiting.claim_when_ready_async(impatient, run_id, "worker", timeout_s=10))
    assert [claim.key for claim in claims] == [(queued.rollout_id, 1)]
    assert len({sent.key for sent in proxy.sent("claim")}) == 1
    assert store.statistics(run_id).attempts["running"] == 1


def test_stop_waiting_ends_a_held_claim_and_no_other(store, run_id):
    found = {}

    def claim(worker):
        began = time.monotonic()
        found[worker] = (
            *store.claim_waiting(run_id, worker, timeout_s=3.0),
            time.monotonic() - began,
        )

    threads = [threading.Thread(target=claim, args=(worker,)) for worker in ("one", "two")]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    store.stop_waiting("one")
    threads[0].join()
    store.enqueue(run_id, [request("for two")])
    threads[1].join()
    claims, is_open, seconds = found["one"]
    assert (claims, is_open) == ([], True)
    assert seconds < 2
    assert [claim.rollout.input for claim in found["two"][0]] == ["for two"]


@pytest.mark.parametrize("call", ["claim_waiting", "wait_over"])
def test_closing_ends_what_is_held_back(store, run_id, call):
    claim = claimed(store, run_id)
    calls = {
        "claim_waiting": lambda: store.claim_waiting(run_id, "worker", timeout_s=20),
        "wait_over": lambda: store.wait_over([claim.key.rollout_id], timeout_s=20),
    }
    raised = []

    def wait():
        try:
            calls[call]()
        except StoreClosed as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    began = time.monotonic()
    store.close()
    thread.join()
    assert time.monotonic() - began < 1
    assert "closed" in str(raised[0])


def test_waits_sit_out_the_absence_of_the_server(comings):
    run_id = comings.behind.create_run("away", {}).run_id
    held = claimed(comings.behind, run_id)
    names = [held.key.rollout_id]
    with comings.client(retry_s=0.1) as store:

        async def all_at_once():
            async with asyncio.TaskGroup() as tasks:
                waits = [
                    tasks.create_task(wait)
                    for wait in (
                        asyncio.to_thread(waiting.wait, store, names, timeout_s=60),
                        waiting.wait_async(store, names, timeout_s=60),
                        asyncio.to_thread(waiting.claim_when_ready, store, run_id, "one", timeout_s=60),
                        waiting.claim_when_ready_async(store, run_id, "two", timeout_s=60),
                    )
                ]
                await asyncio.sleep(0.3)
                await asyncio.to_thread(comings.go)
                await asyncio.sleep(1)
                comings.behind.finish([result(held)])
                comings.behind.enqueue(run_id, [request(1), request(2)])
                await asyncio.to_thread(comings.come_back)
            return [task.result() for task in waits]

        over, over_async, claims, claims_async = asyncio.run(all_at_once())
    assert over == over_async
    assert [rollout.status for rollout in over] == ["succeeded"]
    assert sorted(claim.rollout.input for claim in claims + claims_async) == [1, 2]


def test_a_wait_that_ends_while_the_server_is_away_says_so(comings):
    run_id = comings.behind.create_run("away", {}).run_id
    (rollout,) = comings.behind.enqueue(run_id, [request()])
    comings.go()
    with comings.client(retry_s=0.1) as store:
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            waiting.claim_when_ready(store, run_id, "worker", timeout_s=0.3)
        with pytest.raises(Deadline, match=r"0 of 1.*could not be asked.*cannot be reached"):
            waiting.wait(store, [rollout.rollout_id], timeout_s=0.3)
        with pytest.raises(Deadline, match="cannot be reached"):
            asyncio.run(waiting.wait_async(store, [rollout.rollout_id], timeout_s=0.3))
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            asyncio.run(waiting.claim_when_ready_async(store, run_id, "worker", timeout_s=0.3))
    comings.come_back()


def test_nobody_waits_for_a_store_that_was_closed(store, run_id):
    (rollout,) = store.enqueue(run_id, [request()])
    store.close()
    for wait in (
        lambda: waiting.claim_when_ready(store, run_id, "worker", timeout_s=30),
        lambda: waiting.wait(store, [rollout.rollout_id], timeout_s=30),
        lambda: asyncio.run(waiting.wait_async(store, [rollout.rollout_id], timeout_s=30)),
    ):
        with pytest.raises(StoreClosed):
            wait()


def test_a_coroutine_cancelled_while_it_subscribes_leaves_nothing_behind(store, run_id):
    before = watching_threads()

    async def cancel_at_once():
        task = asyncio.create_task(
            waiting.claim_when_ready_async(store, run_id, "worker", timeout_s=30)
        )
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_at_once())
    until(lambda: watching_threads() == before)
