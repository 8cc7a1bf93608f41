"""Whole runs on a real tiny model."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from agentlightning.errors import AlgorithmError, ConfigError, DatasetError, Interrupted, NoSamples
from agentlightning_sft.algorithm import SupervisedFineTuning
from agentlightning_sft.chats import chat_examples
from agentlightning_sft.config import SFTConfig
from agentlightning_sft.model import open_model
from agentlightning_sft.tokenising import ChatTokeniser
from agentlightning_sft.training import ExampleTrainer, SFTTrainer, mean_loss, trl_arguments
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

ITEMS = ("lamps", "chairs", "mugs", "clocks")
ROWS = [
    {
        "messages": [
            {"role": "user", "content": f"Any {item}?"},
            {"role": "assistant", "content": f"Yes, {item} we have."},
        ]
    }
    for item in ITEMS
]
TASKS = [{"question": f"Any {item}?", "answer": f"Yes, {item} we have."} for item in ITEMS]
FAST = {"steps": 60, "batch_size": 4, "learning_rate": 3e-3, "warmup_steps": 5, "adam_beta2": 0.98}


def run(context: Any, **keys: Any) -> Any:
    return SupervisedFineTuning(SFTConfig(**{**FAST, **keys})).run(context)


def losses(context: Any) -> list[float]:
    return [
        values["train/loss"]
        for _, values in sorted(context.metrics().items())
        if "train/loss" in values
    ]


def answer(directory: str, question: str) -> str:
    """What plain transformers says with the saved model."""
    model = AutoModelForCausalLM.from_pretrained(directory)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    made = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}],
        add_generation_prompt=True,
        return_dict=True,
        return_tensors="pt",
    )
    out = model.generate(**made, max_new_tokens=24, do_sample=False)
    return tokenizer.decode(out[0, made["input_ids"].shape[1] :], skip_special_tokens=True)


def test_it_learns_the_rows_and_plain_transformers_loads_the_result(context):
    ctx = context(train=ROWS, val=ROWS)
    resources = run(ctx)
    assert losses(ctx)[0] > 2
    assert losses(ctx)[-1] < 0.1
    assert resources["llm"].model == str(ctx.run_dir / "model")
    assert answer(resources["llm"].model, "Any mugs?") == "Yes, mugs we have."
    assert ctx.done[-1] == (60, 60)
    metrics = ctx.metrics()
    assert metrics[0]["val/loss"] > 2
    assert metrics[60]["val/loss"] < 0.1
    assert metrics[60]["train/tokens_per_s"] > 0
    assert (metrics[0]["data/rows"], metrics[0]["data/dropped"]) == (4, 0)
    assert 0 < metrics[0]["data/trained_tokens"] < metrics[0]["data/tokens"]
    assert ctx.store.resources(ctx.run.run_id, "latest").llm().model == resources["llm"].model


def test_with_tasks_the_agent_is_validated_before_and_after_on_the_served_weights(context):
    ctx = context(train=ROWS, val=TASKS)
    resources = run(ctx)
    assert ctx.rewards == {0: 0.0, 60: 1.0}
    assert resources["llm"].version == 1
    assert resources["llm"].model == str(ctx.run_dir / "model")


def test_it_learns_from_a_recorded_run(context, recorder):
    for item in ITEMS:
        for said, reward in ((f"Yes, {item} we have.", 1.0), ("No.", 0.0)):
            recorder.rollout(
                ([{"role": "user", "content": f"Any {item}?"}], {"content": said}),
                reward=reward,
                group=item,
            )
    ctx = context()
    resources = run(ctx, source_run="recorded", reward_threshold=0.5, best_per_task=1)
    assert ctx.metrics()[0]["data/rows_exact"] == 4
    assert answer(resources["llm"].model, "Any chairs?") == "Yes, chairs we have."


def test_a_lora_is_trained_alone_and_merged_into_what_is_saved(context, tiny_model: Path):
    ctx = context(train=ROWS)
    resources = run(ctx, lora={"r": 4}, learning_rate=2e-2)
    assert losses(ctx)[-1] < losses(ctx)[0] - 1
    merged = AutoModelForCausalLM.from_pretrained(resources["llm"].model).state_dict()
    base = AutoModelForCausalLM.from_pretrained(tiny_model)
    assert torch.equal(
        base.state_dict()["model.embed_tokens.weight"], merged["model.embed_tokens.weight"]
    )
    adapted = (
        PeftModel.from_pretrained(base, ctx.run_dir / "model-lora").merge_and_unload().state_dict()
    )
    assert all(torch.allclose(adapted[name], merged[name], atol=1e-5) for name in merged)


def test_an_interrupted_run_goes_on_to_the_very_same_weights(context, tmp_path: Path):
    whole = run(context(train=ROWS, run_dir=tmp_path / "whole"), steps=12)
    first = context(train=ROWS, stop_at=5)
    with pytest.raises(Interrupted, match="after 5 of 12 steps"):
        run(first, steps=12)
    assert not (first.run_dir / "model").exists()
    second = context(train=ROWS, run=first.run)
    resumed = run(second, steps=12)
    assert second.done[0] == (6, 12)
    weights = [
        AutoModelForCausalLM.from_pretrained(made["llm"].model).state_dict()
        for made in (whole, resumed)
    ]
    assert all(torch.allclose(weights[0][name], weights[1][name], atol=1e-6) for name in weights[0])


def interrupt_the_last_validation(ctx, monkeypatch):
    def evaluate(resources=None, *, step):
        if step:
            raise Interrupted("pressed while the trained model was validated")

    monkeypatch.setattr(ctx, "evaluate", evaluate)
    with pytest.raises(Interrupted):
        run(ctx, steps=5, batch_size=3)


def model_of(ctx):
    return AutoModelForCausalLM.from_pretrained(ctx.run_dir / "model").state_dict()


def test_a_run_interrupted_after_its_training_is_not_trained_again(context, monkeypatch):
    first = context(train=ROWS, val=TASKS)
    interrupt_the_last_validation(first, monkeypatch)
    trained = model_of(first)
    second = context(train=ROWS, val=TASKS, run=first.run)
    run(second, steps=5, batch_size=3)
    assert second.done == []
    assert list(second.rewards) == [5]
    assert all(torch.equal(trained[name], value) for name, value in model_of(second).items())


def test_a_run_killed_at_its_last_checkpoint_makes_no_step_more(context):
    first = context(train=ROWS, val=TASKS)
    run(first, steps=5, batch_size=3, save_every=1)
    trained = model_of(first)
    first.checkpoint({"step": 5})  # killed before it could say that the training is done
    second = context(train=ROWS, val=TASKS, run=first.run)
    run(second, steps=5, batch_size=3, save_every=1)
    assert second.done == []
    assert all(torch.equal(trained[name], value) for name, value in model_of(second).items())


def test_more_steps_than_a_finished_training_had_are_refused(context, monkeypatch):
    first = context(train=ROWS, val=TASKS)
    interrupt_the_last_validation(first, monkeypatch)
    with pytest.raises(AlgorithmError, match="5 steps were asked for"):
        run(context(train=ROWS, val=TASKS, run=first.run), steps=8, batch_size=3)


def test_a_run_whose_checkpoint_is_gone_says_what_to_give(context, tmp_path: Path):
    first = context(train=ROWS, stop_at=2)
    with pytest.raises(Interrupted):
        run(first, steps=4)
    moved = context(train=ROWS, run=first.run, run_dir=tmp_path / "elsewhere")
    with pytest.raises(AlgorithmError, match=r"elsewhere.*expected the run_dir of the stopped run"):
        run(moved, steps=4)


def test_a_used_up_budget_ends_training_with_what_there_is(context, caplog):
    ctx = context(train=ROWS, stop_at=5)
    ctx.budget.seconds, ctx.budget.spent = 1.0, {"seconds": 2.0}
    with caplog.at_level(logging.WARNING, "agentlightning.sft"):
        resources = run(ctx)
    assert Path(resources["llm"].model, "config.json").is_file()
    assert "after 5 of 60 steps: the budget is used up" in caplog.text
    assert list((ctx.run_dir / "checkpoints").iterdir()) == []


def test_checkpoints_are_kept_when_asked_for(context):
    ctx = context(train=ROWS)
    run(ctx, steps=6, save_every=2)
    assert {path.name for path in (ctx.run_dir / "checkpoints").iterdir()} == {
        "checkpoint-4",
        "checkpoint-6",
    }
    assert ctx.restore()["step"] == 6


def test_without_steps_the_rows_are_passed_so_many_times(context):
    ctx = context(train=[*ROWS, *ROWS[:2]])
    run(ctx, steps=None, epochs=3, batch_size=4)
    assert ctx.done[-1] == (6, 6)


def test_gradients_of_small_batches_add_up_to_those_of_the_whole(context, tmp_path: Path):
    made = [
        run(context(train=ROWS, run_dir=tmp_path / str(size)), steps=3, micro_batch_size=size)
        for size in (4, 1)
    ]
    weights = [AutoModelForCausalLM.from_pretrained(one["llm"].model).state_dict() for one in made]
    assert all(torch.allclose(weights[0][name], weights[1][name], atol=1e-5) for name in weights[0])


def test_the_loss_is_the_one_trl_computes(tiny_model: Path, tmp_path: Path):
    module, tokenizer = open_model(str(tiny_model))
    examples = chat_examples(ROWS, ChatTokeniser(tokenizer, assistant_only=True, model="x"), "d").items
    args = trl_arguments(SFTConfig(batch_size=4), directory=tmp_path, steps=1, seed=0)
    trainer = ExampleTrainer(module, tokenizer, examples, args)
    batch = next(iter(trainer.get_train_dataloader()))
    ours = trainer.compute_loss(trainer.model, dict(batch))
    theirs = SFTTrainer.compute_loss(trainer, trainer.model, dict(batch))
    assert math.isclose(ours.item(), theirs.item(), rel_tol=1e-5)
    assert math.isclose(
        mean_loss(module, tokenizer, examples, batch_size=3), theirs.item(), rel_tol=1e-5
    )


def test_rows_that_are_too_long_are_left_out_and_counted(context, caplog):
    long = {
        "messages": [{"role": "user", "content": "x" * 500}, {"role": "assistant", "content": "no"}]
    }
    ctx = context(train=[*ROWS, long])
    with caplog.at_level(logging.WARNING, "agentlightning.sft"):
        run(ctx, steps=1, max_length=100)
    assert (ctx.metrics()[0]["data/rows"], ctx.metrics()[0]["data/dropped"]) == (4, 1)
    assert "left out: 1 longer than 100 tokens" in caplog.text


def test_no_row_at_all_is_refused_with_the_reasons(context, recorder):
    with pytest.raises(NoSamples, match="no row in train_dataset and no source_run"):
        run(context())
    with pytest.raises(NoSamples, match="4 longer than 3 tokens"):
        run(context(train=ROWS), max_length=3)
    recorder.rollout(reward=0.0)
    with pytest.raises(NoSamples, match=r"1 rollouts with a reward below 0.5"):
        run(context(), source_run="recorded", reward_threshold=0.5)


def test_chats_and_tasks_are_not_mixed_in_validation(context):
    with pytest.raises(DatasetError, match="eval_dataset row 1 is a task and row 0 a chat"):
        run(context(train=ROWS, val=[ROWS[0], TASKS[0]]))


def test_a_model_that_cannot_be_opened_is_named(context, tmp_path: Path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="cannot be opened"):
        run(context(train=ROWS, model=tmp_path))
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ConfigError, match="is a LoRA"):
        run(context(train=ROWS, model=tmp_path))


def test_unknown_lora_keys_are_named(context):
    with pytest.raises(ConfigError, match="rang"):
        run(context(train=ROWS), lora={"rang": 3})


def test_a_loss_that_is_no_number_ends_the_run(context):
    with pytest.raises(AlgorithmError, match=r"train/\w+ is (nan|inf); expected a finite number"):
        run(context(train=ROWS), learning_rate=1e30, max_grad_norm=1e9, warmup_steps=0, steps=9)
