"""What a user may write, and what each mistake is answered with."""

from __future__ import annotations

import json

import pytest
from agentlightning.config import describe, load_config, load_dataset, model_kind
from agentlightning.errors import ConfigError, DatasetError


@pytest.fixture
def local_model(tmp_path):
    directory = tmp_path / "policy"
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    return str(directory)


def test_a_directory_a_hub_id_and_a_hosted_name_are_told_apart(local_model):
    assert model_kind(local_model) == "directory"
    assert model_kind("owner/name") == "hub"
    assert model_kind("gpt-4") == "hosted"


@pytest.mark.parametrize("path", ["./nowhere", "/nowhere/at/all", "a/b/c"])
def test_a_path_without_a_model_is_named(path):
    with pytest.raises(ConfigError, match="there is no directory"):
        model_kind(path)


def test_a_directory_without_a_model_says_what_is_missing(tmp_path):
    with pytest.raises(ConfigError, match=r"no config\.json"):
        model_kind(str(tmp_path))


def test_an_empty_dataset_is_refused():
    with pytest.raises(DatasetError, match="no rows"):
        load_dataset([], "train_dataset")


def test_a_row_that_is_not_json_is_named_with_its_place():
    with pytest.raises(DatasetError, match=r"row 1\['x'\] is nan"):
        load_dataset([{"x": 1}, {"x": float("nan")}], "train_dataset")


def test_datasets_are_read_from_files_and_iterators(tmp_path):
    lines = tmp_path / "tasks.jsonl"
    lines.write_text('{"a": 1}\n\n{"a": 2}\n')
    table = tmp_path / "tasks.csv"
    table.write_text("a,b\n1,x\n")
    assert load_dataset(lines, "train_dataset") == [{"a": 1}, {"a": 2}]
    assert load_dataset(str(table), "train_dataset") == [{"a": "1", "b": "x"}]
    assert load_dataset(({"a": n} for n in range(2)), "train_dataset") == [{"a": 0}, {"a": 1}]


def test_a_broken_line_is_named_by_its_number(tmp_path):
    lines = tmp_path / "tasks.jsonl"
    lines.write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(DatasetError, match="line 2 is not JSON"):
        load_dataset(lines, "train_dataset")


def test_an_unknown_kind_of_file_names_the_known_ones(tmp_path):
    with pytest.raises(DatasetError, match=r"\.jsonl, \.csv, \.parquet"):
        load_dataset(tmp_path / "tasks.xml", "eval_dataset")


def test_an_unknown_algorithm_names_the_nearest():
    with pytest.raises(ConfigError, match="algorithm"):
        load_config({"algorithm": "gpro", "model": "owner/name"})


def test_prompt_optimisation_ends_in_one_clear_line():
    with pytest.raises(ConfigError, match="not part of this version yet"):
        load_config({"algorithm": "prompt_optimization", "model": "gpt-4"})


def test_a_missing_configuration_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="there is no configuration file"):
        load_config(tmp_path / "nowhere.yaml")


def test_a_record_of_the_configuration_is_json():
    from agentlightning.config import Config

    config = Config(algorithm="x", reward_function=load_dataset, train_dataset=[1, 2])
    assert json.dumps(describe(config))
