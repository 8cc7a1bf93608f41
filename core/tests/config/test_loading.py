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


def test_a_record_of_the_configuration_holds_no_secret():
    from agentlightning.config import Config, RunnersConfig

    runners = RunnersConfig(environment={"OPENAI_API_KEY": "sk-of-the-user", "MODE": "fast"})
    config = Config(algorithm="x", runners=runners, engine={"name": "e", "api_key": "sk-engine"})
    record = json.dumps(describe(config))
    assert "sk-" not in record
    assert "OPENAI_API_KEY" in record


def test_a_record_of_the_configuration_holds_no_password_of_the_store(monkeypatch):
    url = "sqlite://someone:geheim@host/db"
    monkeypatch.setenv("AGENTLIGHTNING_STORE", url)
    config = load_config({"algorithm": "nothing", "model": "owner/name"})
    assert config.store == url
    assert "geheim" not in json.dumps(describe(config))


@pytest.mark.parametrize("count", [0, 3])
def test_a_number_of_runners_is_short_for_their_count(count):
    keys = {"algorithm": "nothing", "model": "owner/name", "store": "sqlite:///x.db"}
    assert load_config({**keys, "runners": count}).runners.count == count
    assert load_config(keys, runners=count).runners.executor == "threads"


@pytest.mark.parametrize(
    ("host", "url"),
    [("192.0.2.7", None), ("0.0.0.0", "http://trainer.example:8000"), ("trainer.example", None)],
)
def test_an_endpoint_that_other_machines_reach_is_warned_about(host, url):
    keys = {"algorithm": "nothing", "model": "owner/name"}
    given = {"host": host, "port": 8000, "url": url}
    (warning,) = load_config(keys, endpoint=given).warnings
    assert warning.startswith("endpoint.host: ")
    assert host in warning


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_an_endpoint_on_this_machine_is_not(host):
    keys = {"algorithm": "nothing", "model": "owner/name"}
    assert load_config(keys, endpoint={"host": host}).warnings == ()


# --- mistakes that are told from the configuration alone --------------------------------------


@pytest.fixture
def refused(local_model):
    """The one line that a configuration with these keys is answered with."""

    def refuse(**keys):
        with pytest.raises(ConfigError) as refusal:
            load_config({"algorithm": "nothing", "model": local_model, **keys})
        message = str(refusal.value)
        assert "\n" not in message
        return message

    return refuse


@pytest.fixture(autouse=True)
def nothing():
    """An algorithm that does nothing, as a program adds one."""
    import agentlightning as agl

    @agl.algorithm("nothing")
    def do_nothing(ctx, rounds: int = 1):
        return {}


@pytest.mark.parametrize(
    ("keys", "given", "nearest"),
    [
        ({"algorithm": "nothng"}, '"nothng"', 'did you mean "nothing"?'),
        ({"rouns": 3}, "rouns: unknown key", "did you mean 'rounds'?"),
        ({"runners": {"cuont": 3}}, "runners.cuont: unknown key", "did you mean 'count'?"),
        ({"rollout": {"timeout": 3}}, "rollout.timeout: unknown key", "did you mean 'timeout_s'?"),
        ({"budget": {"rollout": 3}}, "budget.rollout: unknown key", "did you mean 'rollouts'?"),
        ({"store": "memry://"}, 'store: no store backend opens "memry://"', 'did you mean "memory"?'),
        (
            {"runners": {"executor": "thread"}},
            'runners.executor: no executor is called "thread"',
            'did you mean "threads"?',
        ),
        (
            {"prompts": {"sytem": "solver"}, "resources": {"system": "Answer."}},
            "prompts.sytem: no resource",
            "did you mean 'system'?",
        ),
    ],
)
def test_a_name_that_is_unknown_is_answered_with_the_known_and_the_nearest(
    refused, keys, given, nearest
):
    message = refused(**keys)
    assert given in message
    assert nearest in message
    assert "nown: " in message or "there are: " in message


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"adapters": {"langchian": {}}}, 'adapters: no adapter is called "langchian"'),
        ({"engine": "transformer"}, 'engine: no engine is called "transformer"'),
        ({"engine": "http://localhost:8000/v1"}, "is an address"),
        ({"engine": {"max_batch": 3}}, "engine: options without a name"),
        ({"store": "runs.db"}, 'store: "runs.db" is not the URL of a store'),
        ({"runners": {"count": -1}}, "runners: count is -1; expected at least 1, or 0"),
        ({"runners": -2}, "runners: count is -2"),
        ({"runners": True}, "runners: expected `mapping`, got `bool`"),
        ({"runners": 0, "store": "memory://"}, "runners.count: 0 leaves the work to other processes"),
        ({"endpoint": {"prt": 80}}, "endpoint.prt: unknown key"),
        ({"endpoint": {"port": 70000}}, "endpoint: port is 70000; expected 0"),
        ({"endpoint": {"host": "0.0.0.0"}}, "endpoint: host '0.0.0.0' means all addresses"),
        ({"endpoint": {"url": "trainer:80", "port": 80}}, "endpoint: url is 'trainer:80'"),
        ({"endpoint": {"url": "http://trainer:80"}}, "endpoint: url says where runners connect to"),
        ({"rollout": {"timeout_s": 0}}, "rollout.timeout_s is 0"),
        ({"rollout": {"max_attempts": 0}}, "rollout.max_attempts is 0; expected at least 1"),
        ({"budget": {"rollouts": 0}}, "budget: rollouts is 0; expected more than 0"),
        ({"seed": -1}, "seed: -1 is out of range"),
        ({"seed": "one"}, "seed: expected `int`, got `str`"),
        ({"trained_agents": []}, "trained_agents: names no agent"),
        ({"trained_agents": "solver"}, "trained_agents: expected `list | nothing`, got `str`"),
        ({"base_url": "http://localhost:1"}, "base_url: says where a hosted model is asked"),
        ({"prompts": {"p": "solver"}}, "there are: none"),
        ({"prompts": {"p": "a"}, "resources": {"p": 3}}, "prompts.p: the resource is a int"),
        ({"run_dir": __file__}, "run_dir: "),
    ],
)
def test_a_value_that_cannot_work_is_refused(refused, keys, expected):
    assert expected in refused(**keys)


def test_a_resource_that_the_algorithm_would_replace_is_refused(refused):
    import agentlightning as agl

    @agl.algorithm("server")
    def serve(ctx, serves: tuple[str, ...] = ("llm",)):
        return {}

    assert "resources.llm" in refused(algorithm="server", resources={"llm": "mine"})


def test_a_configuration_file_that_is_no_yaml_is_one_line(tmp_path):
    broken = tmp_path / "broken.yaml"
    broken.write_text("algorithm: rl\n\tmodel: x\n")
    with pytest.raises(ConfigError, match="cannot be read as YAML") as refusal:
        load_config(broken)
    assert "\n" not in str(refusal.value)


def test_an_empty_configuration_file_says_so(tmp_path):
    (tmp_path / "empty.yaml").write_text("# later\n")
    with pytest.raises(ConfigError, match="is empty"):
        load_config(tmp_path / "empty.yaml")
