"""Time limits, cancellation, lost leases and stopping: an agent is not waited for for ever."""

import asyncio
import threading
import time

import pytest
from agentlightning import semconv
from agentlightning.agent import bind_agent
from agentlightning.errors import RolloutCancelled, StoreClosed, StoreUnavailable
from agentlightning.recording.instruments import instruments
from agentlightning.records import LLM
from agentlightning.runner import Runner
from agentlightning.runner.overdue import Overdue
from agentlightning.store import RolloutQuery
from agentlightning.store.memory import MemoryStore
from openai import OpenAI


@pytest.fixture
def gate():
    """Holds agents until the test opens it."""
    event = threading.Event()
    yield event
    event.set()


def by_status(rollouts):
    return [rollout.status for rollout in rollouts]


def test_a_sync_agent_that_hangs_is_timed_out_and_keeps_its_slot_until_it_returns(
    bench, gate, eventually
):
    def agent(task):
        if task == "hangs":
            gate.wait(10)
        return task

    hanging = bench.enqueue("hangs", timeout_s=0.1)
    later = bench.enqueue("quick")
    with bench.runner(agent) as runner:
        (rollout,) = bench.finished(hanging)
        assert rollout.status == "failed"
        (attempt,) = bench.attempts(rollout)
        assert (attempt.status, attempt.error) == (
            "timed_out", "the agent did not return within its 0.1 s"
        )  # fmt: skip
        eventually(lambda: runner.report()["overdue"] == 1)
        assert bench.store.statistics().rollouts["queued"] == 1
        gate.set()
        assert by_status(bench.finished(later)) == ["succeeded"]
        assert runner.report()["overdue"] == 0


def test_an_async_agent_that_hangs_is_timed_out_and_cancelled(bench):
    ended = threading.Event()

    async def agent(task):
        if task == "hangs":
            try:
                await asyncio.sleep(10)
            finally:
                ended.set()
        return task

    hanging = bench.enqueue("hangs", timeout_s=0.1)
    later = bench.enqueue("quick")
    with bench.runner(agent):
        assert by_status(bench.finished(hanging)) == ["failed"]
        assert ended.wait(5)
        assert by_status(bench.finished(later)) == ["succeeded"]


def test_an_async_agent_that_blocks_the_loop_is_timed_out_all_the_same(bench, gate):
    async def agent(task):
        gate.wait(10)

    rollout_ids = bench.enqueue("blocks", timeout_s=0.1)
    with bench.runner(agent):
        (rollout,) = bench.finished(rollout_ids)
        gate.set()

    assert bench.attempts(rollout)[0].status == "timed_out"


def test_a_timed_out_attempt_is_tried_again(bench):
    tries = []

    async def agent(task):
        tries.append(task)
        if len(tries) == 1:
            await asyncio.sleep(10)
        return "second"

    (rollout,) = bench.done(agent, "task", timeout_s=0.1, max_attempts=2)

    assert [it.status for it in bench.attempts(rollout)] == ["timed_out", "succeeded"]
    assert rollout.output == "second"


def test_the_root_span_of_a_timed_out_attempt_says_so(bench):
    async def agent(task):
        await asyncio.sleep(10)

    (rollout,) = bench.done(agent, "task", timeout_s=0.05)

    (root,) = bench.spans(rollout)
    assert root.status == "error"
    assert root.events[0].attributes[semconv.EXCEPTION_TYPE].endswith("Deadline")


def test_the_next_llm_call_after_the_time_limit_raises(bench, model_server, gate, eventually):
    raised = []

    def agent(task, llm):
        client = OpenAI(base_url=llm.base_url, api_key="none", max_retries=0)
        ask = {"model": llm.model, "messages": [{"role": "user", "content": "hi"}]}
        client.chat.completions.create(**ask)
        gate.wait(10)
        try:
            client.chat.completions.create(**ask)
        except RolloutCancelled as error:
            raised.append(error)
            raise

    bench.publish(llm=LLM(model="tiny", base_url=model_server.url))
    rollout_ids = bench.enqueue("task", timeout_s=2.0)
    instruments.install()
    try:
        with bench.runner(agent) as runner:
            (rollout,) = bench.finished(rollout_ids)
            gate.set()
            eventually(lambda: raised)
            assert runner.report()["late"] == {"llm call": 1}
    finally:
        instruments.uninstall()

    assert raised
    assert len(model_server.requests) == 1
    assert [span.kind for span in bench.spans(rollout)].count("llm") == 1


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_cancelled_rollout_reaches_its_agent_and_keeps_its_spans(bench, kind, eventually):
    begun = threading.Event()
    release = threading.Event()

    async def patient(task):
        begun.set()
        await asyncio.sleep(10)

    def stubborn(task):
        begun.set()
        release.wait(10)

    rollout_ids = bench.enqueue("task", lease_s=4.0)
    later = bench.enqueue("later", timeout_s=0.05)
    with bench.runner(patient if kind == "async" else stubborn) as runner:
        assert begun.wait(5)
        bench.store.cancel(rollout_ids)
        eventually(lambda: bench.store.attempts(rollout_ids[0])[0].status == "cancelled")
        release.set()
        bench.finished(later)
        assert runner.report()["cancelled"] == 1

    (rollout,) = bench.finished(rollout_ids)
    assert rollout.status == "cancelled"
    assert [span.kind for span in bench.spans(rollout)] == ["agent"]


