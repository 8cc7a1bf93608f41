"""Whether the installed TRL still has the private methods that we know.

Its version is not looked at here: the range stands in the extra ``framework``, and the loader of
plug-ins offers no algorithm whose range is not met.
"""

from __future__ import annotations

import inspect
from importlib.metadata import version
from typing import Any

from agentlightning.errors import AlgorithmError

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


def check_trl(trainer: type[Any]) -> None:
    """Refuse a TRL that was changed, before anything is spent.

    Args:
        trainer: TRL's ``GRPOTrainer``.

    Raises:
        AlgorithmError: a method that is overridden or called has moved.
    """
    moved = [problem for name, names in USED.items() if (problem := _problem(trainer, name, names))]
    if moved:
        found = version("trl")
        raise AlgorithmError(
            f"TRL {found} is installed, but not as it was published: {'; '.join(moved)}. Reinstall it "
            f"unchanged: pip install --force-reinstall --no-deps trl=={found}"
        )


def _problem(trainer: type[Any], name: str, expected: tuple[str, ...]) -> str:
    method = getattr(trainer, name, None)
    if method is None:
        return f"{trainer.__name__}.{name} is gone"
    missing = [one for one in expected if one not in inspect.signature(method).parameters]
    return f"{trainer.__name__}.{name} no longer takes {', '.join(missing)}" if missing else ""
