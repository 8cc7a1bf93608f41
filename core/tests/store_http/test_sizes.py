"""What is too large for one request, and pages that hold less than was asked for."""

import pytest
from agentlightning.errors import LimitExceeded, UnknownRollout
from agentlightning.records import AttemptKey
from agentlightning.server.store_api import Limits
from agentlightning.store import RolloutQuery
from agentlightning.store.memory import MemoryStore
from agentlightning.testing.store.making import claimed, request, result, span

MB = 1024 * 1024


def large(key, number, size):
    return span(key, number, attributes={"text": "x" * size})


@pytest.fixture
def narrow(serve):
    """A server that takes little and gives little at a time."""
    return serve(MemoryStore(), limits=Limits(body_bytes=100_000, page_bytes=50_000, page_spans=10))


def test_many_large_spans_go_in_several_requests(store, run_id, proxy, proxied):
    key = claimed(store, run_id).key
    spans = [large(key, number, MB) for number in range(20)]
    assert proxied.add_spans(spans) == 20
    assert len(proxy.sent("add_spans")) == 4
    assert proxied.add_spans(spans) == 0
    assert [found.start_ns for found in store.spans([key.rollout_id])] == list(range(20))


@pytest.mark.parametrize("operation", ["finish", "finish_and_claim"])
def test_results_too_large_are_finished_together_after_their_spans(
    store, run_id, proxy, proxied, operation
):
    claims = [claimed(store, run_id) for _ in range(3)]
    spans = [large(claim.key, number, 2 * MB) for claim in claims for number in range(2)]
    results = [
        result(claim, spans=spans[2 * place : 2 * place + 2]) for place, claim in enumerate(claims)
    ]
    if operation == "finish":
        rollouts = proxied.finish(results)
    else:
        rollouts = proxied.finish_and_claim(results, run_id, "worker").rollouts
    assert [rollout.status for rollout in rollouts] == ["succeeded"] * 3
    assert len(proxy.sent(operation)) == 1
    assert [sent.operation for sent in proxy.requests][-1] == operation
    assert store.statistics(run_id).spans == 6


def test_a_server_that_takes_less_is_sent_less(narrow):
    store = narrow.client()
    key = claimed(store, store.create_run("narrow", {}).run_id).key
    spans = [large(key, number, 9_000) for number in range(40)]
    assert store.add_spans(spans) == 40
    assert [found.start_ns for found in store.spans([key.rollout_id])] == list(range(40))


def test_a_server_that_takes_less_is_sent_a_result_after_its_spans(narrow):
    store = narrow.client()
    run_id = store.create_run("narrow", {}).run_id
    claim = claimed(store, run_id)
    done = store.finish([result(claim, spans=[large(claim.key, n, 30_000) for n in range(5)])])
    assert [rollout.status for rollout in done] == ["succeeded"]
    assert store.statistics(run_id).spans == 5


@pytest.mark.parametrize(
    "call",
    [
        lambda store, run, key: store.add_spans([large(key, 1, 200_000)]),
        lambda store, run, key: store.enqueue(run, [request("x" * 60_000) for _ in range(3)]),
        lambda store, run, key: store.save_state(run, {"text": "x" * 200_000}),
    ],
)
def test_what_cannot_be_split_is_refused_as_a_whole(narrow, call):
    store = narrow.client()
    run_id = store.create_run("narrow", {}).run_id
    key = claimed(store, run_id).key
    before = store.statistics(run_id)
    with pytest.raises(LimitExceeded, match="100000 bytes"):
        call(store, run_id, key)
    assert store.statistics(run_id) == before
    assert store.load_state(run_id) is None


def test_spans_are_read_in_pages_and_no_faster_than_they_are_wanted(narrow):
    store = narrow.client()
    key = claimed(store, store.create_run("narrow", {}).run_id).key
    store.add_spans([span(key, number) for number in range(95)])
    asked = counted(store)
    found = store.spans([key.rollout_id])
    assert asked == ["spans"]
    assert [next(found).start_ns for _ in range(10)] == list(range(10))
    assert len(asked) <= 2
    assert [one.start_ns for one in found] == list(range(10, 95))
    assert len(asked) == 10


def test_reading_may_be_given_up(narrow):
    store = narrow.client()
    key = claimed(store, store.create_run("narrow", {}).run_id).key
    store.add_spans([span(key, number) for number in range(50)])
    found = store.spans([key.rollout_id])
    next(found)
    found.close()
    assert list(found) == []
    store.close()


def test_an_unknown_rollout_is_told_before_anything_is_read(store):
    with pytest.raises(UnknownRollout, match="'no'"):
        store.spans(["no"])
    with pytest.raises(UnknownRollout):
        store.add_spans([span(AttemptKey("no", 1))])


def test_a_page_of_rollouts_is_as_long_as_was_asked_for(narrow):
    store = narrow.client()
    run_id = store.create_run("narrow", {}).run_id
    for _ in range(10):
        store.enqueue(run_id, [request("x" * 5_000) for _ in range(10)])
    first = store.rollouts(RolloutQuery(run_id=run_id, limit=70))
    assert len(first.items) == 70
    rest = store.rollouts(RolloutQuery(run_id=run_id, limit=70, cursor=first.cursor))
    assert (len(rest.items), rest.cursor) == (30, None)
    names = [rollout.rollout_id for rollout in first.items + rest.items]
    assert names == [item.rollout_id for item in narrow.behind.rollouts(RolloutQuery()).items]


def test_more_rollouts_than_a_server_puts_on_one_page(serving, store, run_id):
    serving.behind.enqueue(run_id, [request() for _ in range(10_100)])
    page = store.rollouts(RolloutQuery(run_id=run_id, limit=20_000))
    assert (len(page.items), page.cursor) == (10_100, None)


def counted(store):
    """The operations that a store asks for from now on."""
    asked = []
    send = store._transport.send

    def counting(path, *arguments, **options):
        asked.append(path.rpartition("/")[2])
        return send(path, *arguments, **options)

    store._transport.send = counting
    return asked