class DeafStore(MemoryStore):
    """A store that no heartbeat reaches while it is deaf, like one behind a broken network."""

    deaf = True

    def heartbeat(self, worker_id, attempts, report=None):
        return {} if self.deaf else super().heartbeat(worker_id, attempts, report)


def test_a_lost_attempt_is_given_up_and_the_next_one_counts(bench_on, gate, eventually, caplog):
    tries = []

    def agent(task):
        tries.append(task)
        if len(tries) == 1:
            gate.wait(10)
            return "first"
        return "second"

    bench = bench_on(DeafStore())
    rollout_ids = bench.enqueue("task", lease_s=0.5)
    with bench.runner(agent, count=2) as runner:
        (rollout,) = bench.finished(rollout_ids)
        bench.store.deaf = False
        eventually(lambda: runner.report().get("lost") == 1)
        gate.set()

    assert [it.status for it in bench.attempts(rollout)] == ["lost", "succeeded"]
    assert rollout.output == "second"
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_result_that_comes_too_late_is_dropped_quietly_and_counted(bench_on, gate, caplog):
    def agent(task):
        gate.wait(10)
        return 1.0

    bench = bench_on(DeafStore())
    rollout_ids = bench.enqueue("task", lease_s=0.1, max_lost=0)
    with bench.runner(agent) as runner:
        (rollout,) = bench.finished(rollout_ids)
        gate.set()
        runner.stop(2.0)
        assert runner.report()["stale"] == 1

    assert rollout.status == "failed"
    assert [it.status for it in bench.attempts(rollout)] == ["lost"]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


LEASE_S, LONGER_S = 0.8, 1.6
"""A busy computer may be late with a heartbeat, one of four in a lease."""


def test_heartbeats_keep_a_long_attempt_alive(bench, gate):
    def agent(task):
        gate.wait(LONGER_S)
        return task

    (rollout,) = bench.done(agent, "task", lease_s=LEASE_S)

    assert [it.status for it in bench.attempts(rollout)] == ["succeeded"]


def test_an_agent_that_computes_without_a_pause_does_not_hold_up_heartbeats(bench):
    def agent(task):
        end = time.monotonic() + LONGER_S
        while time.monotonic() < end:
            sum(range(1000))
        return task

    (rollout,) = bench.done(agent, "task", lease_s=LEASE_S)

    assert [it.status for it in bench.attempts(rollout)] == ["succeeded"]


def test_an_async_agent_that_blocks_the_loop_does_not_hold_up_heartbeats(bench):
    async def agent(task):
        if task == "blocks":
            time.sleep(LONGER_S)  # noqa: ASYNC251 - the fault is the test
        return task

    rollouts = bench.done(agent, "blocks", "behind it", count=2, lease_s=LEASE_S)

    assert by_status(rollouts) == ["succeeded", "succeeded"]
    assert [rollout.attempt for rollout in rollouts] == [1, 1]


def test_a_runner_ends_with_its_run_although_an_agent_hangs(bench, gate):
    hanging = bench.enqueue("hangs", timeout_s=0.1)
    runner = Runner(bench.store, bench.run.run_id, bind_agent(lambda task: gate.wait(10)))
    threads = [threading.Thread(target=runner.work) for _ in range(2)]
    for thread in threads:
        thread.start()
    bench.finished(hanging)
    started = time.monotonic()
    bench.store.set_run_status(bench.run.run_id, "succeeded")
    for thread in threads:
        thread.join(8)
    runner.close()

    assert time.monotonic() - started < 8.0


def test_stopping_lets_running_attempts_finish_and_claims_no_more(bench, gate):
    begun = threading.Event()

    def agent(task):
        begun.set()
        gate.wait(10)
        return task

    rollout_ids = bench.enqueue("first", "second")
    with bench.runner(agent) as runner:
        assert begun.wait(5)
        threading.Timer(0.1, gate.set).start()
        runner.stop(5.0)

    assert by_status(bench.store.rollouts(RolloutQuery()).items) == ["succeeded", "queued"]
    assert rollout_ids


