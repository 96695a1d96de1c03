"""Graft inside PyTorch: a backend of `torch.compile`, explanations, exported programs. Needs the extra ``torch``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graft.torch.explaining import explain
    from graft.torch.exporting import export

__all__ = ["explain", "export"]
_HOMES = {"explain": "graft.torch.explaining", "export": "graft.torch.exporting"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(
            f"module 'graft.torch' has no attribute '{name}'; the public names are {', '.join(__all__)}"
        )
    return getattr(importlib.import_module(_HOMES[name]), name)
