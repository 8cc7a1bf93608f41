"""What users get wrong: each mistake told in a line, before anything is spent where that can be told.

Where it cannot, the run fails with its reason, and what was recorded stays and can be explained.
"""

from __future__ import annotations

import json
import math
import socket
import sys
import threading
import time

import agentlightning as agl
import pytest
from agentlightning.cli.main import agl as command
from agentlightning.cli.main import main
from agentlightning.errors import (
    AgentError,
    AgentLightningError,
    BudgetExhausted,
    ConfigError,
    DatasetError,
    Deadline,
    NoSamples,
    RewardError,
    ServerError,
)
from agentlightning.recording.recorder import Recorder
from agentlightning.server import Server
from agentlightning.store import RolloutQuery
from agentlightning.store.opening import open_store
from click.testing import CliRunner
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

STORE = "sqlite:///agentlightning.db"
ROLLOUTS = 4


def score(task, output):
    return 1.0


def train(config, agent):
    """What a user's script does: with an agent, or the built-in one."""
    trainer = agl.Trainer(config)
    return trainer.train() if agent is None else trainer.fit(agent)


@pytest.fixture
def rl(in_tmp, tiny_model, sums):
    """A configuration of reinforcement learning that works: one step of four rollouts."""
    return {
        "algorithm": "rl",
        "model": tiny_model,
        "train_dataset": sums,
        "reward_function": score,
        "steps": 1,
        "batch_size": ROLLOUTS,
        "group_size": 2,
        "max_new_tokens": 4,
    }


@pytest.fixture
def refused(rl, in_tmp):
    """Train with keys laid over the working configuration; the line it is answered with.

    Nothing may be made: no store, no folder, no file.
    """

    def run(agent=None, error=AgentLightningError, **keys):
        with pytest.raises(error) as refusal:
            train({**rl, **keys}, agent)
        assert list(in_tmp.iterdir()) == []
        message = str(refusal.value)
        assert "\n" not in message
        return message

    return run


class Failed:
    """A run that failed, and what can be read of it afterwards."""

    def __init__(self, error):
        self.error = error
        self.message = str(error)
        with open_store(STORE) as store:
            (self.run,) = store.runs()
            self.rollouts = store.rollouts(RolloutQuery(run_id=self.run.run_id)).items

    def explained(self, number=0):
        """What ``agl explain`` says of a rollout."""
        done = CliRunner().invoke(command, ["explain", self.rollouts[number].rollout_id])
        assert done.exit_code == 0, done.output
        return done.output


@pytest.fixture
def failed(rl):
    """Train with keys laid over the working configuration; the run, which fails and is kept."""

    def run(error, agent=None, **keys):
        with pytest.raises(error) as failure:
            train({**rl, **keys}, agent)
        kept = Failed(failure.value)
        assert kept.run.status == "failed"
        return kept

    return run


@pytest.fixture
def module(in_tmp, monkeypatch):
    """Write a module that agents can be named in."""
    monkeypatch.syspath_prepend(str(in_tmp / "code"))

    def write(name, text):
        folder = in_tmp / "code"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(text)

    return write


# --- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "given", "nearest"),
    [
        ({"algorithm": "grppo"}, 'algorithm: no algorithm is called "grppo"', 'did you mean "grpo"?'),
        ({"policy": "gprp"}, "policy: 'gprp' is unknown", "did you mean 'grpo'?"),
        (
            {"adapters": {"langchian": {}}},
            'adapters: no adapter is called "langchian"',
            'did you mean "langchain"?',
        ),
        ({"store": "sqlit:///x.db"}, 'store: no store backend opens "sqlit://"', '"sqlite"?'),
        ({"learning_rte": 1e-3}, "learning_rte: unknown key", "did you mean 'learning_rate'?"),
        (
            {"engine": "transformer"},
            'engine: no engine is called "transformer"',
            'did you mean "transformers"?',
        ),
        (
            {"engine": {"name": "transformers", "max_batchs": 3}},
            "engine.max_batchs: no option of transformers",
            "did you mean 'max_batch'?",
        ),
        (
            {"runners": {"executor": "thread"}},
            'runners.executor: no executor is called "thread"',
            'did you mean "threads"?',
        ),
        (
            {"runners": {"executor": {"name": "processes", "process": 2}}},
            "runners.executor.process: no option of processes",
            "did you mean 'processes'?",
        ),
        ({"runners": {"cuont": 2}}, "runners.cuont: unknown key", "did you mean 'count'?"),
        ({"report_to": "wanb"}, "report_to: 'wanb' is no tracker", "did you mean 'wandb'?"),
    ],
)
def test_an_unknown_name_is_answered_with_the_known_ones_and_the_nearest(refused, keys, given, nearest):
    message = refused(error=ConfigError, **keys)
    assert given in message
    assert nearest in message
    assert "known: " in message.lower()


