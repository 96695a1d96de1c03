"""The form of a quantised model in which it is trained: codes are weights in floats that are rounded, scales grow.

Each constant of codes becomes a weight that holds what its codes stand for, and that is rounded to the grid of the
codes wherever it is read; the gradient passes straight through. Each scale becomes ``scale 2^t``, where ``t``, zeros
at first, is trained (a step changes a scale by a factor, whatever its size: TQT, arXiv:1903.08066); of scales that are
powers of two ``t`` is rounded, so that they remain such. Biases of int32 are rounded when the model is written alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, numpy_helper
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from graft.core.graph.protos import put_nodes
from graft.core.importer.load import load
from graft.core.importer.source import Source
from graft.core.passes.pipeline import RECORD, record_of
from graft.core.rewriting.node_rewrite import attribute_of, constant_of, is_operator
from graft.errors import ModelError
from graft.quantization.grids import GRIDS, Grid
from graft.quantization.rewriting import GRID
from graft.quantization.scales import Layout
from graft.training.editing import Writer, edited

GROWTH = "log2"
"""Behind a scale's name, what it has grown by, as a logarithm."""
WIDENED = frozenset({"widen-small-integers", "widen-small-floats"})
"""The steps of an import after which types of codes are not what the model says."""
SCALES = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT8E8M0})


@dataclass(frozen=True, slots=True)
class Codes:
    """A constant that one DequantizeLinear reads, or several in the same way, and the weight that it is trained as."""

    name: str
    weight: str
    scale: str
    grid: Grid
    layout: Layout
    zero: np.ndarray


@dataclass(frozen=True, slots=True)
class Bias:
    """A bias of int32, the weight that it is trained as, and the scales whose product is its own, where they are."""

    name: str
    weight: str
    scale: str
    factors: tuple[str, ...]


