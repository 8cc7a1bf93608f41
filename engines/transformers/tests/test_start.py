import json
import shutil

import pytest
from agentlightning.errors import EngineError
from agentlightning.plugins import plugins
from agentlightning_transformers.engine import TransformersEngine
from transformers import AutoTokenizer, T5Config


@pytest.fixture
def copy(untrained, tmp_path):
    return shutil.copytree(untrained, tmp_path / "model")


def refused(directory, match, **options):
    with pytest.raises(EngineError, match=match):
        TransformersEngine(str(directory), **options).start()


def test_the_engine_is_found_by_its_name(untrained):
    engine = plugins().engines.get("transformers")(str(untrained), max_batch=2)
    assert isinstance(engine, TransformersEngine)


def test_starting_tells_what_is_served_and_loads_no_weights(copy):
    (copy / "model.safetensors").write_bytes(b"unreadable")
    engine = TransformersEngine(str(copy))
    info = engine.start()
    engine.stop()
    assert info.model == str(copy)
    assert info.base_url is None
    assert info.returns_token_ids
    assert info.max_model_len == 2048


def test_weights_that_cannot_be_read_fail_the_request_and_are_named(kit, copy):
    (copy / "model.safetensors").write_bytes(b"unreadable")
    with (
        kit.serving(copy) as (_, info),
        pytest.raises(EngineError, match=r"weights in .*model cannot be loaded"),
    ):
        kit.answer(info, kit.ask())


def test_a_missing_directory_is_named(tmp_path):
    refused(tmp_path / "nowhere", "there is no directory .*nowhere")


def test_a_directory_without_a_model_is_named(tmp_path):
    refused(tmp_path, "has no config.json")


def test_a_directory_without_weights_is_refused_at_the_start(copy):
    (copy / "model.safetensors").unlink()
    refused(copy, "no weights")


def test_a_model_without_a_tokenizer_is_refused(copy):
    (copy / "tokenizer.json").unlink()
    (copy / "tokenizer_config.json").unlink()
    refused(copy, "the tokenizer of")


def test_a_model_without_a_chat_template_is_refused(copy):
    (copy / "chat_template.jinja").unlink()
    refused(copy, "no chat template")


def test_a_model_of_another_kind_is_refused(copy):
    T5Config().save_pretrained(copy)
    refused(copy, "'t5', which does not generate text from text alone")


def test_a_model_that_names_no_end_is_refused(copy):
    for name in ("config.json", "generation_config.json"):
        settings = json.loads((copy / name).read_text())
        settings["eos_token_id"] = None
        (copy / name).write_text(json.dumps(settings))
    tokenizer = AutoTokenizer.from_pretrained(copy)
    tokenizer.eos_token = None
    tokenizer.save_pretrained(copy)
    refused(copy, "end-of-sequence")


def test_a_length_the_model_was_not_made_for_is_refused(untrained):
    refused(untrained, "max_model_len=9999", max_model_len=9999)


@pytest.mark.parametrize("options", [{"max_batch": 0}, {"batch_wait_ms": -1}])
def test_options_out_of_range_are_refused(untrained, options):
    refused(untrained, "max_batch", **options)


@pytest.mark.parametrize("options", [{"device": "gpu"}, {"dtype": "float31"}, {"dtype": "nn"}])
def test_a_device_or_type_that_does_not_exist_is_refused_by_its_name(untrained, options):
    (option,) = options
    refused(untrained, f"{option}: '.*' is none; expected auto", **options)


def test_asking_before_the_start_is_an_error(kit, untrained):
    import asyncio

    engine = TransformersEngine(str(untrained))
    with pytest.raises(EngineError, match="not been started"):
        asyncio.run(engine._chat(kit.ask()))
