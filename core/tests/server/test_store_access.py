"""Whose token is good for what: every operation with every kind of token."""

from __future__ import annotations

import pytest
from agentlightning.records import Outcome, RolloutRequest, to_builtins, to_json
from agentlightning.store.http import operations as ops
from agentlightning.store.memory import MemoryStore
from agentlightning.store.opening import open_store
from agentlightning.testing.store.making import span

DONE = to_builtins(Outcome(status="succeeded"))
ALL = 200, 200, 200
NOT_A_RUNNERS = 401, 403, 403
# Of one run, of every run, of the attempt: what each gets where it asks about the run's own.
EXPECTED = {
    "claim": (200, 200, 401),
    "stop_waiting": (200, 200, 401),
    "run": (200, 200, 401),
    "resources": (200, 200, 401),
    "changes": (200, 200, 401),
    "seconds_to_expiry": (200, 200, 401),
    "heartbeat": ALL,
    "finish": ALL,
    "add_spans": ALL,
    "finish_and_claim": (200, 200, 403),
}


class Stage:
    """Two runs, an attempt under way in each, and the tokens of everybody there is."""

    def __init__(self, served) -> None:
        store = served.store
        self.served = served
        self.run_id, self.other = (store.create_run(name, {}).run_id for name in "ab")
        for run_id in (self.run_id, self.other):
            store.enqueue(run_id, [RolloutRequest(input=n) for n in range(3)])
        (self.mine,), (self.theirs,) = (store.claim(run, "w") for run in (self.run_id, self.other))
        self.tokens = {
            "owner": store.access_token("owner"),
            "runner of the run": store.access_token("runner", self.run_id),
            "runner of every run": store.access_token("runner"),
            "runner of another run": store.access_token("runner", self.other),
            "attempt": self.mine.token,
            "another attempt": self.theirs.token,
        }

    def body(self, name: str, *, claim=None, run_id: str | None = None, proofs: bool = False) -> dict:
        """A body that the owner would be answered."""
        claim, run_id = claim or self.mine, run_id or self.run_id
        rollout_id = claim.key.rollout_id
        tokens = {"tokens": {f"{rollout_id}/1": claim.token}} if proofs else {}
        results = [{"key": list(claim.key), "outcome": DONE}]
        of_run, rollouts = {"run_id": run_id}, {"rollout_ids": [rollout_id]}
        return {
            "create_run": {"name": "x", "config": {}},
            "set_run_status": {**of_run, "status": "open"},
            "set_endpoint": {**of_run, "url": None},
            "save_state": {**of_run, "state": {}},
            "log_metrics": {**of_run, "step": 1, "values": {}},
            "enqueue": {**of_run, "requests": []},
            "claim": {**of_run, "worker_id": "w"},
            "stop_waiting": {"worker_id": "nobody"},
            "begin": {"run_name": "x", "request": {"input": 1}, "worker_id": "w"},
            "heartbeat": {"worker_id": "w", "attempts": [list(claim.key)], **tokens},
            "finish": {"results": results, **tokens},
            "finish_and_claim": {"results": results, **of_run, "worker_id": "w", **tokens},
            "set_rewards": {"rewards": {}},
            "cancel": {"rollout_ids": []},
            "attempts": {"rollout_id": rollout_id},
            "wait_over": {"rollout_ids": []},
            "check_token": {"rollout_id": rollout_id, "number": 1, "token": "x"},
            "add_spans": {"spans": [to_builtins(span(claim.key))], **tokens},
            "spans": rollouts,
            "publish": {**of_run, "resources": {}},
            "resources": {**of_run, "version": 0},
            "import_rows": {"rows": []},
            "statistics": {},
            "changes": of_run,
            **dict.fromkeys(("run", "load_state", "metrics", "export_rows"), of_run),
        }.get(name, {})


@pytest.fixture
def stage(fast) -> Stage:
    return Stage(fast)


NAMES = [operation.name for operation in ops.OPERATIONS]


@pytest.mark.parametrize("name", NAMES)
def test_each_token_is_good_for_what_it_is_for(stage, name):
    client = stage.served.client()
    of_run, of_all, of_attempt = EXPECTED.get(name, (403, 403, 401))
    expected = {
        "runner of the run": of_run,
        "runner of every run": of_all,
        "attempt": of_attempt,
        "owner": 200,
    }
    for who, status in expected.items():
        body = stage.body(name, proofs=who.startswith("runner"))
        answered, reply = client.ask(name, body, token=stage.tokens[who])
        assert answered == status, (who, reply)


UNKNOWN = [
    None,
    "",
    "Bearer",
    "Bearer ",
    "Basic YTpi",
    "Bearer wrong",
    "Bearer agl-owner-00",
    "Bearer agl-runner-00",
    "Bearer agl-" + "0" * 64,
    "Bearer agl-runner-run-unknown-" + "0" * 64,
    "Bearer \u00e4\u00f6",
    "Bearer " + "a" * 5000,
]


@pytest.mark.parametrize("name", NAMES)
def test_no_token_and_an_unknown_one_are_401_and_say_how_to_ask(stage, name):
    client = stage.served.client(token=None)
    for authorization in UNKNOWN:
        status, reply, headers = client.send(
            f"/store/v1/{name}", to_json(stage.body(name)), authorization=authorization
        )
        assert status == 401, (authorization, reply)
        assert headers["www-authenticate"].startswith("Bearer ")
        assert b"expected" in reply or b"needs" in reply


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_runner_of_another_run_gets_nothing_of_this_one(stage, name):
    if name in {"stop_waiting", "seconds_to_expiry"}:  # about no run
        return
    token = stage.tokens["runner of another run"]
    status, reply = stage.served.client().ask(name, stage.body(name), token=token)
    assert status == 403
    assert stage.run_id in reply["message"] or stage.mine.key.rollout_id in reply["message"]