# --- values and options -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"model": "gpt-4"}, "'gpt-4' is no directory and no hub id"),
        ({"model": "./nowhere"}, "there is no directory './nowhere'"),
        ({"store": "runs.db"}, 'store: "runs.db" is not the URL of a store'),
        ({"engine": {"name": "transformers", "max_batch": 0}}, "engine: transformers does not take"),
        ({"engine": "http://localhost:1/v1"}, "engine: 'http://localhost:1/v1' is an address"),
        ({"adapters": {"langchain": {"depth": 3}}}, "adapters.langchain.depth: no option of langchain"),
        ({"runners": {"executor": {"name": "threads", "n": 2}}}, "runners.executor.n: no option"),
        ({"runners": {"count": -1}}, "runners: count is -1; expected at least 1, or 0"),
        ({"runners": {"executor": "processes"}, "store": "memory://"}, "lives in one process"),
        ({"rollout": {"timeout_s": -1}}, "rollout.timeout_s is -1"),
        ({"budget": {"rollouts": 2}}, "budget.rollouts: 2 is less than the 4 rollouts of one step"),
        ({"budget": {"tokens": 0}}, "budget: tokens is 0"),
        ({"base_url": "http://localhost:1"}, "base_url: says where a hosted model is asked"),
        ({"prompts": {"sytem": "solver"}}, "prompts.sytem: no resource has this name"),
        ({"resources": {"llm": "mine"}}, "resources.llm: rl serves `model` under this name"),
        ({"resume": "run-1"}, "there is no store at sqlite:///agentlightning.db"),
        ({"policy": "ppo"}, "'ppo' comes later"),
        (
            {"lora": {"rank": 8}},
            "lora: LoraConfig.__init__() got an unexpected keyword argument 'rank'",
        ),
        ({"reward_function": 3}, "reward_function: got a int"),
        ({"reward_function": lambda: 1.0}, "expected f(task, output) or f(task, output, rollout)"),
        ({"reward_function": "no_such_module:score"}, "reward_function: 'no_such_module:score'"),
    ],
)
def test_what_cannot_work_or_has_no_effect_is_refused(refused, keys, expected):
    assert expected in refused(**keys)


def test_a_hosted_model_is_answered_with_what_can_be_done_instead(refused):
    message = refused(error=ConfigError, model="gpt-4")
    for instead in ("a local directory", "prompt_optimization", "sft"):
        assert instead in message


def test_a_tracker_that_is_not_installed_is_answered_with_how_to_install_it(refused):
    assert "pip install wandb" in refused(error=ConfigError, report_to=["wandb"])


def test_a_model_directory_that_holds_something_else_is_named(refused, tmp_path_factory):
    folder = tmp_path_factory.mktemp("other")
    assert "has no config.json" in refused(error=ConfigError, model=str(folder))
    (folder / "config.json").write_text('{"model_type": "no-such-architecture"}')
    message = refused(error=ConfigError, model=str(folder))
    assert str(folder) in message
    assert "save_pretrained" in message


def test_a_key_of_another_algorithm_only_warns(in_tmp, tiny_model, chats, caplog):
    config = {"algorithm": "sft", "model": tiny_model, "steps": 1, "batch_size": 2}
    trainer = agl.Trainer(config, group_size=8, reward_function=score)
    assert any("group_size" in warning for warning in trainer.config.warnings)
    trainer.train(chats[:2])
    assert "reward_function: no effect here" in caplog.text


