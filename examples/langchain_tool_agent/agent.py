"""The order desk: an ordinary LangChain agent. Nothing in this file knows that it is being trained."""

import os
from dataclasses import dataclass, field

from langchain.agents import create_agent
from langchain.tools import ToolRuntime, tool
from langchain_openai import ChatOpenAI
from langgraph.errors import GraphRecursionError

SYSTEM_PROMPT = "You run the order desk of a shop."
MAX_STEPS = 12  # model and tool turns together; a confused model calls tools for ever


@dataclass
class Visit:
    """One customer's visit: what is on the shelves, and what has been ordered."""

    shelves: dict[str, int]
    orders: list[dict] = field(default_factory=list)


@tool
def stock(item: str, quantity: int, runtime: ToolRuntime[Visit]) -> str:
    """Tell whether there is enough of an item."""
    there = runtime.context.shelves.get(item, 0)
    return "enough" if there >= quantity else f"only {there}"


@tool
def order(item: str, quantity: int, runtime: ToolRuntime[Visit]) -> str:
    """Order an item for the customer."""
    runtime.context.orders.append({"item": item, "quantity": quantity})
    return "ok"


desk = create_agent(
    ChatOpenAI(
        model="gpt-4.1-mini",
        temperature=float(os.environ.get("DESK_TEMPERATURE", "0")),
        # The key only matters when this agent talks to OpenAI; without one it can still be imported.
        api_key=os.environ.get("OPENAI_API_KEY", "none"),
    ),
    tools=[stock, order],
    system_prompt=SYSTEM_PROMPT,
    context_schema=Visit,
    name="order_desk",
)


def agent(task: dict) -> dict:
    """Serve one customer: what was said in the end, and what was ordered."""
    visit = Visit(shelves={task["item"]: task["stock"]})
    try:
        state = desk.invoke(
            {"messages": [{"role": "user", "content": task["request"]}]},
            context=visit,
            config={"recursion_limit": MAX_STEPS},
        )
        answer = state["messages"][-1].text
    except GraphRecursionError:
        answer = ""  # it never came to an answer; the order book still counts
    return {"answer": answer, "orders": visit.orders}
