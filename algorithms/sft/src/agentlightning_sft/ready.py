"""What must be in place before a run is made."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from agentlightning.records import JSON

from agentlightning_sft.chats import are_chats
from agentlightning_sft.model import check_model
from agentlightning_sft.trackers import check_trackers

if TYPE_CHECKING:
    from agentlightning.config import Config

logger = logging.getLogger("agentlightning.sft")

_FOR_AGENTS: Final = ("agent", "engine", "prompts", "reward_function")
"""Configuration keys that matter only where an agent runs."""


def check_ready(config: Config, val: Sequence[JSON]) -> None:
    """Refuse what training would stumble over once the run exists; warn of keys without an effect.

    Raises:
        ConfigError: the model cannot be opened, or a tracker cannot be used.
        DatasetError: validation tasks and chats are mixed.
    """
    check_trackers(config.report_to)
    check_model(str(config.model))
    runs_agents = bool(val) and not are_chats(val, "eval_dataset")
    idle = [key for key in _FOR_AGENTS if getattr(config, key)]
    if idle and not runs_agents:
        logger.warning(
            "%s: no effect here, since no agent is run: eval_dataset has no tasks", ", ".join(idle)
        )
