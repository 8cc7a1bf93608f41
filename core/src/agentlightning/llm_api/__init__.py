"""The model protocols: their shapes, and building the record of a call. Shared by seam and endpoint."""

from agentlightning.llm_api.calls import llm_span, read_call
from agentlightning.llm_api.conversation import conversation, request_messages
from agentlightning.llm_api.headers import CallHeaders, read_call_headers, write_call_headers
from agentlightning.llm_api.paths import api_of_path, base_of_url, origin_of, url_for, within
from agentlightning.llm_api.rows import MESSAGES_FIELD, TEXT_FIELDS, messages_of_row, text_of_row
from agentlightning.llm_api.scrub import (
    as_name,
    error_line,
    error_message,
    scrub,
    scrub_body,
    scrub_text,
)
from agentlightning.llm_api.secrets import remember_secrets
from agentlightning.llm_api.templates import BadConversation, template_messages, template_tools

__all__ = [
    "MESSAGES_FIELD",
    "TEXT_FIELDS",
    "BadConversation",
    "CallHeaders",
    "api_of_path",
    "as_name",
    "base_of_url",
    "conversation",
    "error_line",
    "error_message",
    "llm_span",
    "messages_of_row",
    "origin_of",
    "read_call",
    "read_call_headers",
    "remember_secrets",
    "request_messages",
    "scrub",
    "scrub_body",
    "scrub_text",
    "template_messages",
    "template_tools",
    "text_of_row",
    "url_for",
    "within",
    "write_call_headers",
]
