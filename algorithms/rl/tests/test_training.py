"""Whole runs on a tiny model, from rollouts to a saved model."""

import pytest
import torch
from agentlightning.errors import AlgorithmError, ConfigError, Interrupted, NoSamples
from agentlightning_rl.algorithm import ReinforcementLearning
from agentlightning_rl.config import RLConfig
from transformers import AutoModelForCausalLM, AutoTokenizer


def config(**keys):
    given = {"steps": 4, "batch_size": 16, "group_size": 8, "learning_rate": 3e-3, **keys}
    return RLConfig(**given)


def weights_in(directory):
    return AutoModelForCausalLM.from_pretrained(directory).state_dict()


def assert_same(left, right):
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        torch.testing.assert_close(tensor, right[name], rtol=0, atol=1e-6)


@pytest.mark.parametrize("level", ["transition", "trajectory"])
def test_reward_rises_and_the_saved_model_is_the_trained_one(context, level):
    ctx = context()
    resources = ReinforcementLearning(config(steps=25, level=level)).run(ctx)

    assert ctx.evaluations[25] > ctx.evaluations[0] + 0.25
    assert sorted(ctx.metrics) == list(range(1, 26))
    assert ctx.done[-1] == (25, 25)
    directory = resources["llm"].model
    assert_same(weights_in(directory), ctx.served.module.state_dict())
    assert AutoTokenizer.from_pretrained(directory).chat_template


def test_a_step_reports_rewards_rows_and_fidelity(context):
    ctx = context()
    ReinforcementLearning(config(steps=2, level="trajectory")).run(ctx)

    metrics = ctx.metrics[1]
    assert metrics["train/scored"] == 16
    assert metrics["train/rows"] == 16
    assert metrics["fidelity/calls"] == 32
    assert metrics["fidelity/merged"] == 16
    assert metrics["fidelity/sampled_tokens"] == metrics["fidelity/trained_tokens"] == 96
    assert metrics["train/logprob_gap"] < 1e-4
    assert metrics["train/grad_norm"] > 0
    assert 0 < metrics["train/entropy"] < 6
    assert metrics["train/learning_rate"] == pytest.approx(3e-3)
    assert {"train/loss", "train/reward", "train/tokens_per_s", "train/clip_ratio"} <= metrics.keys()
    assert {"time/rollouts", "time/update"} <= metrics.keys()
    assert all("/" in name for name in metrics)


def test_every_update_is_served_under_its_own_version(context):
    ctx = context()
    ReinforcementLearning(config(steps=3)).run(ctx)

    versions = [ctx.results[f"step-{step}"][0].transitions[0].model_version for step in (1, 2, 3)]
    assert versions == [1, 2, 3]
    assert ctx.resources.resources["llm"].version == 4
    assert ctx.sampling == {"temperature": 1.0, "top_p": 1.0}


def test_an_engine_in_another_process_gets_directories_and_old_ones_go(context):
    ctx = context(takes_live=False)
    ReinforcementLearning(config(steps=2)).run(ctx)

    assert [item.path.name for item in ctx.served.loaded] == ["step-0", "step-1", "step-2"]
    assert [path.name for path in (ctx.run_dir / "weights").iterdir()] == ["step-2"]
    assert ctx.metrics[2]["train/logprob_gap"] < 1e-4


def test_validation_runs_before_between_and_after(context):
    ctx = context()
    ReinforcementLearning(config(steps=4, eval_every=2)).run(ctx)
    assert sorted(ctx.evaluations) == [0, 2, 4]


def test_a_stopped_run_resumes_to_exactly_the_weights_of_an_unbroken_one(context, tmp_path):
    unbroken = context()
    unbroken.run_dir = tmp_path / "unbroken"
    ReinforcementLearning(config(steps=5)).run(unbroken)

    first = context()
    first.stop_after = 3
    with pytest.raises(Interrupted, match="after 3 of 5 steps"):
        ReinforcementLearning(config(steps=5)).run(first)
    assert sorted(first.metrics) == [1, 2, 3]

    second = context()
    second.kept, second.results = first.kept, first.results
    resources = ReinforcementLearning(config(steps=5)).run(second)

    assert sorted(second.metrics) == [4, 5]
    assert [key for key in second.keys if key.startswith("step")] == ["step-4", "step-5"]
    assert_same(weights_in(resources["llm"].model), unbroken.served.module.state_dict())