def test_an_attempt_that_outlives_the_stop_is_given_back_at_once(bench, gate):
    begun = threading.Event()

    def agent(task):
        begun.set()
        gate.wait(10)
        return "late"

    rollout_ids = bench.enqueue("task", lease_s=60)
    with bench.runner(agent) as runner:
        assert begun.wait(5)
        started = time.monotonic()
        runner.stop(0.1)
        assert time.monotonic() - started < 8.0
    with bench.runner(lambda task: "again"):
        (rollout,) = bench.finished(rollout_ids)

    assert rollout.output == "again"
    first, second = bench.attempts(rollout)
    assert (first.status, second.status) == ("lost", "succeeded")
    assert "was stopped" in first.error


def test_slots_that_all_hang_are_an_error_in_the_log(bench, gate, caplog, eventually):
    runner = Runner(
        bench.store,
        bench.run.run_id,
        bind_agent(lambda task: gate.wait(10)),
        overdue=Overdue(grace_s=0.1),
    )
    thread = threading.Thread(target=runner.work)
    bench.enqueue("task", timeout_s=0.05)
    thread.start()
    eventually(lambda: "all 1 slots are taken" in caplog.text)
    gate.set()
    runner.stop(1.0)
    thread.join(5)
    runner.close()


class MovedAway(MemoryStore):
    """A store that cannot be reached for a number of calls, or whose replies get lost."""

    away = 0
    lost_replies = 0

    def _go(self):
        if self.away > 0:
            self.away -= 1
            msg = "nobody there"
            raise StoreUnavailable(msg)

    def finish(self, results):
        self._go()
        return super().finish(results)

    def finish_and_claim(self, results, run_id, worker_id, **options):
        self._go()
        turnover = super().finish_and_claim(results, run_id, worker_id, **options)
        self._lose_reply()
        return turnover

    def claim(self, run_id, worker_id, **options):
        self._go()
        claims = super().claim(run_id, worker_id, **options)
        if claims:
            self._lose_reply()
        return claims

    def _lose_reply(self):
        if self.lost_replies > 0:
            self.lost_replies -= 1
            msg = "the connection broke"
            raise StoreUnavailable(msg)


def test_a_store_that_comes_back_gets_the_result(bench_on):
    bench = bench_on(MovedAway())
    bench.store.away = 2

    assert by_status(bench.done(lambda task: task, "task")) == ["succeeded"]


def test_replies_that_get_lost_neither_lose_nor_double_a_claim(bench_on):
    bench = bench_on(MovedAway())
    bench.store.lost_replies = 3
    asked = []

    rollouts = bench.done(asked.append, *"abcd")

    assert asked == list("abcd")
    assert [rollout.attempt for rollout in rollouts] == [1, 1, 1, 1]
    assert bench.store.lost_replies == 0


def test_a_store_that_stays_away_ends_the_worker_at_once_with_what_it_could_not_do(bench_on, caplog):
    bench = bench_on(MovedAway())
    bench.enqueue("task")

    def agent(task):
        bench.store.away = 1000

    runner = Runner(bench.store, bench.run.run_id, bind_agent(agent), patience_s=0.2)

    with pytest.raises(StoreUnavailable, match=r"could not finish a rollout for 0\.2 s"):
        runner.work()
    started = time.monotonic()
    runner.close()
    assert time.monotonic() - started < 15.0
    assert "spans" not in caplog.text  # the agent's went with the result, and none is left


class Blind(MemoryStore):
    """A store that nobody can watch."""

    watched = 0

    def watch(self, *args, **kwargs):
        self.watched += 1
        msg = "the file is locked"
        raise StoreUnavailable(msg)


def test_a_stop_ends_what_waits_for_a_store_that_cannot_be_watched(bench_on, eventually):
    bench = bench_on(Blind())
    with bench.runner(lambda task: task):
        eventually(lambda: bench.store.watched > 1)
    assert bench.store.watched < 10


class Closed(MemoryStore):
    """A store that somebody closes while an agent runs."""

    def finish_and_claim(self, *args, **kwargs):
        msg = "this store was closed"
        raise StoreClosed(msg)


def test_a_store_that_was_closed_is_not_waited_for(bench_on):
    bench = bench_on(Closed())
    bench.enqueue("task")
    runner = Runner(bench.store, bench.run.run_id, bind_agent(lambda task: task))

    started = time.monotonic()
    with pytest.raises(StoreClosed):
        runner.work()
    assert time.monotonic() - started < 30.0
