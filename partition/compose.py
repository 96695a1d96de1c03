"""Composites alone: the model whose graph calls composites, without regions."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import OperatorTable
from graft.partition.annotate_target import Annotation
from graft.partition.graph import IndexedTree, index_tree
from graft.partition.merge_composite import MergeComposite, Table
from graft.partition.partition_graph import Cut, GraphCuts, PartitionGraph, name_regions
from graft.partition.units import make_units
from graft.patterns.checks.tables import require_composites
from graft.patterns.composite import Composite


def compose(
    model: ir.Model, rows: Sequence[Composite], *, longest: bool = False, operators: OperatorTable = OPERATORS
) -> ir.Model:
    """Return a model in which every match of a row is a call of a composite; the model given is not changed.

    Bodies of control flow are composed too. Raises PatternError for a row that is wrong.
    """
    require_composites("", rows)
    step = MergeComposite((Table("", tuple(rows)),), longest, operators=operators)
    cuts = _cuts(index_tree(model.graph, set()), step)
    name_regions(model.functions, cuts)
    return PartitionGraph().run(model, cuts)


def _cuts(tree: IndexedTree, step: MergeComposite) -> GraphCuts:
    units = make_units(tree.graph, step.run(tree.graph).groups)
    cuts = [Cut(None, [number], list(unit.nodes)) for number, unit in enumerate(units.units)]
    result = GraphCuts(tree.graph, units, Annotation([None] * len(cuts)), cuts)
    for number, inner in tree.bodies.items():
        result.inner[number] = {key: _cuts(body, step) for key, body in inner.items()}
    return result
