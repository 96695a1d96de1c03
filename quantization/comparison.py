"""Comparison: a quantised model beside the float model that it came from, layer by layer, on data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.core.importer.load import load
from graft.core.importer.source import SOURCE, Source
from graft.core.rewriting.node_rewrite import constant_of, hands_on, is_operator
from graft.core.shapes.sample_inputs import sample_inputs
from graft.core.types import CUSTOM_DOMAIN
from graft.datatypes.scaled.blocks import ScaledArray
from graft.datatypes.scaled.operators import DOMAIN, scaled_type_of
from graft.datatypes.scaled.scaled_type import ScaledType
from graft.datatypes.study import Errors, LayerRow
from graft.errors import RecipeError
from graft.plugins.registry.manager import MANAGER
from graft.quantization.caches import with_inputs_of
from graft.quantization.grids import GRIDS
from graft.quantization.metrics import Metric, Scores
from graft.quantization.preparation import MOVED, in_floats, preparation_of
from graft.quantization.sites import X
from graft.quantization.statistics.data import Batches, Feeds, Given
from graft.quantization.statistics.observation import Running
from graft.runtime.arguments import FUNCTION, SHAPES, WHOLE, optional, takes

if TYPE_CHECKING:
    from graft.plugins.registry.manager import PluginManager


BEHIND_BLOCKS = ("Add", "Mul", "Reshape", "Transpose")
"""What stands behind a product in blocks, in the layer that it was: a bias, factors, the order of axes."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Errors of a quantised model against its float model.

    A row of ``layers`` is a node with quantised inputs: the error of its result inside the model; of its first input
    how many elements saturated (the range of the codes ends before them) and how many underflowed (became 0). A result
    is invalid that is NaN, or infinite where the float model's is not: such a row has no signal (minus infinity). Where
    the float model's is NaN inside, nothing is compared. Layers between which factors were moved have other results by
    intent and are no rows. ``metric`` and ``float_metric`` are None without labels and without a metric.
    """

    layers: tuple[LayerRow, ...]
    outputs: tuple[LayerRow, ...]
    float_metric: float | None
    metric: float | None
    batches: int

    @property
    def snr_db(self) -> float:
        """The least signal-to-noise ratio of an output."""
        return min(row.snr_db for row in self.outputs)

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON data."""
        return {**asdict(self), "snr_db": self.snr_db}


@takes(
    original=SOURCE, quantized=SOURCE, metric=optional(FUNCTION), shapes=optional(SHAPES), threads=optional(WHOLE),
    manager=optional(MANAGER),
)  # fmt: skip
def compare(
    original: Source,
    quantized: Source,
    data: Given | None = None,
    *,
    metric: Metric | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int | None = None,
    manager: PluginManager | None = None,
) -> Comparison:
    """Run a float model and a quantised one on data (seeded random inputs without) and compare layers and outputs.

    ``data`` are as for `graft.quantize`; ``metric`` gets the outputs of all rows by name and the labels, None if there
    are none, and gives a number, the larger the better. Raises RecipeError if the models have different outputs, and
    where one of the float model is NaN on the data.
    """
    codes = load(quantized, shapes=shapes)
    floats = in_floats(original, shapes, **preparation_of(codes))
    outputs = [value.name or "" for value in floats.graph.outputs]
    if outputs != [value.name for value in codes.graph.outputs]:
        other = ", ".join(value.name or "" for value in codes.graph.outputs)
        raise RecipeError(f"the models have different outputs: {', '.join(outputs)} and {other}")
    layers, codes = quantized_layers(floats, codes), with_inputs_of(codes, floats)
    running = Running(threads, manager)
    run_floats = running.runner(floats, [layer.float_name for layer in layers])
    run_codes = running.runner(codes, [name for layer in layers for name in layer.code_names])
    whole, own, float_scores, scores = (
        {name: Errors() for name in outputs},
        [Errors() for _ in layers],
        Scores(),
        Scores(),
    )
    batches = 0
    for batch in Batches(sample_inputs(floats) if data is None else data, floats):
        exact, found = run_floats(batch.feeds), run_codes(batch.feeds)
        for layer, errors in zip(layers, own, strict=True):
            layer.add(errors, found, exact[layer.float_name])
        for name, errors in whole.items():
            require_numbers(name, exact[name], batch.feeds)
            errors.add(found[name], exact[name], np.inf, 0.0)
        for one, values in ((float_scores, exact), (scores, found)):
            one.add({name: values[name] for name in outputs}, batch.labels)
        batches += 1
    rows = (LayerRow.of(layer.name, layer.operator, errors) for layer, errors in zip(layers, own, strict=True))
    totals = tuple(LayerRow.of(name, "output", errors) for name, errors in whole.items())
    return Comparison(tuple(rows), totals, float_scores.value(metric), scores.value(metric), batches)


