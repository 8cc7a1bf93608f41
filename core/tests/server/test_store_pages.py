"""Listings come in pages of bounded size that together are everything once, in order."""

from __future__ import annotations

import base64
import json

import pytest
from agentlightning.records import to_json
from agentlightning.store.http import operations as ops
from agentlightning.store.memory import MemoryStore
from agentlightning.testing.store.making import ended, request, span

PAGE_BYTES = 6000
PAGE_SPANS = 7


@pytest.fixture
def paged(serve):
    with MemoryStore() as store:
        yield serve(store, page_bytes=PAGE_BYTES, page_spans=PAGE_SPANS)


@pytest.fixture
def claims(paged):
    """Three rollouts under way."""
    run_id = paged.store.create_run("a", {}).run_id
    paged.store.enqueue(run_id, [request(max_attempts=3)] * 3)
    return paged.store.claim(run_id, "w", limit=3)


def pages(served, **query) -> list[list[dict]]:
    client, found, cursor = served.client(), [], None
    while True:
        reply = client.ok(ops.SPANS, {**query, "cursor": cursor})
        found.append(reply["spans"])
        cursor = reply["cursor"]
        if cursor is None:
            return found


def names(found: list[list[dict]]) -> list[str]:
    return [item["name"] for page in found for item in page]


def test_many_spans_come_by_number(paged, claims):
    store, ids = paged.store, [claim.key.rollout_id for claim in claims]
    for claim, count in zip(claims, (20, 0, 9), strict=True):
        store.add_spans([span(claim.key, number + 1) for number in range(count)])
    found = pages(paged, rollout_ids=ids)
    assert [len(page) for page in found] == [7, 7, 7, 7, 1]
    assert names(found) == [item.name for item in store.spans(ids)]


def test_large_spans_come_by_size_and_a_huge_one_alone(paged, claims):
    store, key = paged.store, claims[0].key
    sizes = [100, 4000, 4000, 50_000, 2500, 100]
    store.add_spans(
        [span(key, number + 1, attributes={"text": "x" * size}) for number, size in enumerate(sizes)]
    )
    found = pages(paged, rollout_ids=[key.rollout_id])
    assert [len(page) for page in found] == [2, 1, 1, 2]
    assert all(len(to_json(page)) <= PAGE_BYTES for page in found if len(page) > 1)
    assert names(found) == [f"step {number + 1}" for number in range(len(sizes))]


def test_spans_that_arrive_while_pages_are_read_come_at_the_end_of_their_rollout(paged, claims):
    store, key = paged.store, claims[0].key
    store.add_spans([span(key, number + 1) for number in range(10)])
    client, query = paged.client(), {"rollout_ids": [key.rollout_id]}
    first = client.ok(ops.SPANS, query)
    store.add_spans([span(key, 11)])
    rest = client.ok(ops.SPANS, {**query, "cursor": first["cursor"]})
    assert names([rest["spans"]]) == ["step 8", "step 9", "step 10", "step 11"]


def test_a_page_goes_on_in_the_attempt_it_began_in(paged, claims):
    store, claim = paged.store, claims[0]
    store.add_spans([span(claim.key, number + 1) for number in range(10)])
    client, query = paged.client(), {"rollout_ids": [claim.key.rollout_id]}
    first = client.ok(ops.SPANS, query)
    store.finish([ended(claim, "failed")])
    (again,) = store.claim(claim.run.run_id, "w")
    store.add_spans([span(again.key, 1, name="of the second")])
    rest = client.ok(ops.SPANS, {**query, "cursor": first["cursor"]})
    assert names([rest["spans"]]) == ["step 8", "step 9", "step 10"]
    assert names(pages(paged, **query)) == ["of the second"]


def test_all_attempts_and_kinds_may_be_asked_for(paged, claims):
    store, claim = paged.store, claims[0]
    kinds = ["tool", "operation"] * 6
    store.add_spans([span(claim.key, n + 1, kind=kind) for n, kind in enumerate(kinds)])
    store.finish([ended(claim, "failed")])
    (again,) = store.claim(claim.run.run_id, "w")
    store.add_spans([span(again.key, n + 1, kind=kind) for n, kind in enumerate(kinds)])
    query = {"rollout_ids": [claim.key.rollout_id], "attempt": "all", "kinds": ["tool"]}
    found = [item for page in pages(paged, **query) for item in page]
    assert [(item["attempt"], item["kind"]) for item in found] == [(1, "tool")] * 6 + [(2, "tool")] * 6


def test_a_rollout_named_twice_is_read_once(paged, claims):
    key = claims[0].key
    paged.store.add_spans([span(key, number + 1) for number in range(10)])
    assert len(names(pages(paged, rollout_ids=[key.rollout_id] * 3))) == 10


def test_a_cursor_is_good_for_its_own_query_only(paged, claims):
    key, other = claims[0].key, claims[1].key
    paged.store.add_spans([span(key, number + 1) for number in range(10)])
    client, query = paged.client(), {"rollout_ids": [key.rollout_id]}
    cursor = client.ok(ops.SPANS, query)["cursor"]
    place = json.loads(base64.urlsafe_b64decode(cursor))
    moved = [
        base64.urlsafe_b64encode(to_json([place[0], n, *place[2:]])).decode() for n in (-1, 1, 2**70)
    ]
    for body in (
        {"rollout_ids": [other.rollout_id], "cursor": cursor},
        {**query, "attempt": "all", "cursor": cursor},
        {**query, "cursor": cursor[:-4]},
        {**query, "cursor": ""},
        {**query, "cursor": "ü"},
        *({**query, "cursor": text} for text in moved),
    ):
        status, refusal = client.ask(ops.SPANS, body)
        assert (status, refusal["error"]) == (400, "BadValue"), body
        assert "cursor" in refusal["message"]


def test_large_rollouts_come_in_smaller_pages_than_asked_for(paged):
    run_id = paged.store.create_run("large", {}).run_id
    sizes = [10, 2000, 2000, 20_000, 2000, 10]
    paged.store.enqueue(run_id, [request("x" * size) for size in sizes])
    client, found, cursor = paged.client(), [], None
    while cursor is not None or not found:
        status, reply, _ = client.send(
            ops.ROLLOUTS.path, to_json({"run_id": run_id, "limit": 100, "cursor": cursor})
        )
        assert status == 200
        page = json.loads(reply)
        assert len(reply) <= PAGE_BYTES or len(page["rollouts"]) == 1
        found += page["rollouts"]
        cursor = page["cursor"]
    assert [len(rollout["input"]) for rollout in found] == sizes