@pytest.mark.parametrize("name", ["claim", "finish_and_claim", "changes"])
def test_a_runner_of_one_run_may_not_ask_for_every_run(stage, name):
    body = {**stage.body(name, proofs=True), "run_id": None}
    token = stage.tokens["runner of the run"]
    assert stage.served.client().ask(name, body, token=token)[0] == 403
    assert stage.served.client().ask(name, body, token=stage.tokens["runner of every run"])[0] == 200


@pytest.mark.parametrize("name", ["heartbeat", "finish", "finish_and_claim", "add_spans"])
def test_a_runner_needs_the_token_of_each_attempt(stage, name):
    client = stage.served.client(stage.tokens["runner of every run"])
    rollout_id = stage.mine.key.rollout_id
    for tokens in ({}, {f"{rollout_id}/1": stage.theirs.token}, {f"{rollout_id}/2": stage.mine.token}):
        status, reply = client.ask(name, {**stage.body(name), "tokens": tokens})
        assert status == 403
        assert f"{rollout_id}/1" in reply["message"]


@pytest.mark.parametrize("name", ["heartbeat", "finish", "add_spans"])
def test_an_attempts_token_is_good_for_no_other_attempt(stage, name):
    client = stage.served.client(stage.mine.token)
    assert client.ask(name, stage.body(name, claim=stage.theirs))[0] == 401
    field = {"heartbeat": "attempts", "finish": "results", "add_spans": "spans"}[name]
    both = stage.body(name)
    both[field] = [*both[field], *stage.body(name, claim=stage.theirs)[field]]
    status, reply = client.ask(name, both)
    assert status == 403
    assert stage.theirs.key.rollout_id in reply["message"]
    assert stage.served.store.attempts(stage.theirs.key.rollout_id)[0].status == "running"
    assert stage.served.store.statistics(stage.other).spans == 0


def test_an_attempts_token_is_not_good_for_the_next_attempt_of_its_rollout(stage):
    served, rollout_id = stage.served, stage.mine.key.rollout_id
    beat = {"worker_id": "w", "attempts": [[rollout_id, 2]]}
    assert served.client(stage.mine.token).ask(ops.HEARTBEAT, beat)[0] == 401


def test_a_runner_may_report_before_it_works_on_anything(stage):
    client = stage.served.client(stage.tokens["runner of the run"])
    client.ok(ops.HEARTBEAT, {"worker_id": "new", "attempts": [], "report": {"cpu": 1}})
    assert "new" in {worker.worker_id for worker in stage.served.store.workers()}
    anybody = stage.served.client("agl-" + "0" * 64)
    assert anybody.ask(ops.HEARTBEAT, {"worker_id": "new", "attempts": []})[0] == 401


def test_a_runner_works_on_what_it_claimed_with_the_tokens_of_its_claims(stage):
    client = stage.served.client(stage.tokens["runner of the run"])
    (claim,) = client.ok(ops.CLAIM, {"worker_id": "w", "run_id": stage.run_id})["claims"]
    key = [claim["rollout"]["rollout_id"], claim["attempt"]["number"]]
    tokens = {f"{key[0]}/{key[1]}": claim["token"]}
    beat = {"worker_id": "w", "attempts": [key], "tokens": tokens}
    assert client.ok(ops.HEARTBEAT, beat)["orders"] == [[key, "continue"]]
    body = {"results": [{"key": key, "outcome": DONE}], "tokens": tokens}
    turned = client.ok(ops.FINISH_AND_CLAIM, {**body, "worker_id": "w", "run_id": stage.run_id})
    assert turned["rollouts"][0]["status"] == "succeeded"
    assert turned["claims"][0]["token"] != claim["token"]


def test_no_answer_holds_a_secret_that_was_not_asked_for(stage):
    client = stage.served.client()
    secrets = [*stage.tokens.values(), stage.served.store.access_token("runner", stage.other)]
    for name in NAMES:
        if name in {"claim", "begin", "finish_and_claim", "runner_token"}:  # those that give tokens
            continue
        status, reply, headers = client.send(f"/store/v1/{name}", to_json(stage.body(name)))
        assert status == 200
        told = reply.decode() + str(headers)
        assert not any(secret in told for secret in secrets), name


def test_tokens_of_an_earlier_server_are_good_for_the_next_one_on_the_same_file(serve, tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    with open_store(url) as store:
        served = serve(store)
        run_id = store.create_run("a", {}).run_id
        store.enqueue(run_id, [RolloutRequest(input=1)])
        tokens = served.owner, store.access_token("runner", run_id)
        (claim,) = served.client(tokens[1]).ok(ops.CLAIM, {"worker_id": "w", "run_id": run_id})[
            "claims"
        ]
        served.close()
    with open_store(url) as store:
        served = serve(store)
        owner, runner = (served.client(token) for token in tokens)
        assert len(owner.ok(ops.RUNS)["runs"]) == 1
        key = [claim["rollout"]["rollout_id"], 1]
        proofs = {f"{key[0]}/1": claim["token"]}
        runner.ok(ops.HEARTBEAT, {"worker_id": "w", "attempts": [key], "tokens": proofs})
        served.client(claim["token"]).ok(ops.FINISH, {"results": [{"key": key, "outcome": DONE}]})
        assert store.attempts(key[0])[0].status == "succeeded"


def test_tokens_of_another_store_are_unknown(serve, fast):
    with MemoryStore() as other:
        assert fast.client(other.access_token("owner")).ask(ops.RUNS)[0] == 401
        assert fast.client(other.access_token("runner")).ask(ops.EXPIRY)[0] == 401
