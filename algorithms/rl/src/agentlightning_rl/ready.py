"""What must be in place before a run is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trl import GRPOTrainer  # type: ignore[attr-defined]  # TRL exports it lazily

from agentlightning_rl.config import RLConfig
from agentlightning_rl.model import check_model, lora_config
from agentlightning_rl.trackers import check_trackers
from agentlightning_rl.trl_check import check_trl

if TYPE_CHECKING:
    from agentlightning.config import Config


def check_ready(config: Config, options: RLConfig) -> None:
    """Refuse what training would stumble over once the run exists.

    Raises:
        AlgorithmError: TRL was changed.
        ConfigError: the model cannot be opened, or the LoRA's keys or a tracker cannot be used.
    """
    check_trl(GRPOTrainer)
    check_trackers(config.report_to)
    if options.lora is not None:
        lora_config(options.lora)
    check_model(str(config.model))
