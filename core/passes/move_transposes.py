"""Transpositions move behind what does not care about the order of axes, so that they meet and cancel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView
from graft.core.operators.definition.table import Trait
from graft.core.operators.lower import window_of
from graft.core.rewriting.node_pass import Names, NodePass, Rewriter
from graft.core.rewriting.node_rewrite import graph_of, has_trait, is_operator, replace_node, sole_use
from graft.core.rewriting.writer import Writer


@dataclass(frozen=True)
class MoveTransposes(NodePass):
    """Compute on tensors before they are transposed: a network that normalises channels keeps them last.

    A depthwise convolution between a Transpose and its inverse is the same convolution of another layout, which a
    backend takes whole; those two count as none.

    1. Transpose of a Transpose becomes one, but for one before such a convolution
    2. an elementwise operator whose inputs are all transposed alike, one of them for it alone, is computed before, and
       its result transposed; an input of one element is in any order, where a reader transposes the result back
    3. if the other inputs are not, but a depthwise convolution whose result is transposed back reads them, they are
       transposed back and forth: then case 2 applies, and the convolution stands between two Transposes
    """

    name: ClassVar[str] = "move-transposes"

    def rewrite(self, node: ir.Node, rewriter: Rewriter) -> bool:
        """Rewrite a node as the class says."""
        order = _order(node)
        before = None if order is None else _order(_producer(node.inputs[0]))
        if order is not None and before is not None:  # case 1
            if _feeds_depthwise(node.outputs[0], _inverse(order), alone=True):
                return False
            _merge(node, [before[axis] for axis in order])
            return True
        if not has_trait(node, Trait.ELEMENTWISE) or not any(
            is_operator(_producer(one), "Transpose") for one in node.inputs
        ):
            return False
        for value, wanted in _plain_inputs(node):  # case 3
            _transpose_twice(value, wanted, rewriter.names)
        if (common := _common_order(node)) is None:
            return False
        _compute_before(node, common, rewriter.names)  # case 2
        return True


def _producer(value: ir.Value | None) -> ir.Node | None:
    return None if value is None else value.producer()


def _order(node: ir.Node | None) -> list[int] | None:
    """Return the order of axes that a node brings about, None if it is no Transpose or of unknown rank."""
    order = None if node is None else NodeView(node).permutation
    return None if order is None else list(order)


def _inverse(order: Sequence[int]) -> list[int]:
    return [list(order).index(axis) for axis in range(len(order))]


def _feeds_depthwise(value: ir.Value, order: Sequence[int], *, alone: bool) -> bool:
    """Whether a depthwise Conv whose result is only transposed to ``order`` reads a value; ``alone``: nothing else."""
    if alone and not sole_use(value):
        return False
    return any(_is_depthwise(node) and _is_only_transposed(node.outputs[0], order) for node in value.consumers())


def _is_only_transposed(value: ir.Value, order: Sequence[int]) -> bool:
    return sole_use(value) and _order(next(iter(value.consumers()))) == list(order)


def _is_depthwise(node: ir.Node) -> bool:
    window = window_of(NodeView(node))
    return window is not None and window.is_depthwise


def _plain_inputs(node: ir.Node) -> list[tuple[ir.Value, list[int]]]:
    """Return the inputs of case 3, each with the order in which the other inputs of the node are transposed."""
    orders = {index: _order(_producer(value)) for index, value in enumerate(node.inputs)}
    known = [order for index, order in orders.items() if order is not None and _dies(node.inputs[index])]
    plain = [value for index, value in enumerate(node.inputs) if orders[index] is None and value is not None]
    if not known or not plain or any(order not in (None, known[0]) for order in orders.values()):
        return []
    served = all(_feeds_depthwise(value, _inverse(known[0]), alone=False) for value in plain)
    same = all(value.shape is not None and len(value.shape) == len(known[0]) for value in plain)
    here = all(reader.graph is node.graph for value in plain for reader in value.consumers())
    return [(value, known[0]) for value in plain] if served and same and here else []


def _dies(value: ir.Value | None) -> bool:
    return value is not None and sole_use(value)


def _transpose_twice(value: ir.Value, order: Sequence[int], names: Names) -> None:
    """Put a Transpose to the inverse of ``order`` and one to ``order`` between a value and all who read it."""
    readers = list(value.uses())
    first = min((use.node for use in readers), key=_position)
    assert value.shape is not None, f"value '{value.name}' has no shape"
    writer, inverse = Writer(first, names), _inverse(order)
    back = writer.emit("Transpose", [value], value.dtype, [value.shape[axis] for axis in inverse], perm=inverse)
    forth = writer.emit("Transpose", [back], value.dtype, value.shape, perm=list(order))
    for use in readers:
        use.node.replace_input_with(use.idx, forth)


def _position(node: ir.Node) -> int:
    return next(number for number, other in enumerate(graph_of(node)) if other is node)


def _merge(node: ir.Node, order: Sequence[int]) -> None:
    first = _producer(node.inputs[0])
    assert first is not None, f"node '{node.name}' follows no other"
    replace_node(node, "Transpose", [first.inputs[0]], {"perm": list(order)}, [first])


def _common_order(node: ir.Node) -> list[int] | None:
    """Return the order in which all inputs of a node are transposed; None if they are not, or nothing is saved."""
    transposed = [value for value in node.inputs if not _is_single(value)]
    orders = [_order(_producer(value)) for value in transposed]
    if len(node.inputs) < 2 or not orders or orders[0] is None or any(order != orders[0] for order in orders):
        return None
    if len(transposed) < len(node.inputs):
        back = _inverse(orders[0])
        if not any(_order(reader) == back for reader in node.outputs[0].consumers()):
            return None
    saved = any(map(_dies, transposed))
    known = node.outputs[0].shape is not None and node.outputs[0].dtype is not None
    return orders[0] if saved and known else None


def _is_single(value: ir.Value | None) -> bool:
    """Whether a value is one number, in whatever order others are."""
    return value is not None and ValueView(value).static_shape in ((), (1,))


def _compute_before(node: ir.Node, order: Sequence[int], names: Names) -> None:
    output = node.outputs[0]
    assert output.shape is not None, f"node '{node.name}' gives a tensor of unknown shape"
    producers = [(value, None if _is_single(value) else _producer(value)) for value in node.inputs]
    sources = [value if producer is None else producer.inputs[0] for value, producer in producers]
    shape = [output.shape[axis] for axis in _inverse(order)]
    result = Writer(node, names).again(sources, output.dtype, shape)
    before = result.producer()
    assert before is not None, result.name
    replace_node(node, "Transpose", [result], {"perm": list(order)}, [before])
