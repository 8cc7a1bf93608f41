"""Every operation of the store over HTTP, each against what the store itself says."""

from __future__ import annotations

import json

import msgspec
import pytest
from agentlightning.records import (
    LLM,
    AttemptKey,
    Floats,
    Outcome,
    RolloutRequest,
    Tokens,
    from_builtins,
    to_builtins,
)
from agentlightning.store import Result, RolloutQuery
from agentlightning.store.http import messages as m
from agentlightning.store.http import operations as ops
from agentlightning.store.http import transfer_messages as t
from agentlightning.testing.store.making import rich_span, span

DONE = Outcome(status="succeeded", output={"answer": 42})


@pytest.fixture
def ask(served):
    """Asks as the owner and reads the reply into its type."""
    client = served.client()
    asked = set()

    def ask(operation, body):
        asked.add(operation.name)
        return from_builtins(client.ok(operation, body), operation.reply)

    ask.asked = asked
    return ask


def test_every_operation_does_what_the_store_does(served, ask):
    store = served.store
    run = ask(ops.CREATE_RUN, m.CreateRun(name="demo", config={"a": [1, None]}, key="k")).run
    assert run == store.run(run.run_id) == ask(ops.RUN, m.OfRun(run_id=run.run_id)).run
    assert ask(ops.RUNS, m.Nothing()).runs == store.runs() == [run]
    _runs_and_their_state(store, ask, run.run_id)
    _resources(store, ask, run.run_id)
    keys = _work(store, ask, run.run_id)
    _spans(store, ask, keys)
    _moving(store, ask, run.run_id)
    _looking_around(store, ask, run.run_id)
    assert ask.asked == {operation.name for operation in ops.OPERATIONS}


def _runs_and_their_state(store, ask, run_id):
    ask(ops.SET_ENDPOINT, m.SetEndpoint(run_id=run_id, url="http://127.0.0.1:1"))
    assert store.run(run_id).endpoint_url == "http://127.0.0.1:1"
    assert ask(ops.LOAD_STATE, m.OfRun(run_id=run_id)).state is None
    ask(ops.SAVE_STATE, m.SaveState(run_id=run_id, state={"step": 3}))
    assert ask(ops.LOAD_STATE, m.OfRun(run_id=run_id)).state == store.load_state(run_id) == {"step": 3}
    ask(ops.LOG_METRICS, m.LogMetrics(run_id=run_id, step=1, values={"loss": 0.5}))
    assert ask(ops.METRICS, m.OfRun(run_id=run_id)).metrics == store.metrics(run_id)
    assert store.metrics(run_id)[0].values == {"loss": 0.5}


def _resources(store, ask, run_id):
    publish = m.Publish(run_id=run_id, resources={"llm": LLM(model="small")}, note="first", key="p")
    published = ask(ops.PUBLISH, publish).version
    assert published.version == 1
    latest = ask(ops.RESOURCES, m.ResourcesOf(run_id=run_id)).version
    assert latest == store.resources(run_id, "latest") == published


