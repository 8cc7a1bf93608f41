"""The four protocols agents speak to the endpoint, each told in terms of what an engine answers."""

from agentlightning.endpoint.dialects.base import Dialect, Events
from agentlightning.endpoint.dialects.chat import ChatDialect
from agentlightning.endpoint.dialects.completions import CompletionsDialect
from agentlightning.endpoint.dialects.messages import MessagesDialect
from agentlightning.endpoint.dialects.responses import ResponsesDialect
from agentlightning.records import Api

DIALECTS: dict[Api, type[Dialect]] = {
    dialect.api: dialect
    for dialect in (ChatDialect, CompletionsDialect, ResponsesDialect, MessagesDialect)
}

__all__ = ["DIALECTS", "Dialect", "Events"]
