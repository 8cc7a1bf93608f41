"""LangChain's agents in every scenario an adapter has to pass."""

from agentlightning.testing.adapter import AdapterConformance
from agentlightning_langchain.adapter import LangChainAdapter
from langchain.agents import create_agent
from langchain.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command


def chat_model(base_url):
    return ChatOpenAI(model="m", base_url=base_url, api_key="unused", max_retries=0)


def asked(text):
    return {"messages": [("user", text)]}


class TestLangChainAdapter(AdapterConformance):
    def adapter(self):
        return LangChainAdapter()

    def build(self, base_url, *, name, instructions, tools):
        return create_agent(
            chat_model(base_url), tools=list(tools), system_prompt=instructions, name=name
        )

    def run(self, agent, text):
        return agent.invoke(asked(text))["messages"][-1].content

    async def arun(self, agent, text):
        return (await agent.ainvoke(asked(text)))["messages"][-1].content

    def stream(self, agent, text):
        for message, _ in agent.stream(asked(text), stream_mode="messages"):
            yield message.content

    def build_handoff(self, base_url, *, first, second):
        @tool
        def transfer() -> Command:
            """Hand the work over."""
            return Command(goto=second, graph=Command.PARENT)

        graph = StateGraph(MessagesState)
        graph.add_node(first, self.build(base_url, name=first, instructions="", tools=[transfer]))
        graph.add_node(second, self.build(base_url, name=second, instructions="", tools=[]))
        graph.add_edge(START, first)
        return graph.compile()
