"""What HTTP can do at most here: the same bodies, clients and server, and no store behind it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import urllib3
from agentlightning.records import to_json
from agentlightning.store import Result
from agentlightning.store.http import messages
from agentlightning.store.opening import open_store

from benchmarks.store import workload
from benchmarks.store.figures import Figure, median_rate
from benchmarks.store.measures import CLIENTS, SUCCEEDED


def of_http(_folder: Path, sizes: workload.Sizes) -> Iterator[Figure]:
    """Requests a second by 16 clients, with the bodies of a turnover; and spans a second in bulk."""
    turnover, reply = _bodies_of_a_turnover()
    with open_store("memory://") as store:
        batch = to_json(messages.AddSpans(spans=next(workload.batches(workload.begun(store, 10)))))
    with _echoing() as url:
        rate = median_rate(
            sizes.rollouts, sizes.repeats, lambda: _ask(url, turnover, len(reply), sizes.rollouts)
        )
        yield Figure("limit_requests_per_s", rate, "requests/s")
        count = sizes.spans // workload.BATCH
        rate = median_rate(sizes.spans, sizes.repeats, lambda: _ask(url, batch, 20, count, clients=1))
        yield Figure("limit_add_spans_per_s", rate, "spans/s")


def _bodies_of_a_turnover() -> tuple[bytes, bytes]:
    """A request that ends one attempt and takes the next, and its answer."""
    with open_store("memory://") as store:
        run_id = workload.queued(store, 2)
        claims = store.claim(run_id, "worker-0", limit=2)
        rollouts = store.finish([Result(key=claims[0].key, outcome=SUCCEEDED)])
    request = messages.FinishAndClaim(
        results=[Result(key=claims[0].key, outcome=SUCCEEDED)],
        worker_id="worker-0",
        run_id=run_id,
        tokens={f"{claims[0].key.rollout_id}/{claims[0].key.number}": claims[0].token},
    )
    reply = messages.TurnedOver(rollouts=rollouts, late=[], claims=claims[1:])
    return to_json(request), to_json(reply)


@contextmanager
def _echoing() -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks.store.echo"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None or process.stdin is None:
            raise AssertionError("both were asked for")
        yield process.stdout.readline().strip()
        process.stdin.close()


def _ask(url: str, body: bytes, reply: int, count: int, *, clients: int = CLIENTS) -> float:
    """Seconds that ``clients`` take for ``count`` requests together, each over its own connection."""
    barrier = threading.Barrier(clients + 1)
    each = count // clients

    def work() -> None:
        with urllib3.PoolManager(maxsize=1, retries=False) as pool:
            headers = {"content-type": "application/json"}
            barrier.wait()
            for _ in range(each):
                answer = pool.request("POST", f"{url}/echo/{reply}", body=body, headers=headers)
                if len(answer.data) != reply:
                    raise AssertionError(f"status {answer.status}, {len(answer.data)} bytes")

    with ThreadPoolExecutor(clients) as threads:
        done = [threads.submit(work) for _ in range(clients)]
        barrier.wait()
        started = time.perf_counter()
        for future in done:
            future.result()
        return (time.perf_counter() - started) * count / (each * clients)
