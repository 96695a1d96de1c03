"""Equations in the metadata of the graph whose nodes demand them: they go with it through partitioning and files."""

from __future__ import annotations

import json
from collections.abc import Sequence

import onnx_ir as ir

from graft.core.affine.text import parsed, text
from graft.runtime.extents import ExtentEquation

EQUATIONS = "graft.equations"
"""The key of a graph's metadata."""


def keep_equations(graph: ir.Graph, equations: Sequence[ExtentEquation]) -> None:
    """Note in a graph what its nodes demand, in the place of what was noted before."""
    graph.metadata_props.pop(EQUATIONS, None)
    if equations:
        rows = [[text(one.left), text(one.right), one.kind, *one.says] for one in equations]
        graph.metadata_props[EQUATIONS] = json.dumps(rows)


def kept_equations(graph: ir.Graph) -> list[ExtentEquation]:
    """Return what a graph's nodes demand, as it was noted."""
    found = []
    for left, right, kind, *says in json.loads(graph.metadata_props.get(EQUATIONS, "[]")):
        sides = parsed(left), parsed(right)
        if sides[0] is not None and sides[1] is not None:
            found.append(ExtentEquation(sides[0], sides[1], kind, (says[0], says[1], says[2])))
    return found
