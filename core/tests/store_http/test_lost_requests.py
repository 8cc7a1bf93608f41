"""What becomes of a call whose request or reply the network loses, and of one that is refused."""

import json
import time

import pytest
from agentlightning import errors
from agentlightning.errors import StoreError, StoreUnavailable
from agentlightning.records import Data
from agentlightning.store import RolloutQuery
from agentlightning.testing.store.making import FAILED, SUCCEEDED, claimed, request, result, span

FAULTS = ["drop", "lose", "cut"]


def reply(status, body=b"", *headers):
    lines = [f"HTTP/1.1 {status} It", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def refusal(status, error="BadValue", message="no", *headers):
    return reply(status, json.dumps({"error": error, "message": message}).encode(), *headers)


def test_a_server_that_ends_each_connection_and_loses_a_reply(store, run_id, proxy, proxied):
    key = claimed(store, run_id).key
    proxy.always = "hang"  # after each reply, with no header that says so
    assert proxied.run(run_id).run_id == run_id
    time.sleep(0.05)
    assert proxied.run(run_id).run_id == run_id
    proxy.do("add_spans", "lose")
    proxied.add_spans([span(key)])
    assert len(proxy.sent("add_spans")) == 2
    assert len(list(proxied.spans([key.rollout_id]))) == 1


WRITES = {
    "create_run": lambda store, run_id, _: store.create_run("made once", {}).run_id,
    "enqueue": lambda store, run_id, _: store.enqueue(run_id, [request("b")])[0].rollout_id,
    "claim": lambda store, run_id, _: store.claim(run_id, "worker")[0].key,
    "begin": lambda store, run_id, _: store.begin("over HTTP", request("b"), "worker").key,
    "publish": lambda store, run_id, _: store.publish(run_id, {"x": Data(value=1)}).version,
    "finish_and_claim": lambda store, run_id, claim: (
        store.finish_and_claim([result(claim)], run_id, "worker").claims[0].key
    ),
    "finish": lambda store, run_id, claim: store.finish([result(claim, FAILED, [span(claim.key)])]),
}


@pytest.mark.parametrize(
    "fault", [*FAULTS, reply(500), reply(502, b"<html>"), refusal(503), reply(504)]
)
@pytest.mark.parametrize("operation", WRITES)
def test_a_write_whose_request_or_reply_is_lost_happens_once(
    store, run_id, proxy, proxied, operation, fault
):
    claim = claimed(store, run_id, request("a", max_attempts=2))
    store.enqueue(run_id, [request("next"), request("after that")])
    proxy.do(operation, fault, fault)
    made = WRITES[operation](proxied, run_id, claim)
    assert made
    assert len(proxy.sent(operation)) == 3
    assert len({sent.body for sent in proxy.sent(operation)}) == 1  # the key is in it
    counts = store.statistics()
    begun = sum(operation in ("claim", "finish_and_claim", "begin") for _ in range(1))
    assert sum(counts.attempts.values()) == 1 + begun
    assert sum(counts.rollouts.values()) == 3 + (operation in ("enqueue", "begin"))
    assert len(store.runs()) == 1 + (operation == "create_run")
    assert counts.late_results == 0


def test_each_call_has_a_key_of_its_own_unless_it_is_given_one(run_id, proxy, proxied):
    proxied.enqueue(run_id, [request()])
    proxied.enqueue(run_id, [request()])
    proxied.enqueue(run_id, [request()], key="mine")
    first, second, third = (sent.key for sent in proxy.sent("enqueue"))
    assert len({first, second}) == 2
    assert third == "mine"
    assert len(proxied.rollouts(RolloutQuery(run_id=run_id)).items) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 408, 409, 413, 422, 429])
