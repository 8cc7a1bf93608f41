import asyncio
import threading
import time

import pytest
import torch
from agentlightning.engine import FullDir, Live, LoraDir
from agentlightning.errors import EngineError
from transformers import AutoModelForCausalLM, AutoTokenizer


def live(directory):
    return Live(
        AutoModelForCausalLM.from_pretrained(directory), AutoTokenizer.from_pretrained(directory)
    )


def ids(reply):
    return reply["choices"][0]["token_ids"]


def nudge(module, by=0.1):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=by)


def test_a_directory_of_weights_changes_the_answers_and_a_bad_one_changes_nothing(
    kit, untrained, trained, tmp_path
):
    with kit.serving(untrained) as (engine, info):
        (before,) = kit.answer(info, kit.ask(temperature=0))
        name = engine.load(FullDir(trained), 1)
        (after,) = kit.answer(info, kit.ask(temperature=0))
        with pytest.raises(EngineError, match="cannot be loaded"):
            engine.load(FullDir(tmp_path), 2)
        (still,) = kit.answer(info, kit.ask(temperature=0))
    assert name == info.model
    assert ids(after) != ids(before)
    assert ids(still) == ids(after)
    expected = kit.plain_logprobs(AutoModelForCausalLM.from_pretrained(trained), after, 1.0)
    assert kit.told_logprobs(after) == pytest.approx(expected, abs=1e-4)


def test_live_weights_are_served_as_they_are_after_each_change(kit, untrained):
    weights = live(untrained)
    with kit.serving(untrained) as (engine, info):
        engine.load(weights, 0)
        for _ in range(2):
            (reply,) = kit.answer(info, kit.ask(temperature=1.0))
            expected = kit.plain_logprobs(weights.module, reply, 1.0)
            assert kit.told_logprobs(reply) == pytest.approx(expected, abs=1e-4)
            with engine.exclusive():
                nudge(weights.module)


def test_live_weights_loaded_before_the_start_are_the_only_ones_read(kit, untrained, tmp_path):
    from agentlightning_transformers.engine import TransformersEngine

    weights = live(untrained)
    weights.tokenizer.save_pretrained(tmp_path)
    weights.module.config.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"unreadable: whoever loads this fails")
    engine = TransformersEngine(str(tmp_path))
    try:
        engine.load(weights, 0)
        (reply,) = kit.answer(engine.start(), kit.ask(temperature=1.0))
    finally:
        engine.stop()
    expected = kit.plain_logprobs(weights.module, reply, 1.0)
    assert kit.told_logprobs(reply) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"dtype": "bfloat16"}, "dtype: bfloat16, and it is in float32"),
        ({"device": "meta"}, "device: meta, and it is on cpu"),
        ({"device": "cpu", "dtype": "float16"}, "dtype: float16"),
    ],
)
def test_a_live_module_unlike_the_options_is_refused_and_a_directory_is_read_as_they_say(
    kit, untrained, options, told
):
    weights = live(untrained)
    weights.tokenizer.chat_template = "never used"
    with kit.serving(untrained, **options) as (engine, info):
        serving = engine._serving
        with pytest.raises(EngineError, match=told):
            engine.load(weights, 1)
        assert engine._serving is serving
        assert engine.start() == info
        engine.load(FullDir(untrained), 1)
        module = engine._policy._module
        assert str(module.dtype) == f"torch.{options.get('dtype', 'float32')}"
        assert str(module.device) == options.get("device", "cpu")


def test_a_live_module_as_the_options_say_is_taken(kit, untrained):
    weights = live(untrained)
    with kit.serving(untrained, device="cpu", dtype="torch.float32") as (engine, info):
        engine.load(weights, 0)
        assert ids(kit.answer(info, kit.ask())[0])
        assert engine._policy._module is weights.module


def test_the_trainers_tokenizer_templates_the_prompts_of_live_weights(kit, untrained):
    weights = live(untrained)
    weights.tokenizer.chat_template = "{{ messages[0].content }}"
    with kit.serving(untrained) as (engine, info):
        engine.load(weights, 0)
        (reply,) = kit.answer(info, kit.ask("order lamps"))
    assert reply["prompt_token_ids"] == weights.tokenizer("order lamps")["input_ids"]


