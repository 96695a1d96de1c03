"""Integers of 8 bits read where they lie: what widens them, or gives them another order, joins its readers' kernels.

1. DequantizeLinear by one scale, and Cast: computed anew by elementwise operators and sums that read them
2. a Transpose that only integer convolutions and MaxPool read: its order becomes part of their indices
3. a Transpose that alone reads what these compute: they store in its order, MaxPool if it reads in another one, too
4. DequantizeLinear by blocks of weights: widened in the innermost loop of a product of few rows
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView
from graft.core.operators.definition.table import OperatorTable, Trait
from graft.core.rewriting.fold_constants import widens_weights

NARROW = ("uint8", "int8")
REORDERED = (Trait.CONVOLUTION, Trait.POOLING)
"""The traits of operators that read, and store, an image in any order of axes."""
READING = (Trait.ELEMENTWISE, Trait.INJECTIVE, Trait.REDUCTION)
"""The traits of anchors that read what is widened; others would widen the same elements many times."""
Readers = Mapping[ir.Value, Sequence[NodeView]]


def is_widening(node: NodeView, readers: Readers, table: OperatorTable) -> bool:
    """Whether a node may be computed where it is read (cases 1 and 2)."""
    source = node.input(0)
    if widens_weights(node.node):
        return True
    if node.domain or source is None or source.dtype not in NARROW or source.is_constant:
        return False
    if node.op_type == "DequantizeLinear":
        return all(value is None or value.static_shape in ((), (1,)) for value in node.inputs[1:])
    found = readers.get(node.node.outputs[0], ())
    reordered = all(_reorders(one, table) and one.input(0) == node.outputs[0] for one in found)
    return node.op_type == "Cast" or (node.permutation is not None and bool(found) and reordered)


def computed_before(
    nodes: Sequence[NodeView], trait: Trait, widening: Mapping[ir.Node, NodeView], table: OperatorTable
) -> list[NodeView]:
    """Return what a group computes anew before its nodes, each once."""
    own = {node.node for node in nodes}
    found: dict[ir.Node, NodeView] = {}
    for node in nodes:
        is_apart = node is nodes[0] and trait not in READING and not _reorders(node, table)
        if trait is Trait.RECURRENT:
            continue
        for value in node.inputs:
            producer = None if value is None else value.value.producer()
            if is_apart and not (producer is not None and trait is Trait.CONTRACTION and widens_weights(producer)):
                continue
            if producer is not None and producer in widening and producer not in own:
                found[producer] = widening[producer]
    return list(found.values())


def follows_integers(
    anchor: NodeView, readers: Readers, outputs: Collection[ir.Value], table: OperatorTable
) -> NodeView | None:
    """Return the Transpose in whose order an anchor can store (case 3)."""
    value = anchor.node.outputs[0]
    found = readers.get(value, ())
    if not _reorders(anchor, table) or len(found) != 1 or value in outputs or len(anchor.outputs) > 1:
        return None
    source = anchor.node.inputs[0].producer() if anchor.node.inputs[0] is not None else None
    reads = source is not None and is_widening(NodeView(source), readers, table)
    if table.has(anchor, Trait.POOLING) and not reads:  # its vectors would be along one order, its memory along another
        return None
    return found[0] if found[0].permutation is not None else None


def _reorders(node: NodeView, table: OperatorTable) -> bool:
    dtype = ValueView(node.node.outputs[0]).dtype
    return any(table.has(node, trait) for trait in REORDERED) and dtype in (*NARROW, "int32")
