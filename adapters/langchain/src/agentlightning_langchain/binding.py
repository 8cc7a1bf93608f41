"""A LangChain agent as a function of a task."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agentlightning.llm_api import messages_of_row, text_of_row
from agentlightning.records import JSON


def bind_runnable(agent: object, *, run_async: bool | None) -> Callable[[JSON], Any] | None:
    """``agent`` as ``task -> output``, or None if it is no runnable of LangChain."""
    from langchain_core.runnables import Runnable

    if not isinstance(agent, Runnable):
        return None
    prepare = _as_messages if _takes_messages(agent) else _as_it_is
    if run_async if run_async is not None else _is_async_only(agent):

        async def run_in_loop(task: JSON) -> JSON:
            return output_of(await agent.ainvoke(prepare(task)))

        return run_in_loop
    return lambda task: output_of(agent.invoke(prepare(task)))


def output_of(result: Any) -> Any:
    """The text of the last message of a result that has messages; any other result as it is."""
    if isinstance(result, Mapping) and result.get("messages"):
        return output_of(result["messages"][-1])
    content = getattr(result, "content", None)
    if content is None:
        return result
    return content if isinstance(content, str) else _text_of_blocks(content)


def _text_of_blocks(content: Iterable[Any]) -> str:
    texts = (block if isinstance(block, str) else block.get("text", "") for block in content)
    return "".join(texts)


def _as_it_is(task: JSON) -> JSON:
    return task


def _as_messages(task: JSON) -> dict[str, JSON]:
    """The graph's input: a row that has messages as it is, else the row's text as user message."""
    if isinstance(task, Mapping) and messages_of_row(task) is not None:
        return dict(task)
    text = text_of_row(task)
    if text is None:
        text = json.dumps(task, ensure_ascii=False)
    return {"messages": [{"role": "user", "content": text}]}


def _takes_messages(agent: Any) -> bool:
    """Whether it is a graph whose state has messages."""
    return "messages" in getattr(agent, "channels", ())


def _is_async_only(runnable: Any) -> bool:
    """Whether it, or a node or tool in it, can only be awaited; tools of an MCP server are such."""
    if _has_coroutine_alone(runnable, "func", "afunc"):
        return True
    tools = getattr(runnable, "tools_by_name", {}).values()
    if any(_has_coroutine_alone(tool, "func", "coroutine") for tool in tools):
        return True
    nodes = getattr(runnable, "nodes", None)
    inner = nodes.values() if isinstance(nodes, Mapping) else ()
    return any(_is_async_only(getattr(node, "bound", None)) for node in inner)


def _has_coroutine_alone(owner: Any, plain: str, coroutine: str) -> bool:
    return getattr(owner, coroutine, None) is not None and getattr(owner, plain, None) is None
