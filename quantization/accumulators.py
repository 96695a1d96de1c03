"""Sums of quantised products in a type of the recipe's: every product and every sum is rounded to it, in one order.

Where both operands are codes, what is summed are codes, less their zero points, and the sum is multiplied by both
scales in float32: as hardware does it. Where one is, numbers are summed: the other operand and what the codes stand
for, rounded to the type first. A bias, and the factors of a Gemm, are of float32 and come behind the sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from graft.core.operators.definition.table import Trait
from graft.core.rewriting.node_pass import Names
from graft.core.rewriting.node_rewrite import (
    add_constant,
    attribute_of,
    channels_of_weights,
    hand_over,
    has_trait,
    is_operator,
)
from graft.datatypes.conversion import convert_nodes
from graft.datatypes.native_float import ORDERED
from graft.datatypes.scaled.products import has_only_integers
from graft.datatypes.shipped import DATATYPES
from graft.datatypes.study import accumulator_named
from graft.errors import RecipeError
from graft.quantization.recipe import Recipe
from graft.quantization.rewriting import Point
from graft.quantization.scales import Scaled
from graft.quantization.sites import BIAS, WEIGHTS, X, chosen, recipe_of_node

OF_BYTES = "custom[int]32"
"""What products of integers of at most 8 bits are summed in anyway."""


def accumulated(model: ir.Model, recipe: Recipe) -> Iterator[tuple[ir.Node, str]]:
    """Yield the products whose sums a recipe gives a type, by what `graft.datatypes` calls it."""
    for node in chosen(model, recipe):
        name = recipe_of_node(node, recipe).accumulators
        if name and channels_of_weights(node) is not None:
            policy = accumulator_named(name)
            yield node, ORDERED.get(policy, policy)


@dataclass(slots=True)
class Sums:
    """Gives products of a quantised model sums of a type; ``points`` are those of its dequantised activations."""

    model: ir.Model
    points: Mapping[ir.Value, Point]
    _names: Names = field(init=False)
    _whole: dict[ir.Value, ir.Value] = field(default_factory=dict)
    """The codes, less their zero points, of dequantised activations."""
    _types: dict[ir.Node, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """Products whose sums may exceed their type."""

    def __post_init__(self) -> None:
        self._names = Names(self.model)

    def add(self, node: ir.Node, dtype: str, weights: Scaled | None) -> None:
        """Let a product, of ``weights`` if they are codes, have its sums in a type; leave it if nothing of it is codes.

        Raises RecipeError for codes that the type does not hold, for codes of many scales in one sum, and for a type of
        whole numbers where not both sides are codes.
        """
        points = {
            place: self.points[value]
            for place, value in enumerate(node.inputs)
            if value is not None and value in self.points
        }
        both = len(points) + (weights is not None) == 2
        if not points and weights is None:
            return
        grids = [*(point.grid for point in points.values()), *([] if weights is None else [weights.grid])]
        if both and dtype == OF_BYTES and all(not grid.is_float and grid.bits <= 8 for grid in grids):
            return
        if not both:
            _require_fractions(node, dtype)
        inputs = list(node.inputs[:BIAS])
        factor: np.ndarray = np.asarray(attribute_of(node, "alpha", 1.0), np.float32)
        if both:
            for place, point in points.items():
                _require(node, dtype, point.grid.numbers() - point.zero)
                inputs[place] = self._codes(node.inputs[place], point)
                factor = np.asarray(factor * point.scale)
        if weights is not None:
            numbers = weights.numbers
            if both:
                numbers = weights.codes - weights.layout.per_element(weights.zero)
                _require(node, dtype, numbers)
                factor = factor * _scale(node, weights)
                self._look_at_range(node, dtype, numbers, points[X])
            inputs[WEIGHTS] = self._constant(f"{node.name}_weights", numbers.astype(np.float32))
        self._types[self._replace(node, inputs, factor)] = dtype

    def _look_at_range(self, node: ir.Node, dtype: str, numbers: np.ndarray, point: Point) -> None:
        """Note a product by weights whose sums of codes may exceed the type."""
        format = DATATYPES.format(dtype)
        channels = (channels_of_weights(node) or 0) % numbers.ndim
        others = tuple(axis for axis in range(numbers.ndim) if axis != channels)
        most = float(np.abs(numbers).sum(axis=others).max() * np.abs(point.grid.numbers() - point.zero).max())
        if format is not None and most > format.largest:
            self.notes.append(
                f"sums of {node.op_type} (node '{node.name}') may reach {most:.4g}, {dtype} {format.largest:.4g}"
            )

    def finish(self) -> None:
        """Convert what was added; raise DatatypeError for operations that a type has not."""
        if self._types:
            convert_nodes(self.model, self._types)

    def _replace(self, node: ir.Node, inputs: list[ir.Value | None], factor: np.ndarray) -> ir.Node:
        """Put a product, its factor and its bias in the place of a node, whose name the last of them has."""
        name, output = node.name or "", node.outputs[0]
        own = {name: one for name, one in node.attributes.items() if name not in ("alpha", "beta")}
        product = ir.node(node.op_type, inputs, own, name=self._names.fresh(f"{name}_sums"))
        rank = self._rank_of_rows(node)
        steps = [product]

        def step(operator: str, other: ir.Value | None) -> None:
            values = [steps[-1].outputs[0], *([] if other is None else [other])]
            steps.append(ir.node(operator, values, name=self._names.fresh(f"{name}_{operator.lower()}")))

        if (factor != 1).any():
            shaped = factor.reshape(-1, *[1] * rank) if factor.ndim else factor
            step("Mul", self._constant(f"{name}_factor", shaped))
        bias, beta = (node.inputs[BIAS] if len(node.inputs) > BIAS else None), attribute_of(node, "beta", 1.0)
        if bias is not None:
            if beta != 1.0 or rank:
                bias = self._bias(node, bias, np.float32(beta), rank)
            step("Add", bias)
        if len(steps) == 1:
            step("Identity", None)
        for one in steps:
            value = one.outputs[0]
            value.name, value.type = self._names.fresh(f"{one.name}_result"), output.type
            value.shape = None if output.shape is None else ir.Shape(output.shape)
        graph = self.model.graph
        graph.insert_before(node, steps)
        hand_over(output, steps[-1].outputs[0])
        graph.remove(node, safe=True)
        steps[-1].name = name
        return product

    def _codes(self, value: ir.Value | None, point: Point) -> ir.Value:
        """Return the codes of an activation, less the zero point, as float32."""
        assert value is not None
        if value not in self._whole:
            back = value.producer()
            assert back is not None, value.name
            one = self._constant(f"{value.name}_one", np.ones((), np.float32))
            node = ir.node("DequantizeLinear", [back.inputs[0], one, *back.inputs[2:]], name=self._names.fresh("whole"))
            made = node.outputs[0]
            made.name, made.type, made.shape = self._names.fresh(f"{value.name}_codes"), value.type, value.shape
            self.model.graph.insert_after(back, node)
            self._whole[value] = made
        return self._whole[value]

    def _bias(self, node: ir.Node, bias: ir.Value, beta: np.float32, rank: int) -> ir.Value:
        """Return a bias, times beta, as a column of channels before ``rank`` axes."""
        for operator, other, wanted in (
            ("Mul", beta, beta != 1.0),
            ("Reshape", np.array([-1, *[1] * rank], np.int64), rank > 0),
        ):
            if wanted:
                operand = self._constant(f"{node.name}_{operator.lower()}", np.asarray(other))
                made = ir.node(operator, [bias, operand], name=self._names.fresh(f"{node.name}_bias_{operator}"))
                self.model.graph.insert_before(node, made)
                bias = made.outputs[0]
                bias.name, bias.type = self._names.fresh(f"{made.name}_result"), ir.TensorType(ir.DataType.FLOAT)
        return bias

    def _constant(self, name: str, array: np.ndarray) -> ir.Value:
        return add_constant(self.model.graph, self._names.fresh(name), array)

    @staticmethod
    def _rank_of_rows(node: ir.Node) -> int:
        """Return how many axes of a product's result lie behind its channels."""
        shape = node.inputs[WEIGHTS].shape if has_trait(node, Trait.CONVOLUTION) else None  # type: ignore[union-attr]
        return 0 if shape is None else len(shape) - 2


