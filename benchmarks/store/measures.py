"""What is measured, of any store: the same calls for each, only their answers timed."""

from __future__ import annotations

import gc
import random
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from agentlightning.records import AttemptKey, Outcome
from agentlightning.store import Result, Store

from benchmarks.store import workload
from benchmarks.store.figures import Figure, Stopwatch, median_rate, named, progress
from benchmarks.store.stage import Stage

CLIENTS = 16
SUCCEEDED = Outcome(status="succeeded", output={"answer": 42})


def adding(stage: Stage, sizes: workload.Sizes) -> Iterator[Figure]:
    """Spans of 12 text attributes a second, 1,000 a call, by one client."""
    rollouts = sizes.spans // workload.SPANS_EACH

    def once() -> float:
        watch = Stopwatch()
        for batch in workload.batches(workload.begun(stage.store, rollouts)):
            watch.time(lambda batch=batch: stage.store.add_spans(batch))
        return watch.seconds

    rate = median_rate(sizes.spans, sizes.repeats, once)
    yield Figure("add_spans_per_s", rate, "spans/s")


def claiming(stage: Stage, sizes: workload.Sizes) -> Iterator[Figure]:
    """Rollouts claimed a second, one a call, by one client; and 100 a call."""
    for limit, metric in ((1, "claims_per_s"), (100, "claims_per_s_by_100")):

        def once(limit: int = limit) -> float:
            run_id, watch = workload.queued(stage.store, sizes.rollouts), Stopwatch()
            for _ in range(sizes.rollouts // limit):
                watch.time(lambda: stage.store.claim(run_id, "bench", limit=limit))
            return watch.seconds

        yield Figure(metric, median_rate(sizes.rollouts, sizes.repeats, once), "claims/s")


def turning_over(stage: Stage, sizes: workload.Sizes) -> Iterator[Figure]:
    """Attempts finished and claimed a second, one a call, by one client and by 16.

    A client is a thread of this process, as the workers of a runner are. They share the store object,
    except over a network, where each has its own, with its own connection.
    """
    rate = median_rate(sizes.rollouts, sizes.repeats, lambda: pairs(stage, sizes.rollouts, clients=1))
    many = median_rate(
        sizes.rollouts, sizes.repeats, lambda: pairs(stage, sizes.rollouts, clients=CLIENTS)
    )
    if stage.is_remote:  # what counts there is many clients; elsewhere they share one lock
        yield Figure("claim_finish_pairs_per_s", many, "pairs/s")
        yield Figure("claim_finish_pairs_per_s_by_1_client", rate, "pairs/s")
    else:
        yield Figure("claim_finish_pairs_per_s", rate, "pairs/s")
        yield Figure(f"claim_finish_pairs_per_s_by_{CLIENTS}_clients", many, "pairs/s")


def pairs(stage: Stage, rollouts: int, *, clients: int) -> float:
    """Seconds until ``clients`` workers have turned over a queue of ``rollouts``."""
    run_id = workload.queued(stage.store, rollouts)
    barrier = threading.Barrier(clients + 1)
    with ExitStack() as stack, ThreadPoolExecutor(clients) as pool:
        stores = [stack.enter_context(stage.another()) for _ in range(clients)]
        done = [
            pool.submit(_work, store, run_id, f"worker-{number}", barrier)
            for number, store in enumerate(stores)
        ]
        barrier.wait()
        started = time.perf_counter()
        finished = sum(future.result() for future in done)
        seconds = time.perf_counter() - started
    if finished != rollouts:
        raise AssertionError(f"{finished} of {rollouts} rollouts were turned over")
    return seconds


def _work(store: Store, run_id: str, worker_id: str, barrier: threading.Barrier) -> int:
    barrier.wait()
    claims = store.claim(run_id, worker_id)
    finished = 0
    while claims:
        results = [Result(key=claim.key, outcome=SUCCEEDED) for claim in claims]
        finished += len(results)
        claims = store.finish_and_claim(results, run_id, worker_id).claims
    return finished


def growing(stage: Stage, sizes: workload.Sizes) -> Iterator[Figure]:
    """Fill an empty store to the largest size, and look at the costs at each size on the way.

    The rate of adding at a size is that of the second half of the way there.
    """
    keys = workload.begun(stage.store, sizes.stages[-1] // workload.SPANS_EACH)
    stream = workload.batches(keys)
    stored, memory = 0, []
    for size in sizes.stages:
        watch = Stopwatch()
        while stored < size:
            batch = next(stream)
            if stored < size / 2:
                stage.store.add_spans(batch)
            else:
                watch.time(lambda batch=batch: stage.store.add_spans(batch))
            stored += len(batch)
            if stored % 100_000 == 0:
                progress(f"  {stored:,} spans stored")
        at = named(size)
        yield Figure(f"add_spans_per_s_at_{at}", size / 2 / watch.seconds, "spans/s")
        complete = keys[: size // workload.SPANS_EACH]
        yield Figure(f"read_1000_of_{at}_ms", _reading_ms(stage.store, complete, sizes.reads), "ms")
        seconds = pairs(stage, sizes.rollouts, clients=1)
        yield Figure(f"claim_finish_pairs_per_s_at_{at}", sizes.rollouts / seconds, "pairs/s")
        gc.collect()
        memory.append(stage.keeper.memory_info().rss)
    grown = (memory[-1] - memory[0]) / 2**20
    yield Figure(f"rss_growth_mb_over_{named(sizes.stages[-1])}", grown, "MB")


def _reading_ms(store: Store, keys: Sequence[AttemptKey], reads: int) -> float:
    """The median of reading all spans of one rollout, drawn by chance."""
    chance, taken = random.Random(0), []
    for key in chance.choices(keys, k=reads):
        started = time.perf_counter()
        found = list(store.spans([key.rollout_id]))
        taken.append((time.perf_counter() - started) * 1000)
        if len(found) != workload.SPANS_EACH:
            raise AssertionError(f"rollout {key.rollout_id} has {len(found)} spans")
    return statistics.median(taken)
