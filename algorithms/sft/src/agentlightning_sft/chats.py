"""Examples from a given dataset of chats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from agentlightning.errors import DatasetError
from agentlightning.records import JSON

from agentlightning_sft.examples import Examples
from agentlightning_sft.messages import BadChat, Message, for_template, for_template_tools
from agentlightning_sft.tokenising import ChatTokeniser

_EXPECTED = (
    'a chat {"messages": […], "tools": […]} that the assistant takes part in, or a pair '
    '{"prompt": …, "completion": …}'
)


def is_chat(row: JSON) -> bool:
    """Whether a row says what the assistant ought to say, so that it can be learned or scored."""
    if not isinstance(row, Mapping):
        return False
    if row.get("completion") is not None and row.get("prompt") is not None:
        return True
    messages = row.get("messages")
    return isinstance(messages, Sequence) and any(
        isinstance(message, Mapping) and message.get("role") == "assistant" for message in messages
    )


def are_chats(rows: Sequence[JSON], name: str) -> bool:
    """Whether rows are chats to be scored; False for tasks of the agent, and for no rows.

    Raises:
        DatasetError: some are chats and some are tasks.
    """
    chats = [is_chat(row) for row in rows]
    if any(chats) and not all(chats):
        raise DatasetError(
            f"{name} row {chats.index(False)} is a task and row {chats.index(True)} a chat; "
            "expected all of one kind: tasks for the agent, or chats whose loss is measured"
        )
    return any(chats)


def check_chats(rows: Sequence[JSON], name: str) -> None:
    """Refuse rows that are no chats; whether the model's template can show them is told later.

    Raises:
        DatasetError: a row is something else; the message names it.
    """
    for number, row in enumerate(rows):
        with _named(name, number):
            _conversation(row)


def chat_examples(rows: Sequence[JSON], tokenise: ChatTokeniser, name: str) -> Examples:
    """One example a row, in their order.

    Args:
        rows: chats with ``messages`` and maybe ``tools``, or pairs of ``prompt`` and ``completion``,
            each text or messages.
        tokenise: makes ids of them.
        name: what the dataset is called in messages.

    Raises:
        DatasetError: a row is something else, or cannot be trained on; the message names it.
    """
    examples = Examples()
    for number, row in enumerate(rows):
        with _named(name, number):
            messages, replies = _conversation(row)
            tools = for_template_tools(row.get("tools"))
            examples.items.append(tokenise.example(messages, tools, replies=replies))
    return examples


@contextmanager
def _named(name: str, number: int) -> Iterator[None]:
    """Say which row of which dataset it is that cannot be used."""
    try:
        yield
    except BadChat as error:
        raise DatasetError(f"{name} row {number}: {error}") from error


def _conversation(row: JSON) -> tuple[list[Message], range | None]:
    """A row's messages, and which to learn: None for all of the assistant's, or the completion."""
    if not isinstance(row, Mapping):
        raise BadChat(f"got a {type(row).__name__}; expected {_EXPECTED}")
    if row.get("messages") is not None:
        return for_template(row["messages"]), None
    if row.get("prompt") is None or row.get("completion") is None:
        keys = ", ".join(map(str, row)) or "none"
        raise BadChat(f"has the keys {keys}; expected {_EXPECTED}")
    prompt, completion = _turns(row["prompt"], "user"), _turns(row["completion"], "assistant")
    messages = for_template([*prompt, *completion])
    return messages, range(len(prompt), len(messages))


def _turns(said: JSON, role: str) -> list[JSON]:
    if isinstance(said, str):
        return [{"role": role, "content": said}]
    if not isinstance(said, Sequence):
        raise BadChat(f"expected text or messages, got a {type(said).__name__}")
    return list(said)