def require_numbers(name: str, exact: np.ndarray, feeds: Feeds) -> None:
    """Raise RecipeError where an output of the float model holds NaN, beside which nothing can be compared."""
    count = int(np.count_nonzero(np.isnan(exact)))
    if count:
        given = (one for one, array in feeds.items() if array.dtype.kind == "f" and not np.isfinite(array).all())
        cause = next((f"whose '{one}' holds NaN or infinity" for one in given), "which are finite")
        raise RecipeError(
            f"output '{name}' of the float model has {count} elements that are NaN on the data, {cause}; mend the "
            "data, or the model",
            output=name,
        )


class _Quantized(Protocol):
    """What is quantised as the first input of a layer, by the values of the model of codes that show it."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of these values."""

    def count(self, errors: Errors, found: Mapping[str, np.ndarray]) -> None:
        """Count the elements that saturated, and those that became 0, of a batch."""


@dataclass(frozen=True, slots=True)
class _Range:
    """A value that is quantised: the ends of what its codes hold, and half its smallest step."""

    value: str
    low: float
    high: float
    half: float

    @property
    def names(self) -> tuple[str, ...]:
        return (self.value,)

    def count(self, errors: Errors, found: Mapping[str, np.ndarray]) -> None:
        x = found[self.value]
        errors.saturated += int(np.count_nonzero((x < self.low) | (x > self.high)))
        errors.underflowed += int(np.count_nonzero((x != 0) & (np.abs(x) < self.half)))


@dataclass(frozen=True, slots=True)
class _Blocks:
    """A value that is encoded in blocks of a scaled type along an axis, its elements and its scales."""

    value: str
    elements: str
    scales: str
    type: ScaledType
    axis: int
    tensor_scale: float

    @property
    def names(self) -> tuple[str, ...]:
        return self.value, self.elements, self.scales

    def count(self, errors: Errors, found: Mapping[str, np.ndarray]) -> None:
        x, elements = found[self.value], found[self.elements]
        array = ScaledArray(self.type, elements, found[self.scales], self.axis % x.ndim, self.tensor_scale)
        largest = array.spread(array.scale_numbers() * (self.type.element_format.largest * self.tensor_scale))
        errors.saturated += int(np.count_nonzero(np.abs(x) > largest))
        errors.underflowed += int(np.count_nonzero((x != 0) & (array.element_numbers() == 0)))


@dataclass(frozen=True, slots=True)
class Layer:
    """A node that both models have, with quantised inputs in one of them."""

    name: str
    operator: str
    float_name: str
    code_name: str
    quantized: _Quantized | None
    """What is quantised as its first input."""

    @property
    def code_names(self) -> tuple[str, ...]:
        """The values of the model of codes that errors are counted in."""
        return (self.code_name, *(() if self.quantized is None else self.quantized.names))

    def add(self, errors: Errors, found: Mapping[str, np.ndarray], exact: np.ndarray) -> None:
        """Add the errors of a batch: the values of the model of codes, and what the result is in floats."""
        errors.add(found[self.code_name], exact, np.inf, 0.0)
        if self.quantized is not None:
            self.quantized.count(errors, found)


