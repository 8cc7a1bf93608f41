"""The calls and dicts of a widely read guide, exactly as users bring them."""

from __future__ import annotations

import agentlightning as agl
import pytest
from agentlightning import Tracer
from agentlightning.cli.main import agl as command
from agentlightning.errors import AgentLightningError, ConfigError
from agentlightning.store import RolloutQuery
from agentlightning.store.opening import open_store
from click.testing import CliRunner


@pytest.fixture
def dataset(sums):
    return sums


@pytest.fixture
def model_from_environment(in_tmp, monkeypatch, tiny_model):
    monkeypatch.setenv("AGENTLIGHTNING_MODEL", tiny_model)


@pytest.fixture
def api(in_tmp, monkeypatch, model_server):
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    monkeypatch.setenv("OPENAI_MODEL", "gpt-4")
    return model_server


def my_reward_fn(task, output):
    return float(task["answer"] in output)


def recorded():
    with open_store("sqlite:///agentlightning.db") as store:
        rollouts = store.rollouts(RolloutQuery()).items
        return rollouts, list(store.spans([rollout.rollout_id for rollout in rollouts]))


def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


# --- init and emit --------------------------------------------------------------------------


def test_init_and_emit_make_one_recorded_call(api):
    agl.init()
    response = agl.emit(prompt="greet [[say:hello]]", tools=[get_weather], context={"user": "Ann"})
    assert response.text == "hello"
    (rollout,), spans = recorded()
    assert rollout.status == "succeeded"
    (call,) = [span.call for span in spans if span.call]
    assert call.choices[0].message["content"] == "hello"
    assert call.request["tools"][0]["function"]["name"] == "get_weather"


@pytest.mark.parametrize("left", [{"tools": [...]}, {"context": {...: ...}}, {"context": ...}])
def test_an_ellipsis_left_in_is_answered_with_what_belongs_there(api, left):
    agl.init()
    with pytest.raises(AgentLightningError, match=r"\.\.\."):
        agl.emit(prompt="greet", **left)
    assert api.requests == []


# --- Tracer ---------------------------------------------------------------------------------


class YourAgent:
    def run(self, task):
        from openai import OpenAI

        reply = OpenAI().chat.completions.create(
            model="gpt-4", messages=[{"role": "user", "content": f"{task} [[say:done]]"}]
        )
        return reply.choices[0].message.content


def test_a_tracer_records_one_rollout_of_any_agent_and_the_command_prints_it(api):
    your_agent, task = YourAgent(), "tidy up"
    tracer = Tracer()
    with tracer.trace(your_agent) as trace:
        result = your_agent.run(task)
    assert result == "done"
    printed = CliRunner().invoke(command, ["trace", "show", trace.rollout_id])
    assert printed.exit_code == 0
    assert "gpt-4" in printed.output
    assert "done" in printed.output


# --- rl -------------------------------------------------------------------------------------


def test_rl_on_a_hosted_model_stops_before_anything_is_spent(in_tmp, dataset):
    config = {"algorithm": "rl", "model": "gpt-4", "batch_size": 32, "learning_rate": 0.001}
    with pytest.raises(ConfigError, match="cannot be trained here") as refusal:
        agl.Trainer(config).train(dataset)
    for instead in ("local directory", "prompt_optimization", "sft"):
        assert instead in str(refusal.value)
    assert list(in_tmp.iterdir()) == []


def test_the_same_dict_trains_a_local_directory(in_tmp, dataset, tiny_model):
    config = {"algorithm": "rl", "model": tiny_model, "batch_size": 32, "learning_rate": 0.001}
    result = agl.Trainer(config, steps=1).train(dataset)
    assert (result.run_dir / "summary.json").exists()


def test_rl_without_a_model_takes_the_variable(model_from_environment, dataset):
    config = {"algorithm": "rl", "reward_function": my_reward_fn, "policy": "grpo"}
    result = agl.Trainer(config, steps=1).train(dataset)
    assert result.resources.llm().version >= 1


def test_rl_without_a_model_anywhere_names_the_key_and_the_variables(in_tmp):
    config = {"algorithm": "rl", "reward_function": my_reward_fn, "policy": "grpo"}
    with pytest.raises(ConfigError, match="AGENTLIGHTNING_MODEL or OPENAI_MODEL"):
        agl.Trainer(config)


def test_all_together(model_from_environment, dataset):
    config = {
        "algorithm": "rl",
        "policy": "grpo",
        "reward_function": my_reward_fn,
        "batch_size": 32,
        "learning_rate": 0.001,
        "use_tla": True,
    }
    assert agl.Trainer(config, steps=1).train(dataset).run_id


def test_tla_with_its_window(model_from_environment, dataset):
    config = {"algorithm": "rl", "use_tla": True, "tla_window": 100}
    assert agl.Trainer(config, steps=1).train(dataset).run_id


def test_ppo_ends_in_one_clear_line(model_from_environment):
    config = {"algorithm": "rl", "reward_function": my_reward_fn, "policy": "ppo"}
    with pytest.raises(ConfigError, match="'ppo' comes later"):
        agl.Trainer(config)


# --- sft ------------------------------------------------------------------------------------


def test_sft_takes_its_data_from_the_dict(model_from_environment, chats):
    config = {"algorithm": "sft", "train_dataset": chats, "eval_dataset": chats[:5]}
    result = agl.Trainer(config).train()
    assert result.resources.llm().model


def test_hosted_fine_tuning_ends_in_one_clear_line(in_tmp, chats):
    config = {
        "algorithm": "sft",
        "train_dataset": chats,
        "eval_dataset": chats[:5],
        "model": "gpt-4",
        "epochs": 3,
    }
    with pytest.raises(ConfigError, match="gpt-4"):
        agl.Trainer(config).train()
    assert list(in_tmp.iterdir()) == []


# --- prompt optimisation --------------------------------------------------------------------


@pytest.mark.parametrize("more", [{}, {"n_trials": 100}])
def test_prompt_optimisation_ends_in_one_clear_line(in_tmp, more):
    config = {"algorithm": "prompt_optimization", "optimization_target": "accuracy", **more}
    with pytest.raises(ConfigError, match="not part of this version yet"):
        agl.Trainer(config)


# --- rules behind them ----------------------------------------------------------------------


def test_an_unknown_key_is_refused_with_the_nearest(in_tmp, tiny_model):
    with pytest.raises(ConfigError, match="did you mean 'learning_rate'"):
        agl.Trainer({"algorithm": "rl", "model": tiny_model, "learning_rte": 0.001})


def test_changing_the_algorithm_in_a_working_config_still_runs(in_tmp, chats, tiny_model):
    config = {"algorithm": "sft", "model": tiny_model, "group_size": 8}
    trainer = agl.Trainer(config)
    assert any("group_size" in warning and "rl" in warning for warning in trainer.config.warnings)


def test_every_default_taken_is_kept_in_the_record(in_tmp, dataset, tiny_model):
    config = {"algorithm": "rl", "model": tiny_model, "reward_function": my_reward_fn, "steps": 1}
    result = agl.Trainer(config, batch_size=8).train(dataset)
    with open_store("sqlite:///agentlightning.db") as store:
        defaults = store.run(result.run_id).config["defaults"]
    assert defaults["policy"] == "grpo"
    assert "batch_size" not in defaults
