"""Records LangChain and LangGraph agents for agentlightning."""
