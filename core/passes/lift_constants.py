"""Constant nodes become initialisers, so that a constant has one form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass


@dataclass(frozen=True)
class LiftConstants:
    """Turn every Constant node into an initialiser of its graph, except where it is the graph's output."""

    name: ClassVar[str] = "lift-constants"

    def run(self, model: ir.Model) -> bool:
        """Change ``model`` in place and return whether anything changed."""
        return LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model).modified
