"""Whether the installed TRL is one whose private methods we know."""

from __future__ import annotations

import inspect
from importlib.metadata import version
from typing import Any

from agentlightning.errors import AlgorithmError
from packaging.specifiers import SpecifierSet

SUPPORTED = SpecifierSet(">=1.16,<1.17")

USED: dict[str, tuple[str, ...]] = {
    "training_step": ("model", "inputs", "num_items_in_batch"),
    "_prepare_inputs": ("generation_batch",),
    "_get_per_token_logps_and_entropies": (
        "model",
        "input_ids",
        "attention_mask",
        "logits_to_keep",
        "batch_size",
        "compute_entropy",
        "compute_aux_loss",
    ),
    "_compute_loss": ("model", "inputs"),
    "_save_checkpoint": ("model", "trial"),
    "_send_telemetry": (),
    "create_model_card": (),
}
"""Methods of ``GRPOTrainer`` that are overridden or called, and the parameters that counts on."""


def check_trl(trainer: type[Any], found: str | None = None) -> None:
    """Refuse a TRL that was not tried, before anything is spent.

    Args:
        trainer: TRL's ``GRPOTrainer``.
        found: TRL's version; None asks the installed distribution.

    Raises:
        AlgorithmError: another version, or a method that moved.
    """
    found = version("trl") if found is None else found
    if not SUPPORTED.contains(found, prereleases=True):
        raise AlgorithmError(
            f"TRL {found} is installed; reinforcement learning overrides private methods of TRL "
            f"{SUPPORTED} and was tried with that only. Install it: pip install 'trl{SUPPORTED}'"
        )
    moved = [problem for name, names in USED.items() if (problem := _problem(trainer, name, names))]
    if moved:
        raise AlgorithmError(
            f"TRL {found} differs from the TRL {SUPPORTED} that was tried: {'; '.join(moved)}. "
            f"Reinstall it unchanged: pip install --force-reinstall --no-deps 'trl{SUPPORTED}'"
        )


def _problem(trainer: type[Any], name: str, expected: tuple[str, ...]) -> str:
    method = getattr(trainer, name, None)
    if method is None:
        return f"{trainer.__name__}.{name} is gone"
    missing = [one for one in expected if one not in inspect.signature(method).parameters]
    return f"{trainer.__name__}.{name} no longer takes {', '.join(missing)}" if missing else ""
