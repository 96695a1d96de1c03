"""Regions of 16-bit floats in float32: their values are held in float32 from kernel to kernel, each rounded as before.

Processors convert 16-bit floats by the vector, but compute in float32. A value that is read many times, such as the
image of a convolution, is converted once, where it is computed, and everything behind it is scheduled as float32 is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.core.machine.target import Target
from graft.core.operators.definition.table import OperatorTable, Trait
from graft.core.rewriting.node_pass import Names
from graft.core.rewriting.node_rewrite import add_constant, constant_of, origin_of
from graft.partition.region import Region
from graft.plugins.codegen.region_models import model_of, region_of

NAME = "wide-floats"
"""The switch (`graft.core.machine.target.OPTIMISATIONS`)."""
NARROW = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
PRODUCTS = (Trait.CONTRACTION, Trait.CONVOLUTION, Trait.ATTENTION)
DOMAINS = ("", "ai.onnx", "com.microsoft")
TYPED = ("to", "dtype", "output_dtype")
"""Attributes that say the type of a result."""
TYPING = frozenset({"CastLike", "BitCast", "Constant", "ConstantOfShape", "Range"})
"""Operators whose results have the type of another operand, of an attribute, or the bits of theirs."""


def in_float32(region: Region, target: Target, table: OperatorTable) -> Region:
    """Return a region with 16-bit floats held in float32, any other as it is; the region's body is changed.

    Machines without an instruction that rounds to float16 keep them as they are, as do requests for another precision.
    """
    if NAME in target.without or target.precision != "float32" or not target.machine.has("round_f16"):
        return region
    values = (value for node in region.function for value in node.outputs)
    if not any(_is_narrow(value) for value in values):
        return region
    model = model_of(region)
    _Widening(model, table).run()
    return region_of(region, model)


def precision_of(region: Region, target: Target, table: OperatorTable) -> Target:
    """Return the target of a region: where all its products are of bfloat16, they may be computed in that.

    To round a factor that is bfloat16 changes nothing; sums are in float32 either way.
    """
    if NAME in target.without or target.precision != "float32" or not target.machine.has("dot2_bf16"):
        return target
    products = [node for node in region.nodes() if any(table.has(node, trait) for trait in PRODUCTS)]
    operands = [value for node in products for value in node.inputs[:2] if value is not None]
    if not products or any(value.dtype != "bfloat16" for value in operands):
        return target
    return replace(target, precision="bf16")


class _Widening:
    """The rewriting of one graph.

    1. an operator that computes has float32 operands and results, and Casts behind it that round
    2. one that only selects (`Trait.SELECTING`, `Trait.DATA_MOVEMENT`) needs no rounding
    3. what moves elements that come from outside as 16-bit floats, and a Concat behind such, moves them as they are
    4. an operator that says the type of its result itself keeps it, and so does one with a body or of another domain
    """

    def __init__(self, model: ir.Model, table: OperatorTable) -> None:
        self.graph, self.table, self.names = model.graph, table, Names(model)
        self.held: dict[ir.Value, ir.DataType] = {}
        """The float32 values that stand for narrow ones, with the type of these."""
        self.narrow: dict[ir.Value, ir.Value] = {}
        """By such a value: the narrow one, where it is known."""
        self.wide: dict[ir.Value, ir.Value] = {}
        """By narrow value that comes from outside or is kept: the float32 one."""

    def run(self) -> None:
        """Rewrite the graph."""
        for node in list(self.graph):
            if self._stays(node):
                self._keep(node)
            elif node.op_type == "Cast":
                self._cast(node)
            else:
                self._convert(node)

    def _stays(self, node: ir.Node) -> bool:
        kinds = {value.dtype for value in self._tensors(node)}
        if not kinds.intersection(NARROW) and not self.held.keys() & set(node.inputs):
            return True
        if node.domain not in DOMAINS or any(one.type == ir.AttributeType.GRAPH for one in node.attributes.values()):
            return True
        if node.op_type == "Cast":
            return False
        if node.op_type in TYPING or any(name in node.attributes for name in TYPED):
            return True
        if any(not isinstance(value.type, ir.TensorType) for value in self._tensors(node)):
            return True
        own = [value for value in node.inputs if value is not None and (value in self.held or _is_narrow(value))]
        return not own or self._moves_narrow(node, own)

    def _moves_narrow(self, node: ir.Node, own: list[ir.Value]) -> bool:
        """Whether a node moves what comes from outside (case 3)."""
        view = NodeView(node)
        updates = self.table.has(view, Trait.SELECTING) and self.table.has(view, Trait.RECURRENT)
        if not (updates or self.table.has(view, Trait.DATA_MOVEMENT)):
            return False
        outside = [value not in self.held for value in own]
        return all(outside) or (any(outside) and node.outputs[0].is_graph_output())

    def _keep(self, node: ir.Node) -> None:
        """Give a node the narrow values that it had."""
        for number, value in enumerate(node.inputs):
            if value in self.held:
                node.replace_input_with(number, self._narrowed(value))

    def _cast(self, node: ir.Node) -> None:
        """Let a Cast read what there is; one to float32 of a value that is held there is that value."""
        value, result = node.inputs[0], node.outputs[0]
        if value not in self.held:
            return
        if result.dtype == ir.DataType.FLOAT and not result.is_graph_output():
            ir.convenience.replace_all_uses_with(result, value)
            self.graph.remove(node, safe=True)
        elif result.dtype == self.held[value]:
            self._keep(node)

    def _convert(self, node: ir.Node) -> None:
        for number, value in enumerate(node.inputs):
            if value is not None and _is_narrow(value):
                node.replace_input_with(number, self._widened(value, node))
        rounds = not self._is_exact(node)
        for value in node.outputs:
            if _is_narrow(value):
                assert value.dtype is not None, f"'{value.name}' has a type"
                self._hold(node, value, value.dtype, rounds=rounds)

    def _is_exact(self, node: ir.Node) -> bool:
        view = NodeView(node)
        if node.op_type == "DequantizeLinear":  # of weights: a product takes them as they are
            return constant_of(node.inputs[0]) is not None
        return any(self.table.has(view, trait) for trait in (Trait.SELECTING, Trait.DATA_MOVEMENT, Trait.VIEW))

    def _hold(self, node: ir.Node, value: ir.Value, kind: ir.DataType, *, rounds: bool) -> None:
        """Make a result float32; its readers get it rounded. What nobody reads, and what has no name, needs no more."""
        value.type, held = ir.TensorType(ir.DataType.FLOAT), value
        uses = tuple(value.uses())
        if not uses and not value.is_graph_output():
            return
        if rounds:
            narrow = self._cast_of(value, kind, node)
            if uses:
                held = self._cast_of(narrow, ir.DataType.FLOAT, node, after=narrow.producer())
                for user, number in uses:
                    user.replace_input_with(number, held)
            self.narrow[held] = narrow
        self.held[held] = kind
        if value.is_graph_output():
            result, name = self._narrowed(held), value.name
            place = next(number for number, one in enumerate(self.graph.outputs) if one is value)
            self.graph.outputs[place] = result
            value.name, result.name = self.names.fresh(f"{name}_wide"), name

    def _narrowed(self, held: ir.Value) -> ir.Value:
        known = self.narrow.get(held)
        if known is None:
            producer = held.producer()
            assert producer is not None, f"'{held.name}' is computed"
            known = self.narrow[held] = self._cast_of(held, self.held[held], producer)
        return known

    def _widened(self, value: ir.Value, reader: ir.Node) -> ir.Value:
        known = self.wide.get(value)
        if known is None:
            name, contents = self.names.fresh(f"{value.name}_wide"), constant_of(value)
            if contents is not None:
                known = add_constant(self.graph, name, contents.astype(np.float32))
            else:
                known = self._cast_of(value, ir.DataType.FLOAT, reader, before=reader)
            self.wide[value] = known
        return known

    def _cast_of(
        self,
        value: ir.Value,
        kind: ir.DataType,
        node: ir.Node,
        *,
        after: ir.Node | None = None,
        before: ir.Node | None = None,
    ) -> ir.Value:
        """Return a value as another type, by a Cast behind ``after`` (or the node that it belongs to)."""
        cast = ir.node("Cast", [value], {"to": int(kind)}, name=node.name)
        cast.metadata_props.update(origin_of(node))
        result = cast.outputs[0]
        result.name, result.type, result.shape = (
            self.names.fresh(f"{value.name}_{kind.name.lower()}"), ir.TensorType(kind), value.shape,
        )  # fmt: skip
        if before is not None:
            self.graph.insert_before(before, cast)
        else:
            self.graph.insert_after(after or node, cast)
        return result

    @staticmethod
    def _tensors(node: ir.Node) -> Iterator[ir.Value]:
        return (value for value in (*node.inputs, *node.outputs) if value is not None and value.name)


def _is_narrow(value: ir.Value) -> bool:
    return value.dtype in NARROW
