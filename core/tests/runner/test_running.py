"""The good case: what goes in, what comes out, and what agents share."""

import asyncio
import threading

import pytest
from agentlightning import semconv
from agentlightning.agent import Result, single_turn
from agentlightning.recording.context import current_rollout
from agentlightning.recording.instruments import instruments
from agentlightning.records import LLM, Data, PromptTemplate
from agentlightning.runner import RunSettings
from agentlightning.runner.outcomes import _warn_ignored
from openai import AsyncOpenAI, OpenAI


@pytest.fixture
def recording():
    instruments.install()
    yield
    instruments.uninstall()


def rewards(spans):
    return {
        span.attributes[semconv.REWARD_NAME]: span.attributes[semconv.REWARD_VALUE]
        for span in spans
        if span.kind == "reward" and span.attributes[semconv.REWARD_SOURCE] == "returned"
    }


def test_output_and_rewards_are_stored_when_the_rollout_is_over(bench):
    def agent(task):
        return Result({"said": task}, True, {"style": 0.5})

    (rollout,) = bench.done(agent, "hi")

    assert rollout.output == {"said": "hi"}
    assert rewards(bench.spans(rollout)) == {"reward": 1.0, "style": 0.5}


def test_a_runs_reward_function_leaves_the_output_alone(bench, caplog):
    _warn_ignored.cache_clear()  # it is said once a process, perhaps by an earlier test's runner
    rollout_ids = bench.enqueue("number", "result")
    with bench.runner(
        lambda task: 0.5 if task == "number" else Result(0.5, reward=1),
        settings=lambda run: RunSettings(has_reward_function=True),
    ):
        rollouts = bench.finished(rollout_ids)

    assert [rollout.output for rollout in rollouts] == [0.5, 0.5]
    assert [rewards(bench.spans(rollout)) for rollout in rollouts] == [{}, {}]
    assert "returned ones are ignored" in caplog.text


def test_rollouts_at_once_do_not_see_each_other(bench, recording, model_server):
    together = threading.Barrier(4)
    clients = {"sync": OpenAI(base_url=model_server.url, api_key="none")}

    def agent(task):
        together.wait(10)
        ask = [{"role": "user", "content": task}]
        clients["sync"].chat.completions.create(model="gpt-4", messages=ask)
        together.wait(10)
        return current_rollout().key.rollout_id

    bench.publish(llm=LLM(model="tiny", base_url=model_server.url))
    rollouts = bench.done(agent, *"abcd", count=4)

    for rollout in rollouts:
        assert rollout.output == rollout.rollout_id
        (call,) = [span.call for span in bench.spans(rollout) if span.kind == "llm"]
        assert call.request["messages"] == [{"role": "user", "content": rollout.input}]
        assert call.model == "tiny"


def test_async_agents_share_one_loop_and_may_keep_a_client(bench, recording, model_server):
    client = AsyncOpenAI(base_url=model_server.url, api_key="none")
    loops = set()

    async def agent(task):
        loops.add(id(asyncio.get_running_loop()))
        ask = [{"role": "user", "content": task}]
        reply = await client.chat.completions.create(model="gpt-4", messages=ask)
        await asyncio.sleep(0.01)
        return [reply.choices[0].message.content, current_rollout().key.rollout_id]

    bench.publish(llm=LLM(model="tiny", base_url=model_server.url))
    first = bench.done(agent, *"abcdef", count=3)
    second = bench.done(agent, "g")

    assert len(loops) == 1
    for rollout in [*first, *second]:
        assert rollout.output == ["ok", rollout.rollout_id]
        assert [span.kind for span in bench.spans(rollout)].count("llm") == 1


def test_a_background_task_that_exits_does_not_stop_the_other_agents(bench):
    async def leave():
        raise SystemExit(1)

    async def agent(task):
        background = asyncio.create_task(leave())
        await asyncio.sleep(0.05)
        return repr(background.exception())

    rollouts = bench.done(agent, "a", "b", count=2)

    assert [rollout.output for rollout in rollouts] == ["SystemExit(1)"] * 2


def test_a_sync_agent_may_run_a_loop_of_its_own(bench):
    async def inner():
        await asyncio.sleep(0)
        return current_rollout().key.rollout_id

    (rollout,) = bench.done(lambda task: asyncio.run(inner()), "task")

    assert rollout.output == rollout.rollout_id


def test_the_built_in_agent_asks_what_a_row_asks(bench, recording, model_server):
    bench.publish(
        llm=LLM(model="tiny", base_url=model_server.url),
        system_prompt=PromptTemplate(template="Speak {language}, as {this}."),
    )
    talk = [
        {"role": "system", "content": "old"},
        {"role": "user", "content": "[[say:bonjour]]"},
        {"role": "assistant", "content": "the answer to imitate"},
    ]
    rollouts = bench.done(
        single_turn,
        {"question": "[[say:oui]]", "language": "French"},
        {"messages": talk},
        "plain",
        {"answer": "no question"},
    )

    assert [rollout.output for rollout in rollouts] == ["oui", "bonjour", "ok", None]
    assert "'answer'" in bench.attempts(rollouts[3])[0].error
    asked = [request.body["messages"] for request in model_server.requests]
    assert asked == [
        [
            {"role": "system", "content": "Speak French, as {this}."},
            {"role": "user", "content": "[[say:oui]]"},
        ],
        [
            {"role": "system", "content": "Speak {language}, as {this}."},
            {"role": "user", "content": "[[say:bonjour]]"},
        ],
        [
            {"role": "system", "content": "Speak {language}, as {this}."},
            {"role": "user", "content": "plain"},
        ],
    ]
    assert [it.kind for it in bench.spans(rollouts[0])].count("llm") == 1


def test_the_built_in_agent_without_a_model_says_so(bench):
    bench.publish(system_prompt=Data(value="Be brief."))
    (rollout,) = bench.done(single_turn, "hi")

    assert "'llm'" in bench.attempts(rollout)[0].error


def test_the_store_learns_what_the_worker_does(bench, eventually):
    with bench.runner(lambda task: task, count=2, worker_id="me"):
        bench.finished(bench.enqueue("a", "b", "c"))
    (worker,) = bench.store.workers()

    assert worker.worker_id == "me"
    assert worker.report["claimed"] == 3
    assert worker.report["returned"] == 3
    assert worker.report["running"] == 0
    assert worker.report["late"] == {}


def test_many_idle_workers_ask_the_store_as_one(bench_on):
    from agentlightning.store.memory import MemoryStore

    class Counted(MemoryStore):
        claims = 0

        def claim(self, *args, **kwargs):
            self.claims += 1
            return super().claim(*args, **kwargs)

    bench = bench_on(Counted())
    with bench.runner(lambda task: task, count=20):
        bench.finished(bench.enqueue(*range(20)))

    assert bench.store.claims < 45  # one look a rollout, and one more each time work is waited for
