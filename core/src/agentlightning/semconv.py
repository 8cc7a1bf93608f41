"""Attribute names of spans: OpenTelemetry's GenAI names where one exists, ours elsewhere."""

from __future__ import annotations

from typing import Final

# OpenTelemetry, generative AI conventions.
OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
AGENT_NAME: Final = "gen_ai.agent.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"

# OpenTelemetry, exceptions.
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
EXCEPTION_STACKTRACE: Final = "exception.stacktrace"

# Ours.
ROLLOUT_ID: Final = "agentlightning.rollout_id"  # on spans of OTLP, which may come from anywhere
ATTEMPT: Final = "agentlightning.attempt"
KIND: Final = "agentlightning.kind"  # and what follows: only on spans that go out over OTLP
RUN_ID: Final = "agentlightning.run_id"
RUN_NAME: Final = "agentlightning.run_name"
MODE: Final = "agentlightning.rollout.mode"
STATUS: Final = "agentlightning.rollout.status"
SEQ: Final = "agentlightning.call.seq"
MODEL_VERSION: Final = "agentlightning.call.model_version"
RETRIES: Final = "agentlightning.call.retries"
REWARD_NAME: Final = "agentlightning.reward.name"
REWARD_VALUE: Final = "agentlightning.reward.value"
REWARD_AGENT: Final = "agentlightning.reward.agent"
REWARD_SPAN: Final = "agentlightning.reward.span_id"
REWARD_VERSION: Final = "agentlightning.reward.version"
REWARD_SOURCE: Final = "agentlightning.reward.source"
OVERRULED: Final = "agentlightning.overruled"  # + ".temperature" …: what the agent asked for
MESSAGE_BODY: Final = "agentlightning.message"
OBJECT_BODY: Final = "agentlightning.object"
HANDOFF_TO: Final = "agentlightning.handoff.to"  # the agent a tool handed the work to
OPERATION_INPUT: Final = "agentlightning.operation.input"
OPERATION_OUTPUT: Final = "agentlightning.operation.output"
ROUTE: Final = "agentlightning.route"  # "routed", "passthrough: why" or "unrouted"
REFUSED_CALLS: Final = "agentlightning.refused_calls"  # of an attempt, by strict mode
UNFINISHED: Final = "agentlightning.unfinished"  # true on a span that nobody ended

# Headers the seam sends to our endpoint, so that the endpoint records under the seam's span.
HEADER_SPAN: Final = "x-agentlightning-span-id"
HEADER_PARENT: Final = "x-agentlightning-parent-id"
HEADER_AGENT: Final = "x-agentlightning-agent"
HEADER_SEQ: Final = "x-agentlightning-seq"
HEADER_RETRY: Final = "x-stainless-retry-count"