def quantized_layers(floats: ir.Model, codes: ir.Model) -> list[Layer]:
    """Return the nodes that both models have, with quantised inputs in one, but those between which factors moved.

    What is computed in blocks of a scaled type, or summed in a type of its own, has the name of the product it was.
    """
    known = {node.name: node for node in floats.graph}
    moved = codes.metadata_props.get(MOVED, "").splitlines()
    has_forms = not codes.graph.opset_imports.keys().isdisjoint((DOMAIN, CUSTOM_DOMAIN))
    found = []
    for node in codes.graph:
        scaled = [value.producer() for value in node.inputs if value is not None]
        before = known.get(node.name)
        if before is None or node.name in moved:
            continue
        has_form = has_forms and (node.domain, node.op_type) != (before.domain, before.op_type)
        if has_form or (any(is_operator(one, "DequantizeLinear") for one in scaled) and not hands_on(node)):
            names = before.outputs[0].name or "", node.outputs[0].name or ""
            found.append(Layer(node.name or "", before.op_type, *names, _blocks(node) or _range(node)))
    return found


def _blocks(node: ir.Node) -> _Blocks | None:
    """Return what a product in blocks multiplies from the left, for the last node of its layer."""
    product = _before(node, lambda one: one.op_type not in BEHIND_BLOCKS or one.domain != "")
    if product is None or (product.domain, product.op_type) != (DOMAIN, "MatMul"):
        return None
    encode = _before(product, lambda one: (one.domain, one.op_type) == (DOMAIN, "Encode"))
    value = None if encode is None else encode.inputs[X]
    if encode is None or value is None:
        return None
    whole = constant_of(encode.inputs[1]) if len(encode.inputs) > 1 else None
    elements, scales = (made.name or "" for made in encode.outputs)
    view, factor = NodeView(encode), 1.0 if whole is None else float(whole)
    return _Blocks(value.name or "", elements, scales, scaled_type_of(view), view.attribute("axis", -1), factor)


def _before(node: ir.Node, wanted: Callable[[ir.Node], bool]) -> ir.Node | None:
    """Return the first node that is wanted, of a node and those that make its first input, that one's, and so on."""
    one: ir.Node | None = node
    while one is not None and not wanted(one):
        value = one.inputs[X] if one.inputs else None
        one = None if value is None else value.producer()
    return one


def _range(node: ir.Node) -> _Range | None:
    value = node.inputs[X]
    while value is not None and (one := value.producer()) is not None and _is_of(one, node):
        value = one.inputs[X]
    back = _maker(value, "DequantizeLinear")
    there = None if back is None else _maker(back.inputs[0], "QuantizeLinear")
    value = None if there is None else there.inputs[0]
    if there is None or value is None:
        return None
    scale, zero = constant_of(there.inputs[1]), constant_of(there.inputs[2]) if len(there.inputs) > 2 else None
    grid = next((one for one in GRIDS.values() if one.dtype is there.outputs[0].dtype), None)
    if scale is None or scale.size != 1 or grid is None:
        return None
    point, factor = 0.0 if zero is None else float(zero.reshape(())), float(scale.reshape(()))
    half = factor * grid.smallest / 2
    low, high = ((end - point) * factor for end in (grid.low, grid.high))
    edge = 0.0 if grid.is_float else half
    return _Range(value.name or "", low - edge, high + edge, half)


def _is_of(node: ir.Node, last: ir.Node) -> bool:
    """Whether a node computes in a custom type, or is a factor behind such a sum, for the last node of a layer."""
    name = node.name or ""
    return node.domain == CUSTOM_DOMAIN or (is_operator(node, "Mul") and name.startswith(f"{last.name}_"))


def _maker(value: ir.Value | None, operator: str) -> ir.Node | None:
    """Return the node that makes a value, if it is of an operator."""
    node = None if value is None else value.producer()
    return node if is_operator(node, operator) else None
