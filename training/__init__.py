"""Training: gradients of models as models, losses, optimisers, and the loop around a step. Names load on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graft.training.gradients import grad
    from graft.training.losses import LOSSES, loss

__all__ = ["LOSSES", "grad", "loss"]

_HOMES = {"LOSSES": "losses", "grad": "gradients", "loss": "losses"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'graft.training' has no attribute '{name}'; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"graft.training.{_HOMES[name]}"), name)
