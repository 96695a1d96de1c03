"""Attention in a graph: two products with Softmax between them, and the transpositions around them.

1. ``MatMul(q, k)``, then elementwise operators whose only other inputs broadcast to the scores (scale, mask), then
   Softmax along the last axis, then ``MatMul(weights, v)``: each of these values has one reader.
2. A Transpose that only one of the products reads joins: its order becomes part of the indices. So do, where extents
   vary, the nodes that repeat keys or values for the heads of a group (Unsqueeze, Expand, Reshape).
3. So does a Transpose that alone reads the result.
4. An operator that is ATTENTION by its traits stands for all of case 1.
5. Between Softmax and the product there may be a ``Where(IsNaN(weights), 0, weights)``, as PyTorch writes attention
   whose masks may leave a query no key.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView
from graft.core.operators.definition.table import OperatorTable, Trait
from graft.core.operators.definition.varying import is_static

LONGEST_CHAIN = 8
"""Elementwise operators between the product and Softmax up to which they are looked for."""
Shape = tuple[int | str | None, ...]


def find_attention(
    nodes: Sequence[NodeView],
    readers: Mapping[ir.Value, Sequence[NodeView]],
    outputs: Collection[ir.Value],
    table: OperatorTable,
    dtypes: Collection[str],
) -> list[list[NodeView]]:
    """Return the nodes of each attention in an order in which they can run, transpositions of the inputs first.

    ``dtypes`` are the types of tensors whose products and Softmax may be one kernel.
    """
    finder = _Finder({node.node: node for node in nodes}, readers, outputs, table, dtypes)
    found = [finder.around(node) for node in nodes if table.has(node, Trait.DISTRIBUTION)]
    found += [finder.whole(node) for node in nodes if table.has(node, Trait.ATTENTION)]  # case 4
    return [group for group in found if group is not None]


@dataclass(frozen=True, slots=True)
class _Finder:
    nodes: Mapping[ir.Node, NodeView]
    readers: Mapping[ir.Value, Sequence[NodeView]]
    outputs: Collection[ir.Value]
    table: OperatorTable
    dtypes: Collection[str]

    def around(self, softmax: NodeView) -> list[NodeView] | None:
        """Return the attention around a Softmax, None if there is none."""
        shape = softmax.outputs[0].shape
        if shape is None or softmax.attribute("axis", -1) not in (-1, len(shape) - 1):
            return None
        chain = self._chain(softmax)
        cleared = self._clearing(softmax)
        weights = (cleared or [softmax])[-1].outputs[0]
        product = self._reader(weights)
        if chain is None or product is None or not self._is_product(product, weights):
            return None
        scores, *between = chain
        if not _fits(scores, self.dtypes) or scores.outputs[0].shape != shape:
            return None
        before = [*self._movements(scores, (0, 1)), *self._movements(product, (1,))]
        after = self._reader(product.outputs[0])
        transposed = [after] if after is not None and _is_transpose(after) else []  # case 3
        return [*before, scores, *between, softmax, *cleared, product, *transposed]

    def whole(self, attention: NodeView) -> list[NodeView]:
        """Return an operator Attention with the transpositions around it (cases 2 and 3).

        One whose caches are read keeps its result: a group's last node is the only one that stores anything.
        """
        before = self._movements(attention, (0, 1, 2))
        after = self._reader(attention.outputs[0])
        if after is None or not _is_transpose(after) or any(map(self._is_used, attention.outputs[1:])):
            return [*before, attention]
        return [*before, attention, after]

    def _chain(self, softmax: NodeView) -> list[NodeView] | None:
        """The product and the elementwise operators before Softmax, the product first (case 1)."""
        chain: list[NodeView] = []
        value = softmax.input(0)
        while value is not None and len(chain) <= LONGEST_CHAIN and self._reader(value) is not None:
            node = self._producer(value)
            if node is None or len([one for one in node.node.outputs if one.name]) != 1:
                return None
            chain.insert(0, node)
            if node.op_type == "MatMul":
                return chain
            if not self.table.has(node, Trait.ELEMENTWISE):
                return None
            value = self._computed(node)
        return None

    def _computed(self, node: NodeView) -> ValueView | None:
        """The input of the node's own shape that a node of the chain makes; all others must broadcast to it."""
        shape = node.outputs[0].shape
        same = [one for one in node.inputs if one is not None and one.shape == shape and self._producer(one)]
        chained = [one for one in same if self._reader(one) is not None and not one.is_constant]
        return chained[0] if len(chained) == 1 else None

    def _clearing(self, softmax: NodeView) -> list[NodeView]:
        """The nodes that make weights of 0 from those that are NaN; none where there are none (case 5)."""
        weights = softmax.outputs[0]
        readers = {node.op_type: node for node in self.readers.get(weights.value, ())}
        if weights.value in self.outputs or set(readers) != {"IsNaN", "Where"}:
            return []
        asked, chosen = readers["IsNaN"], readers["Where"]
        condition, zero, kept = (chosen.input(number) for number in range(3))
        is_one_choice = self._reader(asked.outputs[0]) is chosen and condition == asked.outputs[0] and kept == weights
        number = None if zero is None else zero.constant
        is_zero = number is not None and number.size == 1 and not number.any()
        return [asked, chosen] if is_one_choice and is_zero and chosen.outputs[0].shape == weights.shape else []

    def _is_product(self, product: NodeView, weights: ValueView) -> bool:
        left = product.input(0)
        if product.op_type != "MatMul" or left is None or left.value is not weights.value:
            return False
        return product.input(1) != left and _fits(product, self.dtypes)

    def _movements(self, product: NodeView, numbers: Sequence[int]) -> list[NodeView]:
        """The transpositions and repetitions that only this product reads, in execution order (case 2)."""
        found: list[NodeView] = []
        for number in numbers:
            transposed = self._only(product.input(number))
            moved = [transposed] if transposed is not None and _is_transpose(transposed) else []
            found += [*self._repetition(moved[0].input(0) if moved else product.input(number)), *moved]
        return list(dict.fromkeys(found))

    def _repetition(self, value: ValueView | None) -> list[NodeView]:
        """The nodes that repeat along an axis: a Reshape of an Expand, of what has got an axis of 1 for it."""
        joined = self._only(value)
        expanded = None if joined is None or joined.op_type != "Reshape" else self._only(joined.input(0))
        if joined is None or expanded is None or expanded.op_type != "Expand" or is_static(expanded):
            return []
        split, whole = expanded.outputs[0].shape or (), joined.outputs[0].shape or ()
        joins = len(split) == len(whole) + 1 and any(
            split[:axis] == whole[:axis] and split[axis + 2 :] == whole[axis + 1 :] and _multiplies(split, whole, axis)
            for axis in range(len(whole))
        )
        if not joins:
            return []
        made = self._only(expanded.input(0))
        return [*([made] if made is not None and made.op_type == "Unsqueeze" else []), expanded, joined]

    def _only(self, value: ValueView | None) -> NodeView | None:
        """What makes a value that has one reader."""
        return None if value is None or self._reader(value) is None else self._producer(value)

    def _is_used(self, value: ValueView) -> bool:
        return value.value in self.readers or value.value in self.outputs

    def _producer(self, value: ValueView) -> NodeView | None:
        producer = value.value.producer()
        return None if producer is None else self.nodes.get(producer)

    def _reader(self, value: ValueView) -> NodeView | None:
        """The only reader of a value, if it has one and does not leave the region."""
        readers = self.readers.get(value.value, ())
        return readers[0] if len(readers) == 1 and value.value not in self.outputs else None


def _multiplies(split: Shape, whole: Shape, axis: int) -> bool:
    """Whether an extent is the product of the numbers at an axis and the next one."""
    left, right, product = split[axis], split[axis + 1], whole[axis]
    return isinstance(left, int) and isinstance(right, int) and left * right == product


def _is_transpose(node: NodeView) -> bool:
    return node.permutation is not None


def _fits(product: NodeView, dtypes: Collection[str]) -> bool:
    """Whether a product has matrices of more than one row, column and term, and numbers of one of some types.

    Extents may vary, but for the size of a head: the terms of the scores, or the columns of the result.
    """
    values = [value for value in (*product.inputs, *product.outputs) if value is not None]
    shapes, own = [value.shape or () for value in values], {value.dtype for value in values}
    big = all(len(shape) >= 2 and 0 not in shape and not {0, 1, None}.intersection(shape[-2:]) for shape in shapes)
    same = len({len(shape) for shape in shapes}) == 1
    sized = big and any(isinstance(extent, int) for extent in (shapes[0][-1], shapes[1][-1]))
    return sized and same and len(own) == 1 and own <= set(dtypes)
