import asyncio
import threading
import time

import pytest
from agentlightning.errors import EngineError
from agentlightning_transformers.batching import Batcher
from agentlightning_transformers.sampling import Prompt, Sampled, Sampling


def prompt(*ids):
    return Prompt(list(ids), Sampling(max_tokens=1))


@pytest.fixture
def batching():
    """Makes batchers that answer a prompt with its own ids, and the sizes of the batches they ran."""
    made = []

    def make(*, seconds=0.0, **options):
        sizes = []

        def generate(batch):
            sizes.append(len(batch))
            time.sleep(seconds)
            if any(one.ids == [13] for one in batch):
                raise ValueError("13 cannot be answered")
            return [Sampled(one.ids, [0.0], "stop") for one in batch]

        batcher = Batcher(generate, **options)
        made.append(batcher)
        return batcher, sizes

    yield make
    for batcher in made:
        batcher.stop()


def test_requests_of_several_event_loops_share_batches_and_each_gets_its_own_answer(kit, untrained):
    texts = [f"order {number} lamps" for number in range(24)]
    replies = {}

    def one_loop(info, mine):
        replies.update(
            zip(mine, kit.answer(info, *(kit.ask(text, temperature=0) for text in mine)), strict=True)
        )

    with kit.serving(untrained) as (_, info):
        loops = [threading.Thread(target=one_loop, args=(info, texts[start::3])) for start in range(3)]
        for loop in loops:
            loop.start()
        for loop in loops:
            loop.join(timeout=60)
        assert sorted(replies) == sorted(texts)
        (alone,) = kit.answer(info, kit.ask(texts[5], temperature=0))
    assert replies[texts[5]]["choices"][0]["token_ids"] == alone["choices"][0]["token_ids"]
    assert replies[texts[5]]["prompt_token_ids"] == alone["prompt_token_ids"]


def test_a_refused_request_leaves_the_others_alone(kit, untrained):
    async def together(info):
        bodies = [kit.ask(), kit.ask("order " * 3000), kit.ask(n=0), kit.ask()]
        return await asyncio.gather(*map(info.chat, bodies), return_exceptions=True)

    with kit.serving(untrained) as (_, info):
        replies = asyncio.run(together(info))
    assert [isinstance(reply, EngineError) for reply in replies] == [False, True, True, False]


def test_a_lone_caller_never_waits_for_others(batching):
    batcher, _ = batching(max_batch=8, wait_s=5.0)
    started = time.monotonic()
    for number in range(5):
        assert batcher.submit(prompt(number)).result(timeout=2).ids == [number]
    assert time.monotonic() - started < 1


def test_a_crowd_that_comes_back_is_answered_in_one_batch(batching):
    batcher, sizes = batching(max_batch=64, wait_s=1.0, seconds=0.02)
    for _ in range(3):
        started = time.monotonic()
        for future in [batcher.submit(prompt(number)) for number in range(10)]:
            future.result(timeout=5)
    assert sizes[-1] == 10
    assert time.monotonic() - started < 0.5  # nobody is missing, so the wait is cut short


def test_a_crowd_that_has_left_is_waited_for_less_and_less(batching):
    batcher, _ = batching(max_batch=64, wait_s=0.1)
    for future in [batcher.submit(prompt(number)) for number in range(10)]:
        future.result(timeout=5)
    for number in range(12):
        batcher.submit(prompt(number)).result(timeout=5)
    started = time.monotonic()
    batcher.submit(prompt(1)).result(timeout=5)
    assert time.monotonic() - started < 0.05


def test_no_batch_is_larger_than_the_limit(batching):
    batcher, sizes = batching(max_batch=4, wait_s=0.05)
    for future in [batcher.submit(prompt(number)) for number in range(10)]:
        future.result(timeout=5)
    assert max(sizes) == 4
    assert sum(sizes) == 10


def test_a_prompt_that_breaks_its_batch_fails_alone(batching, caplog):
    batcher, _ = batching(max_batch=8, wait_s=0.05, seconds=0.02)
    futures = [batcher.submit(prompt(number)) for number in (11, 12, 13, 14, 15)]
    assert [future.result(timeout=5).ids for future in futures if future is not futures[2]] == [
        [11],
        [12],
        [14],
        [15],
    ]
    with pytest.raises(ValueError, match="13 cannot be answered"):
        futures[2].result(timeout=5)
    assert "tried in halves" in caplog.text
    assert batcher.submit(prompt(1)).result(timeout=5).ids == [1]


def test_a_caller_that_gives_up_costs_no_generation(batching):
    batcher, sizes = batching(max_batch=1, wait_s=0.0, seconds=0.1)
    first = batcher.submit(prompt(1))
    time.sleep(0.03)
    second = batcher.submit(prompt(2))
    assert second.cancel()
    assert first.result(timeout=5).ids == [1]
    assert batcher.submit(prompt(3)).result(timeout=5).ids == [3]
    assert sizes == [1, 1]


def test_stopping_fails_what_is_queued_and_what_comes_later(batching):
    batcher, _ = batching(max_batch=1, wait_s=0.0, seconds=0.1)
    futures = [batcher.submit(prompt(number)) for number in range(3)]
    time.sleep(0.03)
    batcher.stop()
    assert futures[0].result(timeout=1).ids == [0]
    for future in futures[1:]:
        with pytest.raises(RuntimeError, match="stopped"):
            future.result(timeout=1)
    with pytest.raises(RuntimeError, match="stopped"):
        batcher.submit(prompt(1))


def test_an_engine_can_be_stopped_inside_the_trainers_turn_and_twice(kit, untrained):
    with kit.serving(untrained) as (engine, info), engine.exclusive():
        failed = []

        def ask():
            try:
                kit.answer(info, kit.ask())
            except RuntimeError as error:
                failed.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(0.1)
        engine.stop()
        engine.stop()
        asking.join(timeout=10)
        assert len(failed) == 1
        with pytest.raises(EngineError, match="make a new one"):
            engine.start()
