"""The rewrite of a float model to QDQ form: quantised activations, constant codes of weights, whole biases."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from graft.core.operators.definition.table import Trait
from graft.core.rewriting.node_pass import Names
from graft.core.rewriting.node_rewrite import add_constant, attribute_of, constant_of, has_trait
from graft.quantization.caches import Cache
from graft.quantization.grids import Grid
from graft.quantization.scales import Scaled
from graft.quantization.sites import BIAS, WEIGHTS, Group, Product, X, added_bias, is_row

GRID = "graft.grid"
"""The key of a DequantizeLinear's metadata for the grid of its codes, where their type has more numbers."""
SUM_LIMIT = 2**31 - 1
"""The largest bias in integers, which are of 32 bits."""


@dataclass(frozen=True, slots=True)
class Point:
    """Scale, zero point and grid of an activation."""

    grid: Grid
    scale: np.float32
    zero: np.float32


@dataclass(slots=True)
class QdqWriter:
    """Puts QuantizeLinear and DequantizeLinear into a graph."""

    model: ir.Model
    notes: list[str] = field(default_factory=list)
    _names: Names = field(init=False)
    _unbiased: list[str] = field(default_factory=list)
    """Products whose bias was to be corrected and that have none."""
    points: dict[ir.Value, Point] = field(default_factory=dict)
    """What the dequantised activations are scaled by."""
    _weights: dict[tuple[object, ...], ir.Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._names = Names(self.model)

    def activations(self, group: Group, point: Point, *, results: bool = False) -> None:
        """Quantise the activations of a group, each right behind where it is made, for the readers that take them.

        With ``results`` outputs of the model among them are what their codes stand for.
        """
        graph = self.model.graph
        operands = self._operands(next(iter(group.readers)).name, point)
        for value, readers in group.readers.items():
            codes = self._codes(value, operands, point)
            back = self._numbers(codes.outputs[0], operands, value.name)
            producer = value.producer()
            if producer is None:
                graph.insert_before(graph[0], [codes, back])
            else:
                graph.insert_after(producer, [codes, back])
            for node, place in readers:
                node.replace_input_with(place, back.outputs[0])
            if results and value.is_graph_output():
                self._replace_output(value, back.outputs[0])
            self.points[back.outputs[0]] = point

    def cache(self, cache: Cache, point: Point) -> None:
        """Let a model take and give codes of a cache, whose readers get what they stand for.

        A Concat joins the codes of the new rows to those of the old, where ONNX lets it: integers of whole bytes.
        All else is quantised whole, which gives old rows the codes that they had.
        """
        graph, (past, present), kind = self.model.graph, (cache.past, cache.present), point.grid.dtype
        maker, operands = present.producer(), self._operands(past.name, point)
        assert maker is not None, present.name
        codes = ir.Value(name=past.name, type=ir.TensorType(kind), shape=past.shape)
        graph.inputs[graph.inputs.index(past)] = codes
        past.name = self._names.fresh(f"{codes.name}_exact")
        old = self._numbers(codes, operands, codes.name)
        graph.insert_before(graph[0], old)
        if has_trait(maker, Trait.JOINING) and point.grid.bits >= 8 and not point.grid.is_float:
            for place, value in enumerate(maker.inputs):
                if value is not past and value is not None:
                    rows = self._codes(value, operands, point)
                    graph.insert_before(maker, rows)
                    maker.replace_input_with(place, rows.outputs[0])
            maker.replace_input_with(maker.inputs.index(past), codes)
            present.type, whole, behind = ir.TensorType(kind), present, maker
        else:
            behind = self._codes(present, operands, point)
            graph.insert_after(maker, behind)
            whole = behind.outputs[0]
            self._replace_output(present, whole)
        back = self._numbers(whole, operands, present.name)
        graph.insert_after(behind, back)
        for before, after in ((past, old), (present, back)):
            for use in tuple(before.uses()):
                if use.node not in (behind, back):
                    use.node.replace_input_with(use.idx, after.outputs[0])

    def _operands(self, name: str | None, point: Point) -> list[ir.Value]:
        """Return scale and, where the grid has one, zero point as constants."""
        operands = [self._constant(f"{name}_scale", point.scale)]
        if not point.grid.is_float:
            operands.append(self._constant(f"{name}_zero", point.grid.stored(np.asarray(point.zero))))
        return operands

    def _codes(self, value: ir.Value, operands: list[ir.Value], point: Point) -> ir.Node:
        kind = point.grid.dtype
        given = {"output_dtype": int(kind)} if point.grid.is_float else {}
        return self._node("QuantizeLinear", [value, *operands], f"{value.name}_quantized", kind, value.shape, **given)

    def _numbers(self, codes: ir.Value, operands: list[ir.Value], name: str | None) -> ir.Node:
        inputs = [codes, *operands]
        return self._node("DequantizeLinear", inputs, f"{name}_dequantized", ir.DataType.FLOAT, codes.shape)

    def _replace_output(self, old: ir.Value, new: ir.Value) -> None:
        """Let a value take the place, and the name, of an output of the model."""
        outputs = self.model.graph.outputs
        old.name, new.name = self._names.fresh(f"{old.name}_exact"), old.name
        for place, value in enumerate(outputs):
            if value is old:
                outputs[place] = new

    def weights(self, product: Product, scaled: Scaled) -> None:
        """Let a product read codes of its weights, dequantised."""
        value, key = product.weights, (product.weights, product.channels, product.scaling)
        if key not in self._weights:
            stem, layout = value.name or product.node.name, scaled.layout
            operands = [
                self._constant(f"{stem}_codes", scaled.grid.stored(scaled.codes)),
                self._constant(f"{stem}_scale", _stored_scale(scaled)),
            ]
            if scaled.zero.any() or not (layout.block or scaled.grid.dtype is ir.DataType.FLOAT4E2M1):
                operands.append(self._constant(f"{stem}_zero", scaled.grid.stored(layout.as_onnx(scaled.zero))))
            attributes = {"axis": layout.axis} if layout.axis is not None else {}
            if layout.block:
                attributes["block_size"] = layout.block
            if operands[1].dtype is ir.DataType.FLOAT8E8M0:
                attributes["output_dtype"] = int(ir.DataType.FLOAT)
            node = self._node(
                "DequantizeLinear", operands, f"{stem}_dequantized", ir.DataType.FLOAT, ir.Shape(layout.shape),
                **attributes,
            )  # fmt: skip
            if not scaled.grid.is_whole:
                assert product.scaling is not None
                node.metadata_props[GRID] = product.scaling.type
            self.model.graph.insert_before(product.node, node)
            self._weights[key] = node.outputs[0]
        product.node.replace_input_with(WEIGHTS, self._weights[key])

    def shift_bias(self, product: Product, shift: np.ndarray) -> None:
        """Take what rounded weights add to the mean of each channel out of the bias, the product's or one behind it."""
        found = _bias_of(product)
        if found is None or attribute_of(product.node, "beta", 1.0) == 0:
            self._unbiased.append(product.node.name or "")
            return
        node, place = found
        node.resize_inputs(max(place + 1, len(node.inputs)))
        bias, factor = constant_of(node.inputs[place]), attribute_of(product.node, "alpha", 1.0)
        changed = (0 if bias is None else bias) - shift * factor / attribute_of(product.node, "beta", 1.0)
        corrected = np.broadcast_to(changed.astype(np.float32), shift.shape)
        node.replace_input_with(place, self._constant(f"{product.node.name}_bias_corrected", corrected))

    def all_notes(self) -> list[str]:
        """Return what could not be done."""
        names = ", ".join(self._unbiased)
        return [*self.notes, *([f"products without a bias that could be corrected: {names}"] if names else [])]

    def bias(self, product: Product, scaled: Scaled, *, added: bool = False) -> None:
        """Let a product of 8-bit integers read a bias in whole numbers of its sums, where 32 bits hold it.

        With ``added`` that may be one behind it, which an Add reads.
        """
        node, place = (added_bias(product) if added else None) or (product.node, BIAS)
        value = node.inputs[place] if place < len(node.inputs) else None
        bias, point = constant_of(value), self.points.get(product.node.inputs[X])  # type: ignore[arg-type]
        if value is None or bias is None or point is None or not self._in_integers(product, scaled, point):
            return
        scale = np.float32(point.scale) * scaled.scale
        whole = np.rint(bias.astype(np.float64) / scale)
        if bias.ndim != 1 or len(bias) % len(scale) or np.abs(whole).max(initial=0) > SUM_LIMIT:
            self.notes.append(f"the bias of {node.op_type} (node '{node.name}') stays in float32: no int32 holds it")
            return
        stem = f"{node.name}_bias"
        factor = scale.reshape(()) if scaled.layout.axis is None else scale
        operands = [
            self._constant(f"{stem}_codes", whole.astype(np.int32)),
            self._constant(f"{stem}_scale", factor),
            self._constant(f"{stem}_zero", np.zeros(factor.shape, np.int32)),
        ]
        attributes = {} if scaled.layout.axis is None else {"axis": 0}
        back = self._node(
            "DequantizeLinear", operands, f"{stem}_dequantized", ir.DataType.FLOAT, value.shape, **attributes
        )
        self.model.graph.insert_before(node, back)
        node.replace_input_with(place, back.outputs[0])

    @staticmethod
    def _in_integers(product: Product, scaled: Scaled, point: Point) -> bool:
        factors = (attribute_of(product.node, name, 1.0) for name in ("alpha", "beta"))
        bytes_alone = all(grid.bits == 8 and not grid.is_float for grid in (scaled.grid, point.grid))
        one_each = scaled.layout.axis is None or scaled.layout.shape[product.channels] == scaled.scale.size
        return bytes_alone and one_each and not scaled.layout.block and all(factor == 1.0 for factor in factors)

    def _constant(self, name: str, array: np.ndarray | np.float32) -> ir.Value:
        return add_constant(self.model.graph, self._names.fresh(name), np.asarray(array))

    def _node(
        self, operator: str, inputs: list[ir.Value], name: str, kind: ir.DataType, shape: ir.Shape | None, **given: int
    ) -> ir.Node:
        node = ir.node(operator, inputs, attributes=given, name=self._names.fresh(f"{name}_node"))
        output = node.outputs[0]
        output.name, output.type = self._names.fresh(name), ir.TensorType(kind)
        output.shape = None if shape is None else ir.Shape(shape)
        return node


def _bias_of(product: Product) -> tuple[ir.Node, int] | None:
    """Return node and place of the bias of a product: its own, given or not, or a constant that alone is added to it.

    None where there is neither, and for a bias that is computed or has another shape than one of the channels.
    """
    if product.channels_have_bias:
        return (product.node, BIAS) if product.bias is None or is_row(product.bias) else None
    return added_bias(product)


def _stored_scale(scaled: Scaled) -> np.ndarray:
    """Return scales in the shape, and by the unit, that ONNX has; powers of two beside float4e2m1 are OCP's MXFP4."""
    scale = scaled.layout.as_onnx(scaled.scale) * np.float32(scaled.grid.unit)
    is_mx = scaled.grid.dtype is ir.DataType.FLOAT4E2M1 and scaled.bits_of_scale == 8
    return scale.astype(ir.DataType.FLOAT8E8M0.numpy()) if is_mx else scale


def bits_of_weights(scaled: Collection[Scaled]) -> float:
    """Return the bits of a weight on average, scales and zero points counted."""
    return sum(one.stored_bits for one in scaled) / max(sum(one.codes.size for one in scaled), 1)
