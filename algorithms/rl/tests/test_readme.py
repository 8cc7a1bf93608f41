"""The README says what there is: every key with its default, every metric, an example that is valid."""

import ast
import re
from pathlib import Path

import msgspec
import pytest
from agentlightning.config import Config
from agentlightning_rl.algorithm import ReinforcementLearning
from agentlightning_rl.config import RLConfig

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def rows(title):
    """The cells of the table under a heading."""
    section = README.split(f"## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def value(text):
    try:
        return ast.literal_eval(text)
    except ValueError:
        return text


def test_every_key_stands_in_the_table_with_its_default():
    told = {key.strip("`"): value(default) for key, default, _ in rows("Keys")}
    assert told == {field.name: field.default for field in msgspec.structs.fields(RLConfig)}


def test_the_example_uses_keys_that_exist():
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(code.splitlines()) <= 20
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    (made,) = [call for call in calls if getattr(call.func, "attr", "") == "Trainer"]
    known = {field.name for kind in (Config, RLConfig) for field in msgspec.structs.fields(kind)}
    assert {keyword.arg for keyword in made.keywords} <= known


@pytest.fixture
def logged(context):
    ctx = context()
    options = RLConfig(steps=1, batch_size=16, learning_rate=1e-3, beta=0.1, level="trajectory")
    ReinforcementLearning(options).run(ctx)
    return ctx.metrics[1].keys()


def test_the_metrics_of_a_step_are_those_of_the_table(logged):
    told = {name for names, _ in rows("Metrics") for name in re.findall(r"`([^`]+)`", names)}
    of_steps = {name for name in told if not name.startswith("val/") and "…" not in name}
    assert logged == of_steps