def test_rollouts_made_after_the_last_checkpoint_are_used_again(context):
    first = context()
    first.interrupt_at = "step-4"
    with pytest.raises(Interrupted):
        ReinforcementLearning(config(steps=5, save_every=2)).run(first)
    first.kept = {**first.kept, "step": 2, "checkpoint": "checkpoints/checkpoint-2"}  # as if killed

    second = context()
    second.kept, second.results = first.kept, first.results
    made_before = set(first.results)
    ReinforcementLearning(config(steps=5, save_every=2)).run(second)

    assert "step-3" in made_before
    assert second.metrics[3]["fidelity/dropped"] == 0
    assert second.metrics[3]["train/reward"] == first.metrics[3]["train/reward"]


def test_an_interrupted_run_keeps_the_steps_it_made(context):
    ctx = context()
    ctx.interrupt_at = "step-3"
    with pytest.raises(Interrupted):
        ReinforcementLearning(config(steps=5)).run(ctx)

    assert ctx.kept["step"] == 2
    kept = weights_in(ctx.run_dir / ctx.kept["checkpoint"])
    assert_same(kept, ctx.served.module.state_dict())


def test_a_step_interrupted_in_its_validation_is_kept_and_validated_later(context):
    first = context()
    first.interrupt_at, first.stop_after = "val-2", 2
    with pytest.raises(Interrupted):
        ReinforcementLearning(config(steps=4, eval_every=2)).run(first)
    assert sorted(first.metrics) == [1, 2]
    assert first.kept["step"] == 2

    second = context()
    second.kept, second.results = first.kept, first.results
    ReinforcementLearning(config(steps=4, eval_every=2)).run(second)
    assert sorted(second.metrics) == [3, 4]
    assert sorted(second.evaluations) == [2, 4]


def test_a_batch_without_a_row_ends_the_run_and_says_why(context, result):
    ctx = context()
    ctx.results["step-1"] = [result(f"r{n}", f"g{n // 8}", None) for n in range(16)]
    with pytest.raises(NoSamples, match="16 rollouts gave nothing"):
        ReinforcementLearning(config()).run(ctx)


def test_a_lora_is_trained_and_saved_merged(context, tiny_model):
    ctx = context()
    resources = ReinforcementLearning(config(steps=2, lora={"r": 4})).run(ctx)

    saved, start = weights_in(resources["llm"].model), weights_in(tiny_model)
    changed = {name for name in start if not torch.equal(saved[name], start[name])}
    assert changed
    assert not any("embed" in name or "norm" in name for name in changed)
    merged = ctx.served.module.merge_and_unload().state_dict()
    assert_same(saved, {name: merged[name] for name in saved})
    assert (ctx.run_dir / "model-lora" / "adapter_config.json").is_file()


def test_checkpointed_activations_change_no_number(context, tmp_path):
    plain, checkpointed = context(), context()
    checkpointed.run_dir = tmp_path / "checkpointed"
    ReinforcementLearning(config(steps=2)).run(plain)
    ReinforcementLearning(config(steps=2, gradient_checkpointing=True)).run(checkpointed)
    assert_same(plain.served.module.state_dict(), checkpointed.served.module.state_dict())


def test_half_precision_computes_in_it_and_keeps_the_weights_whole(context):
    ctx = context()
    ReinforcementLearning(config(steps=2, precision="bfloat16")).run(ctx)
    assert all(tensor.dtype == torch.float32 for tensor in ctx.served.module.state_dict().values())
    assert 0 < ctx.metrics[1]["train/logprob_gap"] < 0.05


def test_a_run_whose_checkpoint_is_gone_says_what_to_give(context, tmp_path):
    ctx = context()
    ctx.stop_after = 2
    with pytest.raises(Interrupted):
        ReinforcementLearning(config()).run(ctx)
    ctx.run_dir = tmp_path / "elsewhere"
    with pytest.raises(AlgorithmError, match="cannot go on from step 2; expected the run_dir"):
        ReinforcementLearning(config()).run(ctx)


def test_a_model_that_cannot_be_opened_is_named(context, tmp_path):
    ctx = context()
    ctx.config.model = str(tmp_path)
    with pytest.raises(ConfigError, match="cannot be opened for training"):
        ReinforcementLearning(config()).run(ctx)


def test_keys_that_peft_does_not_know_are_refused(context):
    with pytest.raises(ConfigError, match=r"lora: .*rnk"):
        ReinforcementLearning(config(lora={"rnk": 4})).run(context())
