"""Quantisation: a float model to a QDQ model, by a recipe and data; errors of each layer. Names load on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graft.quantization.api import notes_of, quantize
    from graft.quantization.assignment import Assignment, assign
    from graft.quantization.comparison import Comparison, compare
    from graft.quantization.recipe import NAMED, Recipe, Scaling, recipe_of
    from graft.quantization.statistics.data import preprocessed
    from graft.quantization.vendors import left_by, recipe_for

__all__ = [
    "NAMED", "Assignment", "Comparison", "Recipe", "Scaling", "assign", "compare", "left_by", "notes_of",
    "preprocessed", "quantize", "recipe_for", "recipe_of",
]  # fmt: skip

_HOMES = {
    "Assignment": "assignment", "assign": "assignment",
    "Comparison": "comparison", "compare": "comparison", "notes_of": "api", "quantize": "api",
    "left_by": "vendors", "recipe_for": "vendors",
    "NAMED": "recipe", "Recipe": "recipe", "Scaling": "recipe", "recipe_of": "recipe",
    "preprocessed": "statistics.data",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'graft.quantization' has no attribute '{name}'; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"graft.quantization.{_HOMES[name]}"), name)