def _scale(node: ir.Node, weights: Scaled) -> np.ndarray:
    """Return the scale of each channel of a product's result, or of all."""
    if weights.layout.block:
        raise RecipeError(
            f"the sums of {node.op_type} (node '{node.name}') have no type of their own where groups of "
            f"{weights.layout.block} weights have scales; give weights.granularity = 'channel', or leave "
            "activations in float32",
            field="accumulators",
        )
    if weights.layout.axis is None:
        return weights.scale.reshape(())
    groups = attribute_of(node, "group", 1) if is_operator(node, "ConvTranspose") else 1
    return np.tile(weights.scale, groups)


def _require_fractions(node: ir.Node, dtype: str) -> None:
    """Raise RecipeError if a format holds whole numbers alone."""
    format = DATATYPES.format(dtype)
    if format is not None and has_only_integers(format):
        raise RecipeError(
            f"accumulators of {dtype} add whole numbers, but {node.op_type} (node '{node.name}') multiplies float32; "
            "quantise weights and activations, or give a type with fractions, such as float16",
            field="accumulators",
        )


def _require(node: ir.Node, dtype: str, numbers: np.ndarray) -> None:
    """Raise RecipeError if a format does not hold codes exactly."""
    format = DATATYPES.format(dtype)
    if format is None:
        return
    found = format.to_numbers(format.to_bits(numbers))
    wrong = np.argwhere(found != numbers)
    if len(wrong):
        one, other = numbers[tuple(wrong[0])], found[tuple(wrong[0])]
        raise RecipeError(
            f"accumulators of {dtype} do not hold the codes of {node.op_type} (node '{node.name}'): {one:g} becomes "
            f"{other:g}; give a wider type, such as float32, or codes of fewer bits",
            field="accumulators",
        )
