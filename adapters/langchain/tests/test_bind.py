"""LangChain's runnables as functions of a task."""

import asyncio
import inspect
import json

import pytest
from agentlightning_langchain.adapter import LangChainAdapter
from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langgraph.graph import START, MessagesState, StateGraph


@tool
async def fetch(url: str) -> str:
    """Fetch, as tools of an MCP server do: only in an event loop."""
    return f"content of {url}"


@tool
def look() -> str:
    """Look."""
    return "seen"


def last_user_message(server):
    return server.requests[-1].body["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("hello", "hello"),
        ({"question": "how many?", "answer": "2"}, "how many?"),
        ({"input": "go"}, "go"),
        ({"messages": [{"role": "user", "content": "hi"}]}, "hi"),
        ({"messages": None, "prompt": "as datasets fills it"}, "as datasets fills it"),
        ({"a": 1}, '{"a": 1}'),
        ([1, 2], "[1, 2]"),
    ],
)
def test_a_graph_with_messages_gets_the_task_as_user_message(server, chat, task, message):
    bound = LangChainAdapter().bind(create_agent(chat))

    assert bound(task) == "ok"
    assert last_user_message(server) == message


def test_other_runnables_get_the_task_as_it_is(server, chat):
    chain = ChatPromptTemplate.from_template("What is {a}?") | chat

    assert LangChainAdapter().bind(chain)({"a": "b"}) == "ok"
    assert last_user_message(server) == "What is b?"
    assert LangChainAdapter().bind(RunnableLambda(lambda task: {"got": task}))(3) == {"got": 3}


def test_content_in_blocks_is_given_as_text():
    blocks = [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "yes"}]
    reply = RunnableLambda(
        lambda _: {"messages": [("ai", "no"), type("Message", (), {"content": blocks})]}
    )

    assert LangChainAdapter().bind(reply)("task") == "yes"


def test_an_agent_with_an_async_tool_is_awaited(chat):
    bound = LangChainAdapter().bind(create_agent(chat, [fetch, look]))

    assert inspect.iscoroutinefunction(bound)
    script = f"[[tool:fetch:{json.dumps({'url': 'u'})};;say:done]]"
    assert asyncio.run(bound(script)) == "done"


def test_an_async_node_is_found_in_an_inner_graph(chat):
    async def node(state):
        return {}

    inner = StateGraph(MessagesState).add_node(node).add_edge(START, "node").compile()
    outer = StateGraph(MessagesState).add_node("inner", inner).add_edge(START, "inner").compile()

    assert inspect.iscoroutinefunction(LangChainAdapter().bind(outer))
    assert inspect.iscoroutinefunction(LangChainAdapter().bind(RunnableLambda(node)))


def test_the_way_to_run_can_be_chosen(chat):
    agent = create_agent(chat, [look])

    assert not inspect.iscoroutinefunction(LangChainAdapter().bind(agent))
    assert inspect.iscoroutinefunction(LangChainAdapter(run_async=True).bind(agent))
    assert not inspect.iscoroutinefunction(
        LangChainAdapter(run_async=False).bind(create_agent(chat, [fetch]))
    )