@pytest.mark.parametrize("body", [b"", b"<html>no</html>", b'{"error": "BadValue", "message": "no"}'])
def test_what_the_server_refuses_is_asked_once(run_id, proxy, proxied, status, body):
    proxy.do("enqueue", reply(status, body))
    with pytest.raises((StoreError, errors.BadValue)):
        proxied.enqueue(run_id, [request()])
    assert len(proxy.sent("enqueue")) == 1


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("UnknownRun", errors.UnknownRun),
        ("StaleAttempt", errors.StaleAttempt),
        ("KeyReused", errors.KeyReused),
        ("LimitExceeded", errors.LimitExceeded),
        ("SchemaMismatch", errors.SchemaMismatch),
        ("RewardError", errors.RewardError),
        ("BadValue", errors.BadValue),
        ("StoreError", errors.StoreError),
        ("TooNew", errors.StoreError),
        ("SystemExit", errors.StoreError),
        ("RunInterrupted", errors.StoreError),
        ("StoreClosed", errors.StoreError),
        ("__builtins__", errors.StoreError),
    ],
)
def test_refusals_are_the_stores_own_errors(run_id, proxy, proxied, name, kind):
    proxy.do("run", refusal(400, name, "the very message"))
    with pytest.raises(kind, match="the very message") as caught:
        proxied.run(run_id)
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, errors.Unauthorized), (403, errors.Forbidden), (413, errors.LimitExceeded)],
)
def test_a_proxys_own_refusal_is_told_by_its_status(run_id, proxy, proxied, status, kind):
    proxy.do("run", reply(status, b"<html>not here</html>"))
    with pytest.raises(kind, match="in front of the store"):
        proxied.run(run_id)


@pytest.mark.parametrize(
    "answer",
    [
        reply(200, b"<html>a web page</html>"),
        reply(200, b'{"status": "ok"}'),
        reply(200, b"[" * 100_000),
        reply(404, b"<html>a web page</html>"),
        reply(302, b"", "location: http://127.0.0.1:9/"),
        reply(204),
    ],
)
def test_a_server_that_is_no_store_is_named_with_what_it_said(run_id, proxy, proxied, answer):
    proxy.do("run", answer)
    status = answer.split()[1].decode()
    with pytest.raises(StoreUnavailable, match=f"{proxy.url} answered {status}.*agl store serve"):
        proxied.run(run_id)
    assert len(proxy.requests) == 1


def test_replies_may_gain_fields(run_id, proxy, proxied):
    body = {"run": {"run_id": "r", "name": "n", "config": {}, "created_at": 1.0, "colour": "red"}}
    proxy.do("run", reply(200, json.dumps(body | {"later": [1]}).encode()))
    assert proxied.run(run_id).name == "n"


def test_a_server_that_says_when_to_come_back_is_not_asked_before(run_id, proxy, proxied):
    proxy.do("run", refusal(503, "StoreUnavailable", "starting", "retry-after: 1"))
    began = time.monotonic()
    proxied.run(run_id)
    assert time.monotonic() - began >= 1


def test_a_server_that_is_away_for_longer_is_not_waited_for(run_id, proxy, proxied):
    proxy.do("run", refusal(503, "StoreUnavailable", "moving house", "retry-after: 60"))
    with pytest.raises(StoreUnavailable, match="503: moving house, and is to be asked again in 60 s"):
        proxied.run(run_id)
    assert len(proxy.requests) == 1


def test_trying_has_an_end(serving, run_id, proxy):
    store = serving.client(url=proxy.url, retry_s=0.5)
    proxy.always = "drop"
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"tried \d times in 0\.\d s.*agl store serve"):
        store.run(run_id)
    assert 0.2 < time.monotonic() - began < 5
    assert 3 <= len(proxy.requests) <= 9


def test_nobody_at_the_address_is_told_so(serving):
    store = serving.client(url="http://127.0.0.1:9", retry_s=0.2)
    with pytest.raises(StoreUnavailable, match=r"127.0.0.1:9 cannot be reached.*refused"):
        store.runs()


def test_a_server_that_speaks_no_tls_is_told_so(serving):
    store = serving.client(url=serving.url.replace("http", "https"), retry_s=0.1)
    with pytest.raises(StoreUnavailable, match=r"https:.*over TLS"):
        store.runs()


def test_a_result_that_comes_too_late_is_told_so_though_a_reply_is_lost(store, run_id, proxy, proxied):
    claim = claimed(store, run_id)
    store.finish([result(claim, FAILED)])
    proxy.do("finish", "lose")
    with pytest.raises(errors.StaleAttempt):
        proxied.finish([result(claim, SUCCEEDED)])
    assert store.rollouts(RolloutQuery(run_id=run_id)).items[0].status == "failed"