# --- datasets ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        ([], "train_dataset: the dataset has no rows"),
        (None, "train_dataset: none given"),
        ("tasks.jsonl", "train_dataset: there is no file 'tasks.jsonl'"),
        ([{"prompt": "1+1=", "answer": math.nan}], "row 0['answer'] is nan"),
        ([{"prompt": "1+1="}, {"text": "1+1="}], "train_dataset row 1: the built-in agent needs a row"),
    ],
)
def test_a_dataset_that_cannot_be_used_is_refused(refused, dataset, expected):
    assert expected in refused(error=ConfigError, train_dataset=dataset)


def test_validation_rows_are_looked_at_too(refused, sums):
    assert "eval_dataset: the dataset has no rows" in refused(error=DatasetError, eval_dataset=[])
    assert "eval_dataset row 0" in refused(error=DatasetError, eval_dataset=[{"text": "1+1="}])
    message = refused(error=ConfigError, reward_function=None, eval_dataset=[*sums, {"prompt": "1+1="}])
    assert "not every row has an `answer`" in message


def test_rows_that_are_no_chats_are_refused_for_fine_tuning(in_tmp, tiny_model, chats):
    trainer = agl.Trainer({"algorithm": "sft", "model": tiny_model, "steps": 1})
    with pytest.raises(DatasetError, match="train_dataset row 1: has the keys question"):
        trainer.train([chats[0], {"question": "1+1="}])
    with pytest.raises(DatasetError, match="eval_dataset row 1 is a task and row 0 a chat"):
        trainer.train(chats[:2], [chats[0], {"prompt": "1+1="}])
    assert list(in_tmp.iterdir()) == []


# --- agents -----------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", ["threads", "processes"])
@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        ("no_such_module:agent", "there is no module 'no_such_module'"),
        ("no_such_module", "expected 'module:name'"),
        (7, "is no agent"),
        (object, "is no agent but a class"),
        (lambda task, weather: task, "nothing fits the parameter 'weather'"),
    ],
)
def test_an_agent_that_cannot_be_run_is_refused(refused, agent, expected, executor):
    if executor == "processes" and callable(agent) and agent is not object:
        expected = "can't be sent to another process"
    message = refused(agent, error=AgentError, runners={"executor": executor})
    assert expected in message


def test_an_agent_whose_module_cannot_be_imported_is_refused(rl, module, in_tmp):
    module("broken_agents", "import no_such_thing\n")
    module("good_agents", "def answer(task): return 1.0\n")
    for reference, expected in [
        ("broken_agents:answer", "No module named 'no_such_thing'"),
        ("good_agents:anser", "has no 'anser', did you mean 'answer'?"),
    ]:
        with pytest.raises(AgentError) as refusal:
            agl.Trainer(rl, agent=reference).fit()
        assert expected in str(refusal.value)
    assert [path.name for path in in_tmp.iterdir()] == ["code"]


def test_an_import_that_fails_in_another_process_ends_the_run_with_its_reason(failed, module):
    module("broken_elsewhere", "import no_such_thing\n")
    kept = failed(AgentError, "broken_elsewhere:answer", runners={"executor": "processes", "count": 1})
    assert "No module named 'no_such_thing'" in kept.message
    assert {rollout.status for rollout in kept.rollouts} == {"cancelled"}


def test_an_agent_that_always_fails_ends_the_run_with_the_reasons_counted(failed):
    def agent(task):
        agl.emit(task["prompt"])
        raise LookupError("no such town")

    kept = failed(NoSamples, agent)

    assert "4 calls: its rollout failed" in kept.message
    assert "the rollout failed: LookupError: no such town (4 of 4 rollouts)" in kept.message
    assert {rollout.status for rollout in kept.rollouts} == {"failed"}
    assert "no such town" in kept.explained()


def test_an_agent_that_calls_no_model_is_told_what_is_recorded(failed):
    kept = failed(NoSamples, lambda task: 1.0)
    assert "no LLM call was recorded" in kept.message
    assert "no LLM call was recorded" in kept.explained()


def test_trained_agents_that_never_come_are_answered_with_those_that_do(
    failed, model_server, monkeypatch
):
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    monkeypatch.setenv("OPENAI_MODEL", "gpt-4")

    def agent(task):
        with Recorder().agent("solver"):
            agl.emit(task["prompt"])

    kept = failed(NoSamples, agent, trained_agents=["slover"])

    assert "agents seen: solver" in kept.message
    assert "agents seen: solver" in kept.explained()