def test_no_request_runs_while_the_trainer_has_the_weights(kit, untrained):
    weights = live(untrained)
    with kit.serving(untrained) as (engine, info):
        engine.load(weights, 0)
        replies = []
        asking = threading.Thread(target=lambda: replies.extend(kit.answer(info, *[kit.ask()] * 4)))
        with engine.exclusive(), engine.exclusive():  # the trainer's thread may ask for it again
            asking.start()
            time.sleep(0.3)
            assert replies == []
            nudge(weights.module, by=0.3)
        asking.join(timeout=30)
        assert len(replies) == 4
        for reply in replies:  # nothing was computed with what the weights were before
            expected = kit.plain_logprobs(weights.module, reply, 1.0)
            assert kit.told_logprobs(reply) == pytest.approx(expected, abs=1e-4)


def test_a_request_given_up_while_the_trainer_has_the_weights_leaves_the_engine_well(kit, untrained):
    with kit.serving(untrained) as (engine, info):
        engine.load(live(untrained), 0)
        with engine.exclusive(), pytest.raises(TimeoutError):
            asyncio.run(asyncio.wait_for(info.chat(kit.ask()), 0.2))
        (reply,) = kit.answer(info, kit.ask())
    assert ids(reply)


def test_the_trainer_gets_its_turn_however_busy_the_engine_is(kit, untrained):
    weights = live(untrained)
    done = threading.Event()

    async def keep_asking(info):
        while not done.is_set():
            await info.chat(kit.ask())

    async def crowd(info):
        await asyncio.gather(*(keep_asking(info) for _ in range(8)))

    with kit.serving(untrained, batch_wait_ms=0) as (engine, info):
        engine.load(weights, 0)
        asking = threading.Thread(target=lambda: asyncio.run(crowd(info)))
        asking.start()
        try:
            started = time.monotonic()
            for _ in range(10):
                with engine.exclusive():
                    pass
            assert time.monotonic() - started < 5
        finally:
            done.set()
            asking.join(timeout=30)
    assert not asking.is_alive()


def test_answering_leaves_a_module_in_training_as_it_was(kit, untrained):
    from peft import LoraConfig, get_peft_model

    weights = live(untrained)
    base = weights.module
    lora = get_peft_model(base, LoraConfig(target_modules=["q_proj", "v_proj"], lora_dropout=0.9))
    nudge(lora)
    lora.train()
    base.model.norm.eval()
    base.generation_config.repetition_penalty = 5.0
    settings = base.generation_config
    modes = [part.training for part in lora.modules()]
    with kit.serving(untrained) as (engine, info):
        engine.load(Live(lora, weights.tokenizer), 0)
        (reply,) = kit.answer(info, kit.ask(temperature=1.0))
    assert [part.training for part in lora.modules()] == modes
    assert base.generation_config is settings
    # Neither the dropout nor the penalty was at work.
    expected = kit.plain_logprobs(lora.eval(), reply, 1.0)
    assert kit.told_logprobs(reply) == pytest.approx(expected, abs=1e-4)


def test_a_lora_changes_the_answers_and_another_one_takes_its_place(kit, untrained, tmp_path):
    from peft import LoraConfig, PeftModel, get_peft_model

    for name in ("one", "two"):
        lora = get_peft_model(
            AutoModelForCausalLM.from_pretrained(untrained),
            LoraConfig(target_modules=["q_proj", "o_proj"]),
        )
        nudge(lora, by=0.2)
        lora.save_pretrained(tmp_path / name)
    seen = []
    with kit.serving(untrained) as (engine, info):
        for version, name in enumerate(("one", "two", "one")):
            engine.load(LoraDir(tmp_path / name), version)
            (reply,) = kit.answer(info, kit.ask(temperature=0))
            alone = PeftModel.from_pretrained(
                AutoModelForCausalLM.from_pretrained(untrained), tmp_path / name
            )
            expected = kit.plain_logprobs(alone, reply, 1.0)
            assert kit.told_logprobs(reply) == pytest.approx(expected, abs=1e-4)
            seen.append(kit.told_logprobs(reply))
        with pytest.raises(EngineError, match="does not fit"):
            engine.load(LoraDir(tmp_path / "none"), 9)
    assert seen[0] != seen[1]
    assert seen[0] == pytest.approx(seen[2], abs=1e-5)


def test_weights_that_have_diverged_fail_the_request_by_name(kit, untrained):
    weights = live(untrained)
    with kit.serving(untrained) as (engine, info):
        engine.load(weights, 0)
        with engine.exclusive(), torch.no_grad():
            weights.module.model.norm.weight.fill_(float("nan"))
        with pytest.raises(ArithmeticError, match="diverged"):
            kit.answer(info, kit.ask())
