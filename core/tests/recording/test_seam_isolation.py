"""Rollouts that run at once in one process never mix."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from agentlightning.records import Route

pytestmark = pytest.mark.usefixtures("installed")

HI = [{"role": "user", "content": "hi"}]


def test_rollouts_in_threads_never_mix(recording, server, client):
    server.delay_s = 0.01
    contexts = {}

    def one(name):
        def resolve(info):
            return Route(model=name)

        with recording.rollout(resolve) as context:
            contexts[name] = context
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda n: client().chat.completions.create(
                    model="m", messages=[{"role": "user", "content": f"{name}-{n}"}]), range(3)))  # fmt: skip

    workers = [threading.Thread(target=one, args=(f"r{n}",)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for name, context in contexts.items():
        spans = recording.spans(context, "llm")
        assert [span.call.model for span in spans] == [name] * 3
        assert {span.call.request["messages"][0]["content"][:2] for span in spans} == {name}
        assert {span.parent_id for span in spans} == {context.root_span_id}
        assert sorted(span.call.seq for span in spans) == [1, 2, 3]


def test_rollouts_on_one_shared_pool_never_mix(recording, client):
    names = {}
    with ThreadPoolExecutor(2) as pool:

        def ask(text):
            return client().chat.completions.create(
                model="m", messages=[{"role": "user", "content": text}]
            )

        def one(name):
            with recording.rollout(lambda info: Route(model=name)) as context:
                names[name] = context
                for future in [pool.submit(ask, name) for _ in range(3)]:
                    future.result()

        workers = [threading.Thread(target=one, args=(name,)) for name in ("x", "y")]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        pool.submit(ask, "outside").result()
    for name, context in names.items():
        assert [call.request["messages"][0]["content"] for call in recording.calls(context)] == [
            name
        ] * 3


def test_rollouts_in_asyncio_never_mix(recording, server, client, async_client):
    server.delay_s = 0.01

    async def one(model, name, contexts):
        with recording.rollout(lambda info: Route(model=name)) as context:
            contexts[name] = context
            await asyncio.gather(
                *(model.chat.completions.create(model="m", messages=HI) for _ in range(3))
            )
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(
                None, lambda: client().chat.completions.create(model="m", messages=HI)
            )
            await asyncio.to_thread(client().chat.completions.create, model="m", messages=HI)

    async def main():
        contexts = {}
        async with async_client() as model:
            await asyncio.gather(*(one(model, f"r{n}", contexts) for n in range(3)))
        return contexts

    for name, context in asyncio.run(main()).items():
        assert [call.model for call in recording.calls(context)] == [name] * 5
