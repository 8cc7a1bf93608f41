"""Whose token opens what, and where it is said."""

import pytest
from agentlightning.errors import (
    BadValue,
    ConfigError,
    Forbidden,
    StoreUnavailable,
    Unauthorized,
)
from agentlightning.records import AttemptKey, Data
from agentlightning.store import Order, Result, RolloutQuery
from agentlightning.store.http import TOKEN_VARIABLE
from agentlightning.store.http.attempt_tokens import AttemptTokens, ProvedTokens
from agentlightning.store.http.client import HttpStore
from agentlightning.store.memory import MemoryStore
from agentlightning.store.opening import open_existing_store, open_store
from agentlightning.testing.store.making import SUCCEEDED, claimed, request, result, span


@pytest.fixture(autouse=True)
def no_token_of_the_environment(monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


# --- the client's own token -----------------------------------------------------------------------


def test_without_a_token_the_store_is_not_opened(serving):
    with pytest.raises(Unauthorized, match=r"AGENTLIGHTNING_STORE_TOKEN.*agl store token"):
        open_store(serving.url)


def test_the_token_may_be_in_the_environment(serving, monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, serving.behind.access_token("owner") + "\n")
    for opening in (open_store, open_existing_store):
        with opening(serving.url) as store:
            assert store.runs() == []


def test_a_wrong_token_is_told_at_the_first_call(serving):
    token = serving.behind.access_token("owner")
    store = serving.client(token[:-1] + ("1" if token[-1] == "0" else "0"))
    with pytest.raises(Unauthorized):
        store.runs()


@pytest.mark.parametrize("token", ["one\r\nx-injected: two", "two words", "tokén"])
def test_a_token_that_cannot_be_one_is_refused_and_not_repeated(token):
    with pytest.raises(Unauthorized) as caught:
        HttpStore("http://127.0.0.1:9", token=token)
    assert token not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://me:s3cret@127.0.0.1:9",
        "http://s3cret@127.0.0.1:9",
        "http://127.0.0.1:9/?token=s3cret",
        "http://127.0.0.1:9/#s3cret",
        "http://:s3cret@127.0.0.1:9/?x",
    ],
)
def test_a_secret_in_the_url_is_refused_and_not_repeated(url):
    with pytest.raises(ConfigError, match=r"no secret.*AGENTLIGHTNING_STORE_TOKEN") as caught:
        HttpStore(url, token="t")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["http://", "http://:80", "http://h:port", "http://[::1", "ftp://h", "http://my host:80"],
)
def test_what_is_no_servers_url_is_refused(url):
    with pytest.raises(ConfigError, match=r"http://127.0.0.1:8000"):
        HttpStore(url, token="t")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("HTTPS://Lab.example/agl/", "https://lab.example/agl"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_the_store_shows_its_url(url, shown):
    with HttpStore(url, token="t") as store:
        assert store.url == shown


def test_opening_asks_nothing():
    HttpStore("http://127.0.0.1:9", token="t").close()


# --- a runner's -----------------------------------------------------------------------------------


def test_a_runners_token_is_enough_to_work(serving, store, run_id):
    store.publish(run_id, {"x": Data(value=1)})
    store.enqueue(run_id, [request("a", max_attempts=2), request("b"), request("c")])
    runner = serving.runner(run_id)
    (first,) = runner.claim(run_id, "worker")
    assert runner.run(run_id).status == "open"
    assert runner.resources(run_id, "latest").version == 1
    assert runner.heartbeat("worker", [first.key], {"cpu": 1}) == {first.key: Order.CONTINUE}
    assert runner.add_spans([span(first.key)]) == 1
    second = runner.finish_and_claim([result(first, spans=[span(first.key, 2)])], run_id, "worker")
    assert runner.add_spans([span(first.key, 3)]) == 1  # its last span comes late
    runner.finish([result(second.claims[0], spans=[span(second.claims[0].key)])])
    found = store.rollouts(RolloutQuery(run_id=run_id)).items
    assert [rollout.status for rollout in found] == ["succeeded", "succeeded", "queued"]
    assert store.statistics(run_id).spans == 4


@pytest.mark.parametrize(
    "call",
    [
        lambda store, key: store.heartbeat("worker", [key]),
        lambda store, key: store.add_spans([span(key)]),
        lambda store, key: store.finish([result_of(key)]),
        lambda store, key: store.finish_and_claim([result_of(key)], None, "worker"),
    ],
)
def test_a_runner_cannot_touch_the_attempt_of_another(serving, store, run_id, call):
    others = claimed(store, run_id)
    store.enqueue(run_id, [request()])
    runner = serving.runner()
    runner.claim(run_id, "worker")
    before = store.attempts(others.key.rollout_id), store.statistics()
    with pytest.raises(Forbidden, match=others.key.rollout_id):
        call(runner, others.key)
    assert (store.attempts(others.key.rollout_id), store.statistics()) == before


@pytest.mark.parametrize(
    "call",
    [
        lambda store, run, _: store.create_run("mine", {}),
        lambda store, run, _: store.runs(),
        lambda store, run, _: store.set_run_status(run, "failed"),
        lambda store, run, _: store.set_endpoint(run, "http://127.0.0.1:9"),
        lambda store, run, _: store.save_state(run, {}),
        lambda store, run, _: store.load_state(run),
        lambda store, run, _: store.log_metrics(run, 1, {"x": 1.0}),
        lambda store, run, _: store.metrics(run),
        lambda store, run, _: store.enqueue(run, [request()]),
        lambda store, run, _: store.begin("over HTTP", request(), "worker"),
        lambda store, run, key: store.set_rewards({key.rollout_id: 1.0}),
        lambda store, run, key: store.cancel([key.rollout_id]),
        lambda store, run, _: store.rollouts(RolloutQuery(run_id=run)),
        lambda store, run, key: store.attempts(key.rollout_id),
        lambda store, run, key: store.spans([key.rollout_id]),
        lambda store, run, key: store.wait_over([key.rollout_id], timeout_s=0),
        lambda store, run, key: store.check_token(key, "token"),
        lambda store, run, _: store.publish(run, {}),
        lambda store, run, _: list(store.export_rows(run)),
        lambda store, run, _: store.import_rows([]),
        lambda store, run, _: store.workers(),
        lambda store, run, _: store.statistics(run),
        lambda store, run, _: store.access_token("runner", run),
        lambda store, run, _: store.access_token("owner"),
    ],
)
def test_a_runner_may_do_nothing_else(serving, run_id, call):
    runner = serving.runner()
    with pytest.raises(Forbidden):
        call(runner, run_id, AttemptKey("rollout", 1))


def test_a_runner_of_one_run_has_no_work_in_another(serving, store, run_id):
    other = store.create_run("other", {}).run_id
    store.enqueue(other, [request()])
    runner = serving.runner(run_id)
    for run in (other, None):
        with pytest.raises(Forbidden):
            runner.claim(run, "worker")


def test_only_the_owner_makes_tokens_for_runners(serving, store, run_id):
    with serving.client(store.access_token("runner", run_id)) as runner:
        assert runner.claim(run_id, "worker") == []
    assert store.access_token("owner") == serving.behind.access_token("owner")
    with pytest.raises(BadValue):
        store.access_token("owner", run_id)


# --- the tokens of attempts -----------------------------------------------------------------------


def test_a_token_found_right_is_not_asked_about_again(serving, store, run_id, proxy, proxied):
    claim = claimed(store, run_id)
    assert [proxied.check_token(claim.key, claim.token) for _ in range(5)] == [True] * 5
    assert len(proxy.sent("check_token")) == 1
    assert [proxied.check_token(claim.key, "other") for _ in range(2)] == [False] * 2
    assert len(proxy.sent("check_token")) == 3
    assert not proxied.check_token(claim.key._replace(number=2), claim.token)
    proxied.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        proxied.check_token(claim.key, claim.token)


def test_an_owner_sends_no_attempts_tokens(store, run_id, proxy, proxied):
    store.enqueue(run_id, [request()])
    (claim,) = proxied.claim(run_id, "worker")
    proxied.heartbeat("worker", [claim.key])
    assert proxy.sent("heartbeat")[0].tokens == {}


def test_tokens_of_attempts_do_not_pile_up():
    store = MemoryStore()
    run_id = store.create_run("many", {}).run_id
    kept, proved = AttemptTokens(needed=True), ProvedTokens()
    for _ in range(12):
        store.enqueue(run_id, [request()] * 1000)
        claims = store.claim(run_id, "worker", limit=1000)
        kept.keep(claims)
        kept.end([claim.key for claim in claims])
        for claim in claims:
            proved.add(claim.key, claim.token)
    assert len(kept) == 10_000
    assert len(kept.of(claim.key for claim in claims)) == 1000
    assert (claims[-1].key, claims[-1].token) in proved
    assert len(proved._proved) == 10_000


def test_the_token_of_a_lease_long_over_is_forgotten(monkeypatch):
    store = MemoryStore()
    run_id = store.create_run("long", {}).run_id
    first, second, third = (claimed(store, run_id, request(lease_s=60)) for _ in range(3))
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    kept = AttemptTokens(needed=True)
    kept.keep([first, second])
    now += 3000
    kept.renew([second.key])
    now += 1000
    kept.keep([third])
    assert set(kept.of([first.key, second.key, third.key])) == {
        f"{claim.key.rollout_id}/1" for claim in (second, third)
    }


def result_of(key):
    return Result(key=key, outcome=SUCCEEDED)
