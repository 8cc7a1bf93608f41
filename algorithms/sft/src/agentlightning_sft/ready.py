"""What must be in place before a run is made."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from agentlightning.records import JSON

from agentlightning_sft.chats import are_chats, check_chats
from agentlightning_sft.config import SFTConfig
from agentlightning_sft.model import check_model, lora_config
from agentlightning_sft.trackers import check_trackers

if TYPE_CHECKING:
    from agentlightning.config import Config

logger = logging.getLogger("agentlightning.sft")

_FOR_AGENTS: Final = (
    "adapters",
    "agent",
    "engine",
    "prompts",
    "reward_function",
    "rollout",
    "runners",
    "strict",
    "trained_agents",
)
"""Configuration keys that matter only where an agent runs."""


def check_ready(config: Config, options: SFTConfig, train: Sequence[JSON], val: Sequence[JSON]) -> None:
    """Refuse what training would stumble over once the run exists; warn of keys without an effect.

    Raises:
        ConfigError: the model cannot be opened, or the LoRA's keys or a tracker cannot be used.
        DatasetError: a training row is no chat, or validation tasks and chats are mixed.
    """
    check_chats(train, "train_dataset")
    check_trackers(config.report_to)
    lora_config(options.lora)
    check_model(str(config.model))
    if not val or are_chats(val, "eval_dataset"):
        _warn_of_idle_keys(config)


def _warn_of_idle_keys(config: Config) -> None:
    given = [key for key in _FOR_AGENTS if getattr(config, key) and key not in config.defaults]
    if config.options.source_run is not None and "trained_agents" in given:
        given.remove("trained_agents")  # whose recorded calls are learnt
    if given:
        logger.warning(
            "%s: no effect here, since no agent is run: eval_dataset has no tasks", ", ".join(given)
        )
