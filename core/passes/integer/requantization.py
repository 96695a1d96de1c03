"""Quantised tensors moved, pooled and quantised anew without a detour over floats."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from graft.core.passes.integer.quantized_tensors import RANGES, Emitter, Quantization, activation, quantization_of
from graft.core.rewriting import node_rewrite as rewrite
from graft.core.rewriting.node_pass import Names

SIGNED_SHIFT = 128


def make_unsigned(node: ir.Node, names: Names) -> bool:
    """Let a QuantizeLinear to int8 give uint8, every number and the zero point 128 more, if only dequantised again."""
    found, output = quantization_of(node, "QuantizeLinear"), node.outputs[0]
    if found is None or not found.per_tensor or output.dtype is not ir.DataType.INT8 or output.is_graph_output():
        return False
    readers = [use.node for use in output.uses()]
    meanings = [quantization_of(reader, "DequantizeLinear") for reader in readers]
    if any(meaning is None or not meaning.per_tensor for meaning in meanings):
        return False
    for reader, meaning in zip([node, *readers], [found, *meanings], strict=True):
        assert meaning is not None, reader.name
        emitter = Emitter(reader, names)
        point = emitter.constant("unsigned_zero", np.array(meaning.point + SIGNED_SHIFT, np.uint8))
        if len(reader.inputs) < 3:
            reader.resize_inputs(3)
        reader.replace_input_with(2, point)
    node.attributes.pop("output_dtype", None)
    output.type = ir.TensorType(ir.DataType.UINT8)
    return True


def move_integers(node: ir.Node, names: Names) -> bool:
    """Let an operator that hands elements on, or the largest of some, do so before they are dequantised."""
    if not rewrite.hands_on(node) or len(node.outputs) != 1:
        return False
    found = [activation(value) for value in rewrite.moved_inputs(node)]
    first = found[0]
    if first is None:
        return False
    sources = [
        one[0] for one in found if one is not None and one[1].equals(first[1]) and one[0].dtype is first[0].dtype
    ]
    if len(sources) < len(found):
        return False
    emitter = Emitter(node, names)
    moved = emitter.again([*sources, *node.inputs[len(found) :]], first[0].dtype, node.outputs[0].shape)
    emitter.replace(emitter.dequantize(moved, first[1]))
    return True


def pool_integers(node: ir.Node, names: Names) -> bool:
    """Let the mean over some axes of a quantised tensor be a sum of integers, rescaled."""
    axes, found = _mean_axes(node), activation(node.inputs[0]) if node.inputs else None
    shape, output = rewrite.known_shape(node.inputs[0]) if node.inputs else None, rewrite.known_shape(node.outputs[0])
    if not axes or found is None or shape is None or output is None or 0 in shape:
        return False
    extents = [extent for axis in axes if isinstance(extent := shape[axis], int)]
    if len(extents) < len(axes):
        return False
    emitter, (source, meaning) = Emitter(node, names), found
    count = math.prod(extents)
    wide = emitter.emit("Cast", [source], ir.DataType.INT32, shape, to=int(ir.DataType.INT32))
    operands = [wide, emitter.constant("axes", np.array(axes, np.int64))]
    total = emitter.emit("ReduceSum", operands, ir.DataType.INT32, output, keepdims=int(len(output) == len(shape)))
    if meaning.point:
        shift = emitter.constant("shift", np.array(-meaning.point * count, np.int32))
        total = emitter.emit("Add", [total, shift], ir.DataType.INT32, output)
    value = emitter.emit("Cast", [total], ir.DataType.FLOAT, output, to=int(ir.DataType.FLOAT))
    factor = emitter.constant("factor", np.array(meaning.factor / np.float32(count), np.float32))
    emitter.replace(emitter.emit("Mul", [value, factor], ir.DataType.FLOAT, output))
    return True


def _mean_axes(node: ir.Node) -> list[int]:
    """Return the axes over which a node takes the mean; none if it does not, or not of all along an axis."""
    shape, output = rewrite.known_shape(node.inputs[0]) if node.inputs else None, rewrite.known_shape(node.outputs[0])
    if shape is None or output is None:
        return []
    if rewrite.is_operator(node, "GlobalAveragePool"):
        return list(range(2, len(shape)))
    if rewrite.is_operator(node, "AveragePool"):
        whole = tuple(rewrite.attribute_of(node, "kernel_shape", ())) == shape[2:] and all(
            one == 1 for one in output[2:]
        )
        return list(range(2, len(shape))) if whole and not any(rewrite.attribute_of(node, "pads", ())) else []
    if not rewrite.is_operator(node, "ReduceMean") or len(node.inputs) < 2:
        return []
    axes = rewrite.constant_of(node.inputs[1])
    return [] if axes is None else sorted(int(axis) % len(shape) for axis in axes.reshape(-1))


def may_stay_in_floats(node: ir.Node, order: Mapping[ir.Node, int]) -> bool:
    """Whether numbers of a product are quantised only for this DequantizeLinear, and its reader is computed behind it.

    Of two products that are added, the sum is computed behind the one that is first in ``order``.
    """
    found = _product_behind(node)
    if found is None or node.outputs[0].is_graph_output():
        return False
    readers = [use.node for use in node.outputs[0].uses()]
    others = [value.producer() for reader in readers for value in reader.inputs if value is not None]
    rivals = [other for other in others if other is not None and other is not node]
    products = [_product_behind(rival) for rival in rivals]
    first = all(product is None or order[found] < order[product] for product in products)
    return first and not any(_stays_in_floats(rival) for rival in rivals)


def _stays_in_floats(node: ir.Node) -> bool:
    """Whether a node is the last of what `stay_in_floats` makes."""
    clipped = node.inputs[0].producer() if rewrite.is_operator(node, "Mul") and node.inputs[0] is not None else None
    rounded = (
        clipped.inputs[0].producer() if rewrite.is_operator(clipped, "Clip") and clipped and clipped.inputs[0] else None
    )
    return rewrite.is_operator(rounded, "Round")


def stay_in_floats(node: ir.Node, names: Names) -> None:
    """Let numbers that are quantised and only dequantised again be rounded and clamped as floats.

    ``(saturate(round(x) + zero) - zero) * factor`` is ``clip(round(x), low - zero, high - zero) * factor``.
    """
    maker = _quantizer(node)
    before, after = quantization_of(maker, "QuantizeLinear"), quantization_of(node, "DequantizeLinear")
    assert maker is not None, node.name
    assert before is not None, maker.name
    assert after is not None, node.name
    dtype, value = maker.outputs[0].dtype, maker.inputs[0]
    assert dtype is not None, maker.name
    assert value is not None, maker.name
    emitter, limits = Emitter(node, names), zip(("low", "high"), RANGES[dtype], strict=True)
    rounded = emitter.emit("Round", [value], ir.DataType.FLOAT, value.shape)
    bounds = [emitter.constant(name, np.array(bound - before.point, np.float32)) for name, bound in limits]
    clipped = emitter.emit("Clip", [rounded, *bounds], ir.DataType.FLOAT, value.shape)
    factor = emitter.constant("factor", np.array(after.factor, np.float32))
    emitter.replace(emitter.emit("Mul", [clipped, factor], ir.DataType.FLOAT, value.shape))


def _quantizer(node: ir.Node) -> ir.Node | None:
    """The QuantizeLinear whose numbers only this DequantizeLinear reads."""
    whole = node.inputs[0] if rewrite.is_operator(node, "DequantizeLinear") else None
    maker = None if whole is None or not rewrite.sole_use(whole) else whole.producer()
    return maker if maker is not None and rewrite.is_operator(maker, "QuantizeLinear") else None


def _product_behind(node: ir.Node) -> ir.Node | None:
    """The last node of a rescaled product that is quantised by 1 and dequantised by this node; None if it is not so."""
    maker = _quantizer(node)
    before, after = quantization_of(maker, "QuantizeLinear"), quantization_of(node, "DequantizeLinear")
    if maker is None or before is None or after is None or not (before.per_tensor and after.per_tensor):
        return None
    if before.factor != 1 or before.point != after.point or maker.outputs[0].dtype not in RANGES:
        return None
    scaled = None if maker.inputs[0] is None else maker.inputs[0].producer()
    return scaled if scaled is not None and rewrite.is_operator(scaled, "Mul", "Add") else None


def simplify_quantization(node: ir.Node, names: Names) -> bool:
    """Simplify what comes before a QuantizeLinear of one scale.

    1. numbers dequantised by the same scale and zero point are what they were
    2. Relu and Clip at bounds beyond which numbers saturate disappear
    3. the factor of integers before it takes in its scale
    4. so do the scales of two dequantised tensors that are added before it: nothing is divided at run time
    """
    found = quantization_of(node, "QuantizeLinear")
    if found is None or not found.per_tensor or node.outputs[0].dtype not in RANGES:
        return False
    value = node.inputs[0]
    before = activation(value)
    if before is not None and before[1].equals(found) and before[0].dtype is node.outputs[0].dtype:  # case 1
        Emitter(node, names).replace(before[0])
        return True
    producer = None if value is None else value.producer()
    if producer is not None and _saturates(producer, found, RANGES[node.outputs[0].dtype]):  # case 2
        node.replace_input_with(0, producer.inputs[0])
        return True
    if found.factor == 1 or value is None:
        return False
    return _take_in(node, value, found, names) or _take_in_sum(node, value, found, names)  # cases 3 and 4


def _saturates(node: ir.Node, meaning: Quantization, limits: tuple[int, int]) -> bool:
    """Whether numbers that the node changes are quantised as what it changes them to."""
    if rewrite.is_operator(node, "Relu"):
        low, high = np.float32(0), np.float32(np.inf)
    elif rewrite.is_operator(node, "Clip"):
        bounds = [rewrite.constant_of(value) for value in node.inputs[1:3]]
        present = [value is not None for value in node.inputs[1:3]]
        if any(there and (bound is None or bound.size != 1) for there, bound in zip(present, bounds, strict=True)):
            return False
        low = np.float32(-np.inf) if not bounds or bounds[0] is None else bounds[0].reshape(-1)[0]
        high = np.float32(np.inf) if len(bounds) < 2 or bounds[1] is None else bounds[1].reshape(-1)[0]
    else:
        return False
    least, most = (np.rint(bound / meaning.factor) + meaning.point for bound in (low, high))
    return bool(least <= limits[0] and most >= limits[1])


def _take_in(node: ir.Node, value: ir.Value, meaning: Quantization, names: Names) -> bool:
    """Divide the factor, and a bias behind it, by the scale that their result is quantised with."""
    scaled, bias = value.producer(), None
    if scaled is not None and rewrite.is_operator(scaled, "Add") and rewrite.sole_use(value):
        bias = rewrite.constant_of(scaled.inputs[1])
        product = scaled.inputs[0]
        scaled = None if bias is None or product is None or not rewrite.sole_use(product) else product.producer()
    if scaled is None or not rewrite.is_operator(scaled, "Mul") or not rewrite.sole_use(scaled.outputs[0]):
        return False
    whole, factor = scaled.inputs[0], rewrite.constant_of(scaled.inputs[1])
    cast = None if whole is None else whole.producer()
    if factor is None or factor.dtype != np.float32 or cast is None or not rewrite.is_operator(cast, "Cast"):
        return False
    if cast.inputs[0] is None or cast.inputs[0].dtype is not ir.DataType.INT32:
        return False
    emitter = Emitter(node, names)
    scaled.replace_input_with(1, emitter.constant("factor", factor / meaning.factor))
    if bias is not None:
        adding = value.producer()
        assert adding is not None, value.name
        adding.replace_input_with(1, emitter.constant("bias", bias / meaning.factor))
    node.replace_input_with(1, emitter.constant("one", np.ones((), np.float32)))
    return True


def _take_in_sum(node: ir.Node, value: ir.Value, meaning: Quantization, names: Names) -> bool:
    """Divide the scales of the tensors that are added by the scale that the sum is quantised with."""
    adding = value.producer()
    if adding is None or not rewrite.is_operator(adding, "Add", "Sub") or not rewrite.sole_use(value):
        return False
    found = [activation(operand) for operand in adding.inputs]
    operands = [one for one in found if one is not None]
    if len(operands) < 2:
        return False
    emitter = Emitter(adding, names)
    for number, (source, own) in enumerate(operands):
        scaled = Quantization(own.scale / meaning.factor, own.zero)
        adding.replace_input_with(number, emitter.dequantize(source, scaled))
    node.replace_input_with(1, emitter.constant("one", np.ones((), np.float32)))
    return True