@dataclass(slots=True)
class QuantizedForm:
    """A QDQ model, what of it is trained, and `model`: the same in floats that are rounded."""

    original: ir.Model
    codes: dict[str, Codes] = field(default_factory=dict)
    biases: dict[str, Bias] = field(default_factory=dict)
    scales: dict[str, np.ndarray] = field(default_factory=dict)
    model: ir.Model = field(init=False)

    @property
    def growths(self) -> frozenset[str]:
        """The names of what scales have grown by."""
        return frozenset(f"{name}_{GROWTH}" for name in self.scales)

    @classmethod
    def of(cls, source: Source) -> QuantizedForm | None:
        """Return the form of a quantised model; None for a model without constant codes and scales.

        Raises ModelError for scales that are not above 0, and for a model that was loaded so that the
        types of its codes are gone.
        """
        loaded = load(source)
        if not any(is_operator(node, "DequantizeLinear") for node in loaded.graph):
            return None
        is_loaded = isinstance(source, ir.Model) and RECORD in source.meta
        if is_loaded and any(step.name in WIDENED for step in record_of(loaded)):
            raise ModelError("the codes of this model were widened when it was loaded; give it as it was before")
        form = cls(_unloaded(source))
        form._find()
        if not form.scales:
            return None
        form.model = form._formed()
        return form

    # ---- What is found -------------------------------------------------------------------------------------------

    def _find(self) -> None:
        nodes = [node for node in self.original.graph if is_operator(node, "QuantizeLinear", "DequantizeLinear")]
        for node in nodes:
            self._find_scale(node)
        for node in nodes:
            if node.op_type == "DequantizeLinear" and constant_of(node.inputs[0]) is not None:
                self._find_codes(node)

    def _find_scale(self, node: ir.Node) -> None:
        value = node.inputs[1]
        scale = constant_of(value)
        if value is None or scale is None or value.dtype not in SCALES:
            return
        numbers = scale.astype(np.float32)
        if not (numbers > 0).all():
            raise ModelError(
                f"{node.op_type} (node '{node.name}'): the scale '{value.name}' holds 0 or less, of which no power of "
                "two can be trained; quantise the model anew",
                node=node.name,
            )
        if all(is_operator(use.node, "QuantizeLinear", "DequantizeLinear") and use.idx == 1 for use in value.uses()):
            self.scales[value.name or ""] = numbers

    def _find_codes(self, node: ir.Node) -> None:
        value, scale, zero = node.inputs[0], node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None
        assert value is not None
        assert scale is not None
        name, point = value.name or "", constant_of(zero)
        if scale.name not in self.scales or (zero is not None and point is None) or value.is_graph_output():
            return
        weight = self._free(name.removesuffix("_codes"))
        if value.dtype is ir.DataType.INT32:
            self.biases[name] = Bias(name, weight, scale.name or "", self._factors(node))
            return
        grid = _grid_of(node, value.dtype)
        shape, own = tuple(constant_of(value).shape), self.scales[scale.name or ""].shape  # type: ignore[union-attr]
        if grid is None or any(_reading(use.node) != _reading(node) for use in value.uses()):
            return
        axis = int(attribute_of(node, "axis", 1)) % len(shape) if own not in ((), (1,)) else None
        layout = Layout(shape, axis, int(attribute_of(node, "block_size", 0)))
        points = np.zeros(own, np.float32) if point is None else point.astype(np.float32)
        self.codes[name] = Codes(name, weight, scale.name or "", grid, layout, layout.spread(points))

    def _free(self, name: str) -> str:
        """Return a name that no value of the model has."""
        taken = ir.convenience.create_value_mapping(self.original.graph)
        while name in taken:
            name = f"{name}_numbers"
        return name

    def _factors(self, node: ir.Node) -> tuple[str, ...]:
        """Return the scales whose product is that of a bias: of both operands of the product that it is added to."""
        consumer = next((use.node for use in node.outputs[0].uses()), None)
        if consumer is None:
            return ()
        makers = [value.producer() for value in consumer.inputs if value is not None and value is not node.outputs[0]]
        if len(makers) == 1 and makers[0] is not None:  # an Add behind the product
            makers = [value.producer() for value in makers[0].inputs if value is not None]
        read = [maker.inputs[1] for maker in makers[:2] if is_operator(maker, "DequantizeLinear")]  # type: ignore[union-attr]
        names = tuple(value.name or "" for value in read if value is not None and value.name in self.scales)
        own = node.inputs[1]
        if len(names) != 2 or own is None:
            return ()
        product = self.scales[names[0]] * self.scales[names[1]]
        return names if np.array_equal(product, self.scales[own.name or ""]) else ()

    # ---- The model in floats -------------------------------------------------------------------------------------

    def _formed(self) -> ir.Model:
        replaced = frozenset((*self.codes, *self.biases, *self.scales))
        return edited(self.original, self._edit, without=replaced)

    def _edit(self, proto: onnx.ModelProto) -> None:
        graph = proto.graph
        replaced = {*self.codes, *self.biases, *self.scales}
        for held in (graph.initializer, graph.input):
            for one in [one for one in held if one.name in replaced]:
                held.remove(one)
        made, constants = onnx.GraphProto(), self._numbers()
        for name, scale in self.scales.items():
            constants[f"{name}_{GROWTH}"] = np.zeros(scale.shape, np.float32)
            _write_scale(made, name, scale)
        graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
        for node in graph.node:
            source = node.input[0] if node.op_type == "DequantizeLinear" and not node.domain else ""
            if source in self.codes:
                _write_rounded(made, node.output[0], self.codes[source])
            elif source in self.biases:
                made.node.add(
                    op_type="Identity", input=[self.biases[source].weight], output=node.output, name=node.name
                )
            else:
                made.node.append(node)
        put_nodes(graph, made.node)

    def _numbers(self) -> dict[str, np.ndarray]:
        """Return what the codes stand for, by the names of the weights."""
        tensors, found = self.original.graph.initializers, {}
        for one in self.codes.values():
            stored = tensors[one.name].const_value.numpy().astype(np.float32)  # type: ignore[union-attr]
            found[one.weight] = ((stored - one.zero) * one.layout.spread(self.scales[one.scale])).astype(np.float32)
        for bias in self.biases.values():
            whole = tensors[bias.name].const_value.numpy()  # type: ignore[union-attr]
            found[bias.weight] = (whole * self.scales[bias.scale].astype(np.float64)).astype(np.float32)
        return found

    # ---- The model in codes --------------------------------------------------------------------------------------

    def written(self, arrays: Mapping[str, np.ndarray]) -> ir.Model:
        """Return the QDQ model with weights of now, by name; those that are not given are as they were."""
        model = self.original.clone()
        tensors, scales = model.graph.initializers, dict(self.scales)

        def put(name: str, array: np.ndarray) -> None:
            tensors[name].const_value = ir.tensor(array.astype(tensors[name].dtype.numpy()), name=name)  # type: ignore[union-attr]

        for name, scale in self.scales.items():
            if (growth := arrays.get(f"{name}_{GROWTH}")) is not None and growth.any():
                grown = np.rint(growth) if _is_power_of_two(scale) else growth
                scales[name] = (scale * np.exp2(grown)).astype(np.float32)
        for bias in self.biases.values():
            if bias.factors:
                scales[bias.scale] = scales[bias.factors[0]] * scales[bias.factors[1]]
        for name, scale in scales.items():
            if scale is not self.scales[name]:
                put(name, scale)
        numbers = {name: array for name, array in arrays.items() if name in tensors}
        for one in self.codes.values():
            if one.weight in arrays:
                scale = one.layout.spread(scales[one.scale]) / np.float32(one.grid.unit)
                numbers[one.name] = one.grid.stored(one.grid.nearest(_places(arrays[one.weight] / scale, one)))
        for bias in self.biases.values():
            if bias.weight in arrays:
                whole = np.rint(arrays[bias.weight] / scales[bias.scale].astype(np.float64))
                numbers[bias.name] = np.clip(whole, -(2**31), 2**31 - 1)
        for name, array in numbers.items():
            put(name, array)
        model.meta.pop(RECORD, None)
        return model