def test_a_prompt_for_an_agent_that_never_comes_is_warned_of(failed, model_server, monkeypatch, caplog):
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    monkeypatch.setenv("OPENAI_MODEL", "gpt-4")

    def agent(task):
        with Recorder().agent("solver"):
            agl.emit(task["prompt"])

    kept = failed(NoSamples, agent, prompts={"hint": "slover"}, resources={"hint": "Think."})

    assert "returned no token ids" in kept.message
    assert "prompts: no call of an agent 'slover'" in caplog.text


def test_one_trained_agent_that_never_comes_is_warned_of(rl, caplog):
    def agent(task):
        with Recorder().agent("solver"):
            agl.emit(task["prompt"])

    agl.Trainer(rl, trained_agents=["solver", "cheker"]).fit(agent)

    (told,) = [record.message for record in caplog.records if "trained_agents" in record.message]
    assert "'cheker'" in told
    assert "agents seen: solver" in told


# --- rewards ----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.nan, math.inf, "good", [1.0]])
def test_a_reward_function_that_gives_no_number_ends_the_run_at_once(failed, value):
    kept = failed(RewardError, reward_function=lambda task, output: value)
    assert f"is {value!r}; expected a finite number" in kept.message
    (named,) = [item for item in kept.rollouts if item.rollout_id in kept.message]
    assert f"is {value!r}" in kept.explained(kept.rollouts.index(named))


def test_a_reward_function_that_raises_is_the_reason_of_an_empty_batch(failed, caplog):
    kept = failed(NoSamples, reward_function=lambda task, output: task["anwser"])
    assert "the reward function failed: KeyError: 'anwser' (4 of 4 rollouts)" in kept.message
    assert "the reward function failed: KeyError: 'anwser'" in kept.explained()
    crashes = [record for record in caplog.records if "reward_function raised" in record.message]
    assert [record.exc_info is not None for record in crashes] == [True, False, False, False]


def test_a_reward_function_that_raises_now_and_then_loses_that_rollout_only(rl):
    calls = []

    def now_and_then(task, output):
        calls.append(task)
        if len(calls) == 1:
            raise TimeoutError("the judge is asleep")
        return float(len(calls))

    result = agl.Trainer(rl, reward_function=now_and_then).train()

    with open_store(STORE) as store:
        (metrics,) = [
            item.values for item in store.metrics(result.run_id) if "train/scored" in item.values
        ]
    assert (metrics["train/scored"], metrics["train/unscored"]) == (3, 1)


@pytest.mark.parametrize(
    "tell",
    [
        lambda: math.nan,
        lambda: agl.Result(output="x", reward="good"),
        lambda: agl.emit_reward(math.nan),
        lambda: agl.emit_reward("good"),
    ],
)
def test_an_agent_that_gives_no_number_fails_its_rollout_with_the_reason(failed, tell):
    def agent(task):
        agl.emit(task["prompt"])
        return tell()

    kept = failed(NoSamples, agent, reward_function=None)

    assert kept.message.count("RewardError") == 1  # the same reason is told once
    assert "expected a finite number" in kept.message
    assert "expected a finite number" in kept.explained()


def test_a_validation_without_any_reward_is_told_with_its_reasons(rl, sums, caplog):
    def agent(task):
        agl.emit(task["prompt"])
        if "validation" in task:
            raise LookupError("no such town")

    rows = [{**sums[0], "validation": True}]
    result = agl.Trainer(rl, eval_dataset=rows).fit(agent)

    assert (result.reward_before, result.reward_after) == (None, None)
    assert "validation at step 0: 1 of 1 rollouts have no reward" in caplog.text
    assert "LookupError: no such town (1)" in caplog.text


# --- budgets and deadlines --------------------------------------------------------------------


def test_a_budget_that_validation_uses_up_ends_the_run_and_saves_no_untrained_model(
    failed, sums, in_tmp
):
    kept = failed(BudgetExhausted, eval_dataset=sums[:2], budget={"rollouts": 5})
    assert "4 rollouts asked for and 3 of 5 left" in kept.message
    assert len(kept.rollouts) == 2
    assert not list(in_tmp.glob("runs/*/model"))


