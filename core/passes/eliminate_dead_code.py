"""Nodes and initialisers that no output needs disappear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass


@dataclass(frozen=True)
class EliminateDeadCode:
    """Remove nodes, optional outputs and initialisers without use; inputs of the model stay."""

    name: ClassVar[str] = "eliminate-dead-code"
    only_removes: ClassVar[bool] = True

    def run(self, model: ir.Model) -> bool:
        """Change ``model`` in place and return whether anything changed."""
        return RemoveUnusedNodesPass()(model).modified