def _work(store, ask, run_id):
    queued = ask(
        ops.ENQUEUE, m.Enqueue(run_id=run_id, requests=[RolloutRequest(input=n) for n in range(6)])
    ).rollouts
    assert [rollout.input for rollout in queued] == list(range(6))
    first, second = ask(ops.CLAIM, m.ClaimWork(worker_id="w", run_id=run_id, limit=2)).claims
    assert first.resources == store.resources(run_id, 1)
    assert first.endpoint_url.startswith("http://127.0.0.1:1/rollout/")
    checked = m.CheckToken(rollout_id=first.key.rollout_id, number=1, token=first.token)
    assert ask(ops.CHECK_TOKEN, checked).answer
    assert 0 < ask(ops.EXPIRY, m.Nothing()).seconds <= 60
    beat = m.Heartbeat(worker_id="w", attempts=[first.key, second.key], report={"cpu": 0.5})
    assert [order.value for _, order in ask(ops.HEARTBEAT, beat).orders] == ["continue"] * 2
    finished = ask(ops.FINISH, m.Finish(results=[Result(key=first.key, outcome=DONE)])).rollouts
    assert finished[0].output == {"answer": 42}
    turned = ask(
        ops.FINISH_AND_CLAIM,
        m.FinishAndClaim(
            results=[Result(key=second.key, outcome=DONE)], worker_id="w", run_id=run_id, key="t"
        ),
    )
    assert (turned.rollouts[0].status, turned.late, turned.run_is_open) == ("succeeded", [], True)
    ask(ops.SET_REWARDS, m.SetRewards(rewards={first.key.rollout_id: 1.0}))
    assert ask(ops.ATTEMPTS, m.OfRollout(rollout_id=first.key.rollout_id)).attempts[0].number == 1
    begun = ask(ops.BEGIN, m.Begin(run_name="local", request=RolloutRequest(input="x"), worker_id="w"))
    left = [rollout.rollout_id for rollout in queued[3:]]
    assert {r.status for r in ask(ops.CANCEL, m.OfRollouts(rollout_ids=left)).rollouts} == {"cancelled"}
    over = ask(ops.WAIT_OVER, m.WaitOver(rollout_ids=left, wait_s=5)).rollouts
    assert [rollout.rollout_id for rollout in over] == left
    ask(ops.STOP_WAITING, m.StopWaiting(worker_id="w"))
    return [turned.claims[0].key, begun.claims[0].key]


def _spans(store, ask, keys):
    given = [rich_span(keys[0]), *(span(key, 1) for key in keys)]
    assert ask(ops.ADD_SPANS, m.AddSpans(spans=given)).count == 3
    assert ask(ops.ADD_SPANS, m.AddSpans(spans=given)).count == 0
    wanted = [key.rollout_id for key in keys]
    assert ask(ops.SPANS, m.SpansOf(rollout_ids=wanted)).spans == list(store.spans(wanted))


def _moving(store, ask, run_id):
    page = ask(ops.EXPORT_ROWS, t.ExportRows(run_id=run_id))
    assert page.rows == store.export_page(run_id).items
    assert ask(ops.IMPORT_ROWS, t.ImportRows(rows=page.rows)).count == 0  # all are there


def _looking_around(store, ask, run_id):
    page = ask(ops.ROLLOUTS, RolloutQuery(run_id=run_id, limit=4))
    assert [page.rollouts, page.cursor is None] == [
        store.rollouts(RolloutQuery(run_id=run_id, limit=4)).items,
        False,
    ]
    rest = ask(ops.ROLLOUTS, RolloutQuery(run_id=run_id, limit=4, cursor=page.cursor))
    assert len(rest.rollouts) == 2
    assert [worker.worker_id for worker in ask(ops.WORKERS, m.Nothing()).workers] == ["w"]
    counted = ask(ops.STATISTICS, m.StatisticsOf(run_id=run_id)).statistics
    assert counted == store.statistics(run_id)
    assert ask(ops.RUNNER_TOKEN, m.RunnerToken()).token == store.access_token("runner")
    told = ask(ops.CHANGES, m.Changes(run_id=run_id))
    assert not ask(ops.CHANGES, m.Changes(run_id=run_id, since=told.now)).changed
    ask(ops.SET_RUN_STATUS, m.SetRunStatus(run_id=run_id, status="succeeded"))
    assert ask(ops.CHANGES, m.Changes(run_id=run_id, since=told.now, wait_s=5)).changed
    assert store.run(run_id).status == "succeeded"


def test_a_key_used_again_gives_the_same_and_with_another_body_is_refused(served):
    client = served.client()
    made = client.ok(ops.CREATE_RUN, {"name": "a", "config": {}, "key": "k"})
    assert client.ok(ops.CREATE_RUN, {"name": "a", "config": {}, "key": "k"}) == made
    status, refusal = client.ask(ops.CREATE_RUN, {"name": "b", "config": {}, "key": "k"})
    assert (status, refusal["error"]) == (409, "KeyReused")


