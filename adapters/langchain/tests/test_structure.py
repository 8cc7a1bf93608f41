"""What LangChain and LangGraph runs look like once recorded, beyond what every adapter shows."""

import asyncio

import openai
import pytest
from agentlightning import semconv
from agentlightning.recording.tracer import Tracer
from agentlightning_langchain.handler import shared_handler
from agentlightning_langchain.names import agent_of
from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tools import ToolException
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

pytestmark = pytest.mark.usefixtures("adapter")


def asked(text):
    return {"messages": [("user", text)]}


def agents_of_calls(spans):
    return [span.call.agent for span in spans if span.call]


def tree(spans):
    """(name, name of the parent) of every span but the attempt's own."""
    names = {span.span_id: span.name for span in spans if span.parent_id}
    return [
        (span.name, names.get(span.parent_id)) for span in spans if span.parent_id and not span.call
    ]


def two_nodes(chat):
    def planner(state):
        return {"messages": [chat.invoke(state["messages"])]}

    def writer(state):
        return {"messages": [chat.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node(planner)
    graph.add_node(writer)
    graph.add_edge(START, "planner")
    graph.add_edge("planner", "writer")
    graph.add_edge("writer", END)
    return graph.compile()


def test_nodes_of_a_graph_are_its_agents(recorded, chat):
    graph = two_nodes(chat)

    with recorded.attempt() as context:
        graph.invoke(asked("hello"))

    spans = recorded.spans(context)
    assert agents_of_calls(spans) == ["planner", "writer"]
    assert tree(spans) == [("planner", None), ("writer", None)]


def test_an_agent_used_as_a_tool_lies_below_the_tool(recorded, chat):
    bob = create_agent(chat, name="bob")

    @tool
    def ask_bob(question: str) -> str:
        """Ask bob."""
        return bob.invoke(asked(question))["messages"][-1].content

    boss = create_agent(chat, [ask_bob], name="boss")

    with recorded.attempt() as context:
        boss.invoke(asked('[[tool:ask_bob:{"question": "yes?"};;say:done]]'))

    spans = recorded.spans(context)
    assert agents_of_calls(spans) == ["boss", "bob", "boss"]
    assert tree(spans) == [("bob", "ask_bob"), ("ask_bob", "boss"), ("boss", None)]


def test_an_agent_without_a_name_goes_by_its_node(recorded, chat):
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    agent = create_agent(chat, [look])

    with recorded.attempt() as context:
        agent.invoke(asked("[[tool:look:{};;say:done]]"))

    spans = recorded.spans(context)
    assert agents_of_calls(spans) == ["model", "model"]
    assert tree(spans) == [("model", None), ("look", None), ("model", None)]


def test_a_call_that_a_tool_makes_itself_is_its_agents(recorded, chat, server):
    @tool
    def think() -> str:
        """Ask a model without LangChain."""
        client = openai.OpenAI(base_url=server.url, api_key="unused", max_retries=0)
        messages = [{"role": "user", "content": "hm"}]
        return (
            client.chat.completions.create(model="other", messages=messages).choices[0].message.content
        )

    agent = create_agent(chat, [think], name="thinker")

    with recorded.attempt() as context:
        agent.invoke(asked("[[tool:think:{};;say:done]]"))

    spans = recorded.spans(context)
    [own] = [span for span in spans if span.call and span.call.model == "other"]
    [tool_span] = [span for span in spans if span.kind == "tool"]
    assert (own.call.agent, own.parent_id) == ("thinker", tool_span.span_id)


def test_after_an_agent_is_done_calls_are_nobodys(recorded, chat):
    agent = create_agent(chat, name="alice")

    with recorded.attempt() as context:
        agent.invoke(asked("hello"))
        chat.invoke("hello")

    assert agents_of_calls(recorded.spans(context)) == ["alice", None]


def test_a_tool_that_reports_its_error_as_a_result_failed(recorded, chat):
    @tool
    def shaky() -> str:
        """Fail."""
        raise ToolException("out of order")

    shaky.handle_tool_error = True
    agent = create_agent(chat, [shaky], name="alice")

    with recorded.attempt() as context:
        agent.invoke(asked("[[tool:shaky:{};;say:done]]"))

    [span] = recorded.spans(context, "tool")
    assert span.status == "error"
    assert "out of order" in span.attributes[semconv.TOOL_RESULT]


def test_the_call_id_joins_a_tool_to_the_call_that_asked_for_it(recorded, chat):
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    agent = create_agent(chat, [look], name="alice")

    with recorded.attempt() as context:
        agent.invoke(asked("[[tool:look:{};;say:done]]"))

    spans = recorded.spans(context)
    [span] = [span for span in spans if span.kind == "tool"]
    first = next(span.call for span in spans if span.call)
    asked_for = first.choices[0].message["tool_calls"][0]["id"]
    assert span.attributes[semconv.TOOL_CALL_ID] == asked_for


def test_a_stream_that_nobody_reads_to_its_end_is_no_error_of_the_agent(recorded, chat):
    agent = create_agent(chat, name="alice")

    with recorded.attempt() as context:
        stream = agent.stream(asked("[[say:a long story]]"), stream_mode="messages")
        next(stream)
        stream.close()
        assert not context.life.open_spans

    [span] = [span for span in recorded.spans(context, "agent") if span.name == "alice"]
    assert span.status == "ok"


def test_an_interrupt_is_no_error(recorded, chat):
    def ask_a_person(state):
        return {"messages": [("user", interrupt("may I?"))]}

    graph = StateGraph(MessagesState)
    graph.add_node(ask_a_person)
    graph.add_edge(START, "ask_a_person")
    compiled = graph.compile(checkpointer=InMemorySaver())

    with recorded.attempt() as context:
        compiled.invoke(asked("hello"), {"configurable": {"thread_id": "1"}})

    assert {span.status for span in recorded.spans(context)} == {"ok"}


def test_the_users_own_callbacks_see_what_they_always_saw(recorded, chat):
    class Mine(BaseCallbackHandler):
        def __init__(self):
            self.seen = []

        def on_chat_model_start(self, serialized, messages, **kwargs):
            self.seen.append("model")

        def on_chain_start(self, serialized, inputs, **kwargs):
            self.seen.append("chain")

    mine, agent = Mine(), create_agent(chat, name="alice")

    with recorded.attempt() as context:
        agent.invoke(asked("hello"), {"callbacks": [mine]})

    assert mine.seen == ["chain", "chain", "model"]
    assert agents_of_calls(recorded.spans(context)) == ["alice"]


def test_nothing_is_kept_of_runs_that_are_over(recorded, chat, server):
    agent = create_agent(chat, name="alice")

    with recorded.attempt():
        agent.invoke(asked("hello"))
        asyncio.run(agent.ainvoke(asked("hello")))
        with pytest.raises(openai.APIError):
            agent.invoke(asked("FAIL500"))

    assert shared_handler()._runs == {}


def test_a_tracer_finds_the_adapter_by_itself(memory_store, chat):
    agent = create_agent(chat, name="alice")

    with Tracer(memory_store).trace(agent) as trace:
        agent.invoke(asked("hello"))

    assert agents_of_calls(trace.spans()) == ["alice"]


@pytest.mark.parametrize(
    ("metadata", "graph", "agent"),
    [
        (None, None, None),
        ({}, "RunnableSequence", None),
        ({"lc_agent_name": "alice", "langgraph_checkpoint_ns": "node:1|model:2"}, "LangGraph", "alice"),
        ({"langgraph_checkpoint_ns": "alice:1|agent:2", "langgraph_node": "agent"}, "team", "alice"),
        ({"langgraph_checkpoint_ns": "agent:1", "langgraph_node": "agent"}, "alice", "alice"),
        ({"langgraph_checkpoint_ns": "model:1", "langgraph_node": "model"}, "LangGraph", "model"),
        ({"langgraph_checkpoint_ns": "tools:1|model:2", "langgraph_node": "model"}, None, "model"),
        ({"langgraph_checkpoint_ns": "tools:1", "langgraph_node": "tools"}, "alice", "alice"),
        ({"langgraph_checkpoint_ns": "tools:1", "langgraph_node": "tools"}, "LangGraph", None),
        ({"langgraph_node": "writer"}, "team", "writer"),
    ],
)
def test_names_are_read_from_what_each_version_tells(metadata, graph, agent):
    assert agent_of(metadata, graph) == agent