def _places(steps: np.ndarray, one: Codes) -> np.ndarray:
    """Return numbers in steps of their scale as places among the codes."""
    places: np.ndarray = steps if one.grid.is_float else np.rint(steps) + one.zero
    return places


def _reading(node: ir.Node) -> tuple[object, ...]:
    """Return how a node takes codes for numbers."""
    attributes = tuple((name, attribute_of(node, name, 0)) for name in ("axis", "block_size"))
    return node.op_type, tuple(node.inputs[1:]), attributes


def _grid_of(node: ir.Node, dtype: ir.DataType | None) -> Grid | None:
    """Return the numbers that codes may be: as the quantiser wrote, or all that their type has."""
    named = GRIDS.get(node.metadata_props.get(GRID, ""))
    return named or next((grid for grid in GRIDS.values() if grid.dtype is dtype and grid.is_whole), None)


def _unloaded(source: Source) -> ir.Model:
    """Return a copy of a model with types of its own, in which constants are initialisers."""
    if isinstance(source, ir.Model):
        model = source.clone()
    elif isinstance(source, bytes | onnx.ModelProto):
        model = ir.from_proto(onnx.load_model_from_string(source) if isinstance(source, bytes) else source)
    else:
        model = ir.load(source)
    LiftConstantsToInitializersPass(lift_all_constants=False, size_limit=0)(model)
    return model


def _is_power_of_two(scale: np.ndarray) -> bool:
    return bool((np.frexp(scale)[0] == 0.5).all())


# ---- Nodes --------------------------------------------------------------------------------------------------------


def _constant(f: Writer, array: np.ndarray) -> str:
    name = f"{f.name}/{len(f.graph.node)}"
    return f("Constant", value=numpy_helper.from_array(array, name))


def _straight(f: Writer, x: str) -> str:
    """Return the whole numbers next to numbers, through which gradients pass."""
    one, zero = f.number(1.0), f.number(0, TensorProto.INT16)
    return f("DequantizeLinear", f("QuantizeLinear", x, one, zero), one, zero)


def _end(f: Writer, value: str, name: str) -> None:
    f.graph.node.add(op_type="Identity", input=[value], output=[name], name=f"{f.name}/end")


def _write_scale(graph: onnx.GraphProto, name: str, scale: np.ndarray) -> None:
    """Add nodes that make a scale: what it was times a power of two of what is trained."""
    f = Writer(graph, f"{name}/grown", TensorProto.FLOAT)
    growth = f"{name}_{GROWTH}"
    growth = _straight(f, growth) if _is_power_of_two(scale) else growth
    _end(f, f("Mul", _constant(f, scale), f("Exp", f("Mul", growth, f.number(math.log(2))))), name)


def _write_rounded(graph: onnx.GraphProto, name: str, one: Codes) -> None:
    """Add nodes that make a weight a number of its grid, in steps of its scale (LSQ, arXiv:1902.08153)."""
    f = Writer(graph, f"{name}/rounded", TensorProto.FLOAT)
    scale = _spread(f, one)
    if one.grid.unit != 1:
        scale = f("Div", scale, f.number(one.grid.unit))
    low, high = one.grid.low - one.zero, one.grid.high - one.zero
    steps = f("Div", one.weight, scale)
    if one.zero.any() and low.size > 1:
        cut = f("Min", f("Max", steps, _constant(f, low)), _constant(f, high))
    else:
        cut = f("Clip", steps, f.number(low.flat[0]), f.number(high.flat[0]))
    if one.grid.is_float:
        whole, step = one.grid.mantissa, f("Max", f("Abs", cut), f.number(one.grid.smallest * 2**one.grid.mantissa))
        exponent = f("Floor", f("Mul", f("Log", step), f.number(1 / math.log(2))))
        step = f("Exp", f("Mul", f("Sub", exponent, f.number(whole)), f.number(math.log(2))))
        rounded = f("Mul", _straight(f, f("Div", cut, step)), step)
    else:
        rounded = _straight(f, cut)
    _end(f, f("Mul", rounded, scale), name)


def _spread(f: Writer, one: Codes) -> str:
    """Return the scale of a weight in a shape that broadcasts with it."""
    layout = one.layout
    if layout.axis is None:
        return f("Reshape", one.scale, _constant(f, np.array([], np.int64)))
    if not layout.block:
        shape = [-1 if axis == layout.axis else 1 for axis in range(len(layout.shape))]
        return f("Reshape", one.scale, _constant(f, np.array(shape, np.int64)))
    axis = layout.axis
    shape = list(layout.scale_shape)
    blocks = f("Unsqueeze", one.scale, _constant(f, np.array([axis + 1], np.int64)))
    wide = f("Expand", blocks, _constant(f, np.array([*shape[: axis + 1], layout.block, *shape[axis + 1 :]], np.int64)))
    shape[axis] *= layout.block
    wide = f("Reshape", wide, _constant(f, np.array(shape, np.int64)))
    if shape[axis] == layout.shape[axis]:
        return wide
    starts, ends, axes = (_constant(f, np.array([place], np.int64)) for place in (0, layout.shape[axis], axis))
    return f("Slice", wide, starts, ends, axes)