def test_token_ids_are_taken_as_base64_and_as_arrays(fast, run_id, claim_one):
    key, _ = claim_one(run_id)
    call = rich_span(key).call
    plain = to_builtins(span(key, 1, kind="llm", call=call))
    packed, plain["call"]["prompt_ids"] = plain["call"]["prompt_ids"], list(call.prompt_ids)
    plain["call"]["choices"][0]["logprobs"] = [-0.25, -1.5]
    fast.client().ok(ops.ADD_SPANS, {"spans": [plain]})
    reply = fast.client().ok(ops.SPANS, {"rollout_ids": [key.rollout_id]})
    assert reply["spans"][0]["call"]["prompt_ids"] == packed
    (stored,) = fast.store.spans([key.rollout_id])
    assert isinstance(stored.call.prompt_ids, Tokens)
    assert stored.call.choices[0].logprobs == Floats([-0.25, -1.5])


@pytest.mark.parametrize(
    ("body", "status", "error", "place"),
    [
        ({"name": "a"}, 400, "BadValue", "config"),
        ({"name": 1, "config": {}}, 400, "BadValue", "$.name"),
        ({"name": "a", "config": {}, "conifg": 1}, 400, "BadValue", "conifg"),
        ([], 400, "BadValue", "object"),
    ],
)
def test_a_bad_body_is_refused_with_the_place(fast, body, status, error, place):
    answered, reply = fast.client().send("/store/v1/create_run", json.dumps(body).encode())[:2]
    refusal = msgspec.json.decode(reply, type=m.Refusal)
    assert (answered, refusal.error) == (status, error)
    assert place in refusal.message


@pytest.mark.parametrize(
    ("operation", "body", "status", "error"),
    [
        (ops.RUN, {"run_id": "run-0"}, 404, "UnknownRun"),
        (ops.ATTEMPTS, {"rollout_id": "ro-0"}, 404, "UnknownRollout"),
        (ops.HEARTBEAT, {"worker_id": "w", "attempts": [["ro-0", 1]]}, 404, "UnknownRollout"),
        (ops.SET_REWARDS, {"rewards": {"ro-0": None}}, 404, "UnknownRollout"),
        (ops.CLAIM, {"worker_id": "w", "limit": 1001}, 400, "BadValue"),
        (ops.CLAIM, {"worker_id": "w", "limit": 0}, 400, "BadValue"),
        (ops.CLAIM, {"worker_id": "w", "wait_s": -1}, 400, "BadValue"),
        (ops.CLAIM, {"worker_id": "w", "limit": 2**63}, 400, "BadValue"),
        (ops.ROLLOUTS, {"limit": 10_001}, 400, "BadValue"),
        (ops.ROLLOUTS, {"cursor": "nonsense"}, 400, "BadValue"),
        (ops.ROLLOUTS, {"runid": "misspelt"}, 400, "BadValue"),
        (ops.WAIT_OVER, {"rollout_ids": [], "count": 1}, 400, "BadValue"),
        (ops.SPANS, {"rollout_ids": [], "cursor": "nonsense"}, 400, "BadValue"),
    ],
)
def test_a_refusal_has_the_name_of_the_error_and_its_status(fast, operation, body, status, error):
    answered, refusal = fast.client().ask(operation, body)
    assert (answered, refusal["error"]) == (status, error)
    assert refusal["message"]


def test_a_late_result_is_a_conflict_and_named_when_finishing_and_claiming(fast, run_id, claim_one):
    key, _ = claim_one(run_id)
    client = fast.client()
    fast.store.finish([Result(key=key, outcome=Outcome(status="failed", error="no"))])
    results = [Result(key=key, outcome=DONE)]
    status, refusal = client.ask(ops.FINISH, m.Finish(results=results))
    assert (status, refusal["error"]) == (409, "StaleAttempt")
    reply = client.ok(
        ops.FINISH_AND_CLAIM, m.FinishAndClaim(results=results, worker_id="w", run_id=run_id)
    )
    assert reply["late"] == [list(key)]
    assert reply["run_is_open"] is True


def test_finishing_in_a_closed_run_says_that_it_is_closed(fast, run_id, claim_one):
    key, _ = claim_one(run_id)
    fast.store.set_run_status(run_id, "succeeded")
    ask = m.FinishAndClaim(
        results=[Result(key=AttemptKey(*key), outcome=DONE)], worker_id="w", run_id=run_id
    )
    assert fast.client().ok(ops.FINISH_AND_CLAIM, ask)["run_is_open"] is False
