"""The model protocols: their shapes, and building the record of a call. Shared by seam and endpoint."""

from agentlightning.llm_api.calls import llm_span, read_call
from agentlightning.llm_api.conversation import conversation, request_messages
from agentlightning.llm_api.headers import CallHeaders, read_call_headers, write_call_headers
from agentlightning.llm_api.paths import api_of_path, base_of_url, origin_of, url_for, within
from agentlightning.llm_api.scrub import (
    error_line,
    error_message,
    scrub,
    scrub_body,
    scrub_text,
)

__all__ = [
    "CallHeaders",
    "api_of_path",
    "base_of_url",
    "conversation",
    "error_line",
    "error_message",
    "llm_span",
    "origin_of",
    "read_call",
    "read_call_headers",
    "request_messages",
    "scrub",
    "scrub_body",
    "scrub_text",
    "url_for",
    "within",
    "write_call_headers",
]
