"""The agent for those who have none: one call of the run's model on a row of the dataset."""

from __future__ import annotations

from collections.abc import Mapping

from agentlightning.agent.binding import rollout
from agentlightning.errors import AgentError
from agentlightning.llm_api import MESSAGES_FIELD, TEXT_FIELDS, messages_of_row, text_of_row
from agentlightning.recording.emit import emit
from agentlightning.records import JSON, LLM, PromptTemplate, Resources

_SYSTEM_PROMPT = "system_prompt"


def conversation_for(task: JSON, resources: Resources) -> list[dict[str, JSON]]:
    """The messages a row of a dataset asks the model.

    A row's ``messages`` without the reply they may end with, else its ``prompt``, ``question`` or
    ``input``; a row that is plain text is the prompt. The resource ``system_prompt`` takes the place of
    the system message. Its placeholders are filled from the row; one that the row lacks stays text.

    Raises:
        AgentError: the row has none of these.
    """
    messages = _messages_of(task)
    prompt = resources.get(_SYSTEM_PROMPT)
    if prompt is None:
        return messages
    if messages[:1] and messages[0].get("role") == "system":
        messages = messages[1:]
    row = task if isinstance(task, Mapping) else {}
    return [{"role": "system", "content": _system_text(prompt, row)}, *messages]


@rollout
def single_turn(task: JSON, llm: LLM, resources: Resources) -> str:  # noqa: ARG001 - asks for a model
    """Ask the run's model once what a row asks, and return the text of its reply."""
    return emit(conversation_for(task, resources)).text


def _messages_of(task: JSON) -> list[dict[str, JSON]]:
    if (messages := messages_of_row(task)) is not None:
        while messages and messages[-1].get("role") == "assistant":
            messages.pop()
        return messages
    if (text := text_of_row(task)) is not None:
        return [{"role": "user", "content": text}]
    raise AgentError(
        f"the built-in agent needs a row with {MESSAGES_FIELD!r}, or with text as one of "
        f"{', '.join(map(repr, TEXT_FIELDS))}; got "
        f"{sorted(task) if isinstance(task, Mapping) else type(task).__name__}. Rename a column, or "
        "pass an agent"
    )


def _system_text(prompt: object, row: Mapping[str, JSON]) -> str:
    if isinstance(prompt, PromptTemplate):
        return prompt.format(**{name: row.get(name, f"{{{name}}}") for name in prompt.variables})
    return str(getattr(prompt, "value", prompt))
