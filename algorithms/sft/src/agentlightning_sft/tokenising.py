"""From a conversation to token ids and the mask of what is trained, by the model's chat template."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any

import jinja2
from agentlightning.errors import ConfigError
from agentlightning.records import JSON
from trl.chat_template_utils import get_training_chat_template, has_generation_markers

from agentlightning_sft.examples import Example
from agentlightning_sft.messages import BadChat, Message

logger = logging.getLogger("agentlightning.sft")


class ChatTokeniser:
    """Tokenises whole conversations.

    Args:
        tokenizer: the model's.
        assistant_only: mask all but what the assistant says.
        model: how messages name it.

    Raises:
        ConfigError: the model has no chat template, or none that marks what the assistant says.
    """

    def __init__(self, tokenizer: Any, *, assistant_only: bool, model: str) -> None:
        self._tokenizer = tokenizer
        self._assistant_only = assistant_only
        self._template = _template(tokenizer, assistant_only=assistant_only, model=model)

    def example(
        self,
        messages: Sequence[Message],
        tools: Sequence[JSON] | None,
        *,
        replies: Collection[int] | None = None,
    ) -> Example:
        """One conversation.

        Args:
            messages: ready for the template.
            tools: schemas of the tools, if any.
            replies: places of the assistant's messages to train on; None for all of them.

        Raises:
            BadChat: the template refuses it, or nothing in it is to be trained on.
        """
        try:
            made = self._tokenizer.apply_chat_template(
                list(messages),
                tools=list(tools) if tools else None,
                chat_template=self._template,
                return_dict=True,
                return_assistant_tokens_mask=self._assistant_only,
            )
        except (jinja2.TemplateError, TypeError, ValueError) as error:
            raise BadChat(f"the model's chat template refuses the messages: {error}") from error
        ids = made["input_ids"]
        if not self._assistant_only:
            return Example(ids, bytes([1]) * len(ids), exact=False)
        mask = bytes(made["assistant_masks"])
        if replies is not None:
            mask = _only(mask, messages, replies)
        if not any(mask):
            raise BadChat("nothing in it is said by the assistant, so there is nothing to learn")
        return Example(ids, mask, exact=False)


def _template(tokenizer: Any, *, assistant_only: bool, model: str) -> str | None:
    """The template to tokenise with; None for the tokenizer's own."""
    if tokenizer.chat_template is None:
        raise ConfigError(
            f"model: {model!r} has no chat template, so conversations cannot be tokenised; take its "
            "instruction-tuned sibling, or set chat_template in its tokenizer_config.json"
        )
    if not assistant_only or has_generation_markers(tokenizer.chat_template):
        return None
    try:
        template = get_training_chat_template(tokenizer)
    except ValueError as error:
        raise ConfigError(
            f"model: the chat template of {model!r} has no {{% generation %}} marks around what the "
            "assistant says, so it cannot be told apart. Put {% generation %} and {% endgeneration %} "
            "around it in the template, or set assistant_only: false to train on every token"
        ) from error
    logger.info("the chat template of %s marks no replies; its twin in TRL, which does, is used", model)
    return str(template)


def _only(mask: bytes, messages: Sequence[Message], replies: Collection[int]) -> bytes:
    """Clear the mask of the assistant's messages that are not in ``replies``."""
    said = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    if set(said) <= set(replies):
        return mask
    stretches = _stretches(mask)
    if len(stretches) != len(said):
        raise BadChat(
            f"the chat template marks {len(stretches)} stretches for {len(said)} messages of the "
            "assistant, so they cannot be told apart"
        )
    kept = bytearray(len(mask))
    for place, (start, end) in zip(said, stretches, strict=True):
        if place in replies:
            kept[start:end] = mask[start:end]
    return bytes(kept)


def _stretches(mask: bytes) -> list[tuple[int, int]]:
    found, start = [], None
    for position, trained in enumerate((*mask, 0)):
        if trained and start is None:
            start = position
        elif not trained and start is not None:
            found.append((start, position))
            start = None
    return found
