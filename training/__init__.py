"""Training: gradients of models as models, losses, optimisers, and the loop around a step. Names load on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graft.training.artifacts import from_artifacts
    from graft.training.gradients import grad, jvp, notes_of
    from graft.training.losses import LOSSES, loss
    from graft.training.numerics import NotFinite, check_numerics
    from graft.training.optimizers import SGD, Adam, AdamW, Optimizer
    from graft.training.schedules import cosine, linear, stepwise
    from graft.training.trainer import Trainer

__all__ = [
    "LOSSES", "SGD", "Adam", "AdamW", "NotFinite", "Optimizer", "Trainer", "check_numerics", "cosine", "from_artifacts",
    "grad", "jvp", "linear", "loss", "notes_of", "stepwise",
]  # fmt: skip

_HOMES = {
    "LOSSES": "losses", "SGD": "optimizers", "Adam": "optimizers", "AdamW": "optimizers", "Optimizer": "optimizers",
    "NotFinite": "numerics", "Trainer": "trainer", "check_numerics": "numerics", "cosine": "schedules",
    "from_artifacts": "artifacts", "grad": "gradients", "jvp": "gradients", "linear": "schedules", "loss": "losses",
    "notes_of": "gradients", "stepwise": "schedules",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'graft.training' has no attribute '{name}'; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"graft.training.{_HOMES[name]}"), name)