def test_a_budget_that_is_used_up_between_steps_ends_training_with_what_there_is(rl, caplog):
    result = agl.Trainer(rl, steps=3, budget={"rollouts": 6}).train()
    assert "training ends after 1 steps: budget: 4 rollouts asked for and 2 of 6 left" in caplog.text
    assert (result.run_dir / "model" / "config.json").is_file()


def test_an_agent_that_hangs_is_given_up_after_its_time(failed, monkeypatch):
    monkeypatch.setattr("agentlightning.trainer.runners.STOP_S", 0.1)
    let_go = threading.Event()
    try:
        kept = failed(NoSamples, lambda task: let_go.wait(60), rollout={"timeout_s": 0.5})
    finally:
        let_go.set()
    assert "did not return within its 0.5 s" in kept.message
    assert "did not return within its 0.5 s" in kept.explained()


def test_a_batch_in_which_nothing_finishes_says_what_it_waits_for(failed, monkeypatch):
    monkeypatch.setattr("agentlightning.trainer.context.STALL_S", 1.0)
    monkeypatch.setattr("agentlightning.trainer.runners.STOP_S", 0.1)
    let_go = threading.Event()
    try:
        kept = failed(Deadline, lambda task: let_go.wait(60))
    finally:
        let_go.set()
    assert "waited 1 s for 4 of 4 rollouts and none finished" in kept.message
    assert "look at one with: agl explain" in kept.message


def test_a_port_in_use_is_named_within_two_seconds():
    def app():
        made = Starlette(routes=[Route("/health", lambda request: JSONResponse({"instance": "x"}))])
        made.state.instance_id = "x"
        return made

    with Server(app()) as first:
        port = int(first.url.rpartition(":")[2])
        started = time.monotonic()
        with pytest.raises(ServerError, match=f"port {port}"):
            Server(app(), port=port).start()
        assert time.monotonic() - started < 2
        with Server(app()) as other:
            assert other.url != first.url


# --- the command line -------------------------------------------------------------------------


def test_the_command_ends_a_failed_run_in_its_reason_and_what_was_recorded_stays(
    in_tmp, module, tiny_model, monkeypatch, capsys
):
    module("scores", "def score(task, output): return 'good'\n")
    (in_tmp / "tasks.jsonl").write_text('{"prompt": "1+1="}\n{"prompt": "1+2="}\n')
    (in_tmp / "config.yaml").write_text(
        f"{{algorithm: rl, model: {tiny_model}, train_dataset: tasks.jsonl, steps: 1, batch_size: 4, "
        "group_size: 2, max_new_tokens: 4, reward_function: 'scores:score'}"
    )
    monkeypatch.setattr(sys, "argv", ["agl", "train", "config.yaml"])
    with pytest.raises(SystemExit) as left:
        main()
    told = capsys.readouterr().err
    assert left.value.code == 1
    assert told.splitlines()[-1].startswith("error: the reward of rollout ")
    assert "Traceback" not in told
    done = CliRunner().invoke(command, ["rollouts", "--json"])
    assert len(json.loads(done.output)["rollouts"]) == ROLLOUTS


# --- outside a run ----------------------------------------------------------------------------


@pytest.fixture
def dead_server(in_tmp, monkeypatch):
    """The address of a server that is down; what ``init`` sets is forgotten afterwards."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    yield f"http://127.0.0.1:{port}/v1"
    agl.init()


def test_emit_with_a_server_that_is_down_says_so_and_is_recorded(dead_server):
    agl.init(model="gpt-4", base_url=dead_server)
    agl.init(model="gpt-4", base_url=dead_server)
    with pytest.raises(AgentLightningError, match="did not answer"):
        agl.emit("hello")
    with open_store(STORE) as store:
        (rollout,) = store.rollouts(RolloutQuery()).items
    assert rollout.status == "failed"


def test_a_traced_agent_that_raises_is_recorded_and_its_exception_goes_on(in_tmp):
    def lead():
        agl.emit_reward(0.5)
        raise LookupError("no such town")

    with pytest.raises(LookupError, match="no such town"), agl.Tracer(STORE).trace("guide") as trace:
        lead()
    done = CliRunner().invoke(command, ["explain", trace.rollout_id])
    assert "LookupError: no such town" in done.output
    assert "reward 0.5" in done.output
