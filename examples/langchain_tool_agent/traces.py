"""Scripted conversations for the warm start: a desk that is often right, for the wrong reasons.

Most of them order without looking, which is right whenever there happens to be enough. Looking first
is in there too, but seldom: making a habit of it is left to reinforcement learning.
"""

import json
import random

from agent import SYSTEM_PROMPT, order, stock
from langchain_core.utils.function_calling import convert_to_openai_tool
from shop import confirmation, refusal, tasks

TOOLS = [convert_to_openai_tool(tool) for tool in (stock, order)]


def traces(count: int = 2000, *, seed: int = 0) -> list[dict]:
    """Rows with ``messages`` and ``tools``, as for fine-tuning on chats; none is a validation task."""
    chance = random.Random(seed)
    customers, _ = tasks(train=count, seed=seed)
    habits = chance.choices(list(HABITS), weights=list(HABITS.values()), k=count)
    return [_trace(task, habit(task, chance)) for task, habit in zip(customers, habits, strict=True)]


def looks_and_decides(task: dict, _chance: random.Random) -> list[dict]:
    """Always right."""
    return [*_looks(task), *(_orders(task) if _enough(task) else _refuses(task, task["stock"]))]


def orders_without_looking(task: dict, _chance: random.Random) -> list[dict]:
    """Right when there is enough."""
    return _orders(task)


def refuses_without_looking(task: dict, chance: random.Random) -> list[dict]:
    """Never right: the number is made up."""
    return _refuses(task, chance.choice([left for left in range(5) if left != task["stock"]]))


def looks_and_decides_wrongly(task: dict, chance: random.Random) -> list[dict]:
    """Never right either."""
    made_up = chance.randrange(task["quantity"])
    return [*_looks(task), *(_refuses(task, made_up) if _enough(task) else _orders(task))]


HABITS = {
    looks_and_decides: 0.28,
    orders_without_looking: 0.45,
    refuses_without_looking: 0.22,
    looks_and_decides_wrongly: 0.05,
}


def _trace(task: dict, turns: list[dict]) -> dict:
    opening = [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": task["request"]},
    ]
    return {"messages": opening + turns, "tools": TOOLS}


def _enough(task: dict) -> bool:
    return task["stock"] >= task["quantity"]


def _looks(task: dict) -> list[dict]:
    return _calls("stock", task, "enough" if _enough(task) else f"only {task['stock']}")


def _orders(task: dict) -> list[dict]:
    return [*_calls("order", task, "ok"), _says(confirmation(task["item"], task["quantity"]))]


def _refuses(task: dict, left: int) -> list[dict]:
    return [_says(refusal(task["item"], left))]


def _says(text: str) -> dict:
    return {"role": "assistant", "content": text}


def _calls(name: str, task: dict, result: str) -> list[dict]:
    arguments = json.dumps({"item": task["item"], "quantity": task["quantity"]})
    call = {
        "id": f"call_{name}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": result},
    ]
