"""Variants of a model of one operator: other types, special values, other shapes, symbols, constants, one value twice.

None of them knows the operator: a variant that ONNX's checker, its shape inference or the reference refuses is dropped
by whoever runs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import Trait
from graft.testkit.conformance.cases.outcome import Trial

TYPES = {
    "float64": (TensorProto.DOUBLE, np.float64),
    "float16": (TensorProto.FLOAT16, np.float16),
    "bfloat16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
    "int32": (TensorProto.INT32, np.int32),
    "int64": (TensorProto.INT64, np.int64),
}
"""The types that take the place of float32."""
RARE_TYPES = {
    "int8": (TensorProto.INT8, np.int8),
    "int16": (TensorProto.INT16, np.int16),
    "uint8": (TensorProto.UINT8, np.uint8),
    "uint32": (TensorProto.UINT32, np.uint32),
    "uint64": (TensorProto.UINT64, np.uint64),
    "bool": (TensorProto.BOOL, np.bool_),
}
"""Those that are tried with one model of each operator."""
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-45, 3e38, -3e38, 1e-8, 1.0, -1.0)
SUBNORMAL = (1e-39, -3e-39, 7e-40, -1e-38)
"""Numbers of float32 below the least normal one, with digits enough for the bounds of `differences`."""
KEEP_SUBNORMALS = frozenset({"Abs", "Add", "Clip", "Identity", "Max", "Min", "Neg", "Relu", "Sub", "Sum"})
"""Operators whose results are as small as their operands, whatever the order in which anything is rounded."""
ROUNDED = frozenset({
    "Adam", "AffineGrid", "Attention", "DeformConv", "Erf", "Gelu", "GridSample", "GroupNormalization", "HardSwish",
    "Resize",
})  # fmt: skip
"""Operators of float64 that `onnx.reference` computes in float32 in part, or that have attributes of float32."""
UNDEFINED = frozenset({"BatchNormalization", "GridSample", "Resize"})
"""Operators of which nobody says what they make of special values: sums that overflow in one order and not in another,
and places that are no numbers."""
CASTS = frozenset({"Cast", "CastLike"})
"""Operators whose results of integers are anybody's for what is no number, or too large."""
LARGE = {np.dtype(np.int32): 1 << 28, np.dtype(np.int64): 1 << 60}
"""By type a size of integers that float32, or float64, does not have, and of which a few can be added."""
DIGITS = 1 + 2.0**-30
"""The factor of float64 numbers that gives them digits beyond those of float32."""
SHAPES: tuple[tuple[int, ...], ...] = (
    (), (1,), (0, 3), (7,), (3, 3), (1, 1, 1), (2, 3, 17), (3, 1, 2, 5), (257,), (1030,), (4099,), (99991,),
)  # fmt: skip
"""The shapes of elementwise operators: empty, odd, square, and primes up to 10^5 elements."""
BROADCASTS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((2, 3, 4), (4,)), ((2, 3, 4), ()), ((3, 1), (1, 5)), ((4,), (2, 3, 4)), ((1, 3, 1, 1), (2, 3, 4, 5)),
    ((0, 3), (1, 3)), ((3, 3), (3,)), ((3,), (3, 3)), ((3, 3), (3, 1)), ((1, 3), (3, 3)), ((5, 5, 5), (5, 5)),
    ((4, 1, 4), (4, 1)), ((1,), (257,)),
)  # fmt: skip
"""The pairs of shapes of elementwise operators of two operands."""


def variants(trial: Trial, *, all_of_them: bool = True) -> Iterator[tuple[str, Trial]]:
    """Give a model's variants with their names: what one model of an operator shows, only if ``all_of_them``."""
    yield from _typed(trial, TYPES)
    if all_of_them:
        yield from _typed(trial, RARE_TYPES)
        yield from with_operands(trial)
    special = _special(trial)
    if special is not None:
        yield "special", special
    yield from _subnormal(trial)
    yield from _shaped(trial)
    symbolic = with_symbols(trial)
    if symbolic is not None:
        yield "symbolic", symbolic


def with_view(trial: Trial) -> Iterator[tuple[str, Trial]]:
    """Give the model with its first operand transposed before: what a kernel in Python leaves there may be a view."""
    proto = _copy(trial)
    value = next((one for one in proto.graph.input if one.type.tensor_type.elem_type == TensorProto.FLOAT), None)
    if value is None or trial.feeds[value.name].ndim < 2:
        return
    array = np.ascontiguousarray(trial.feeds[value.name].T)
    _set_shape(value, array.shape)
    for node in proto.graph.node:
        node.input[:] = [f"{name}_of_view" if name == value.name else name for name in node.input]
    proto.graph.node.insert(0, onnx.helper.make_node("Transpose", [value.name], [f"{value.name}_of_view"]))
    if is_valid(proto):
        yield "of-a-view", replace(trial, proto=proto, feeds={**trial.feeds, value.name: array})


def with_operands(trial: Trial) -> Iterator[tuple[str, Trial]]:
    """Give the model with one value for two of its inputs, with one, of several, a constant, and with int32 indices."""
    yield from _shared(trial)
    yield from _constant(trial)
    yield from _narrow(trial)


def retyped(trial: Trial, kind: int, dtype: np.typing.DTypeLike) -> Trial | None:
    """Return the model with every float32 tensor of another type; None if that is no valid model."""
    proto = onnx.ModelProto()
    proto.CopyFrom(trial.proto)
    values = [*proto.graph.input, *proto.graph.output, *proto.graph.value_info]
    for value in values:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = kind
    for tensor in proto.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(dtype), tensor.name))
    feeds = {name: _as(array, dtype) for name, array in trial.feeds.items()}
    return Trial(proto, feeds) if is_valid(proto) else None


def is_valid(proto: onnx.ModelProto) -> bool:
    """Whether ONNX's checker and its shape inference take a model."""
    try:
        onnx.checker.check_model(proto)
        onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return False
    return True


def with_symbols(trial: Trial) -> Trial | None:
    """Return the model with a symbol for every extent of its inputs, equal ones for equal extents; None without any."""
    proto = onnx.ModelProto()
    proto.CopyFrom(trial.proto)
    extents = {
        dim.dim_value
        for value in proto.graph.input
        for dim in value.type.tensor_type.shape.dim
        if dim.HasField("dim_value")
    }
    if not extents - {0, 1}:
        return None
    for value in proto.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_value > 1:
                dim.dim_param = f"d{dim.dim_value}"
    for value in proto.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    del proto.graph.value_info[:]
    return replace(trial, proto=proto)


def with_other_extents(trial: Trial) -> Iterator[Trial]:
    """Give a model with symbols, fed in other sizes: all symbols larger by one, one after the other, the batch 0.

    Values are repeated as often as needed; symbols of integers, which may be shapes and indices, stay as they are.
    """
    shapes = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in trial.proto.graph.input
        if value.name in trial.feeds and value.type.tensor_type.HasField("shape")
    }
    if shapes.keys() != trial.feeds.keys():
        return  # of an unknown rank
    symbols = {
        dim: extent
        for name, dims in shapes.items()
        for dim, extent in zip(dims, trial.feeds[name].shape, strict=True)
        if isinstance(dim, str)
    }
    kept = {dim for name, dims in shapes.items() if trial.feeds[name].dtype.kind in "iu" for dim in dims}
    larger = {name: extent + 1 for name, extent in symbols.items() if name not in kept}
    batches = {dims[0] for dims in shapes.values() if dims} & larger.keys() - {
        dim for dims in shapes.values() for dim in dims[1:]
    }
    apart = [{name: larger[name]} for name in larger] if len(larger) > 1 else []
    for bound in filter(None, (larger, *apart, dict.fromkeys(sorted(batches)[:1], 0))):
        extents = {**symbols, **bound}
        feeds = {
            name: np.resize(trial.feeds[name], [extents[dim] if isinstance(dim, str) else dim for dim in dims])
            for name, dims in shapes.items()
        }
        yield Trial(trial.proto, feeds, None, trial.rtol, trial.atol)


def _typed(trial: Trial, types: Mapping[str, tuple[int, type]]) -> Iterator[tuple[str, Trial]]:
    if not any(array.dtype == np.float32 for array in trial.feeds.values()):
        return
    exact = trial.proto.graph.node[0].op_type in KEEP_SUBNORMALS or _has(trial.proto, Trait.DATA_MOVEMENT)
    for name, (kind, dtype) in types.items():
        other = retyped(trial, kind, dtype)
        if other is None:
            continue
        if name == "float64" and trial.proto.graph.node[0].op_type not in ROUNDED:
            feeds = {one: array * DIGITS if array.dtype == dtype else array for one, array in other.feeds.items()}
            other = replace(other, feeds=feeds, rtol=1e-9, atol=1e-11)
        elif name == "float64":
            other = replace(other, rtol=1e-4, atol=1e-5)
        if np.dtype(dtype).kind in "iu" and _operators(trial) & CASTS:
            other = replace(other, feeds={one: _finite(array) for one, array in other.feeds.items()})
        if exact and np.dtype(dtype) in LARGE:
            changed = {one for one, array in trial.feeds.items() if array.dtype == np.float32}
            large = {one: _enlarged(array) if one in changed else array for one, array in other.feeds.items()}
            other = replace(other, feeds=large)
        yield name, other


def _enlarged(array: np.ndarray) -> np.ndarray:
    size = array.dtype.type(LARGE[array.dtype] + 1)
    large: np.ndarray = np.where(array < 0, array - size, array + size)
    return large


def _shared(trial: Trial) -> Iterator[tuple[str, Trial]]:
    """Give the model with one value as two of its inputs, for each two of one type and shape."""
    for one, other in combinations(trial.feeds, 2):
        left, right = trial.feeds[one], trial.feeds[other]
        if (left.dtype, left.shape) != (right.dtype, right.shape):
            continue
        proto = _copy(trial)
        for node in proto.graph.node:
            node.input[:] = [one if name == other else name for name in node.input]
        kept = [value for value in proto.graph.input if value.name != other]
        del proto.graph.input[:]
        proto.graph.input.extend(kept)
        yield f"{one}-for-{other}", Trial(proto, {name: array for name, array in trial.feeds.items() if name != other})


def _constant(trial: Trial) -> Iterator[tuple[str, Trial]]:
    """Give the model with one of its inputs, of several, a constant."""
    for name, array in trial.feeds.items() if len(trial.feeds) > 1 else ():
        proto = _copy(trial)
        kept = [value for value in proto.graph.input if value.name != name]
        del proto.graph.input[:]
        proto.graph.input.extend(kept)
        proto.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        feeds = {one: other for one, other in trial.feeds.items() if one != name}
        yield f"constant-{name}", replace(trial, proto=proto, feeds=feeds)


def _narrow(trial: Trial) -> Iterator[tuple[str, Trial]]:
    """Give the model with its integers of 64 bits, which are shapes, axes and indices, in 32."""
    proto = _copy(trial)
    values = [one for one in proto.graph.input if one.type.tensor_type.elem_type == TensorProto.INT64]
    for value in values:
        value.type.tensor_type.elem_type = TensorProto.INT32
    constants = [one for one in proto.graph.initializer if one.data_type == TensorProto.INT64]
    for tensor in constants:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.int32), tensor.name))
    if (values or constants) and is_valid(proto):
        feeds = {
            name: array.astype(np.int32) if array.dtype == np.int64 else array for name, array in trial.feeds.items()
        }
        yield "int32-indices", replace(trial, proto=proto, feeds=feeds)


def _copy(trial: Trial) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    proto.CopyFrom(trial.proto)
    return proto


def _as(array: np.ndarray, dtype: np.typing.DTypeLike) -> np.ndarray:
    if array.dtype != np.float32:
        return array
    kind = np.dtype(dtype).kind
    with np.errstate(all="ignore"):
        if kind in "iu":
            array = np.round(array * 4)
        return (np.abs(array) if kind == "u" else array).astype(dtype)


def _operators(trial: Trial) -> set[str]:
    return {node.op_type for node in trial.proto.graph.node}


def _finite(array: np.ndarray) -> np.ndarray:
    """Return an array with zeros in the place of what is no finite number."""
    return array if array.dtype.kind not in "fV" else np.where(np.isfinite(array), array, np.zeros_like(array))


def _special(trial: Trial) -> Trial | None:
    """Return the model fed with NaNs, infinities, zeros of both signs, subnormal and very large numbers among others.

    Only what works on each element by itself: elsewhere the order of additions decides between NaN and infinity. What
    is only moved keeps its bits.
    """
    if not _has(trial.proto, Trait.ELEMENTWISE, Trait.INJECTIVE, Trait.VIEW) or _operators(trial) & UNDEFINED:
        return None
    moved = _has(trial.proto, Trait.DATA_MOVEMENT)
    feeds = {name: _salted(array, number) for number, (name, array) in enumerate(trial.feeds.items())}
    if all(feeds[name] is trial.feeds[name] for name in feeds):
        return None
    return Trial(trial.proto, feeds, rtol=0.0, atol=0.0) if moved else Trial(trial.proto, feeds)


def _subnormal(trial: Trial) -> Iterator[tuple[str, Trial]]:
    """Give the model fed with subnormal numbers alone, compared without an absolute bound: a zero is wrong."""
    floats = {name for name, array in trial.feeds.items() if array.dtype == np.float32}
    if trial.proto.graph.node[0].op_type in KEEP_SUBNORMALS and floats == set(trial.feeds):
        feeds = {
            name: np.resize(np.roll(np.array(SUBNORMAL, np.float32), number), array.shape)
            for number, (name, array) in enumerate(trial.feeds.items())
        }
        yield "subnormal", Trial(trial.proto, feeds, rtol=1e-3, atol=0.0)


def _salted(array: np.ndarray, number: int) -> np.ndarray:
    if array.dtype not in (np.float32, np.float64) or array.size == 0:
        return array
    salted = np.array(array).reshape(-1)
    count = min(len(SPECIAL), max(1, salted.size // 2))
    places = np.linspace(0, salted.size - 1, count).astype(int)
    salted[places] = np.roll(np.array(SPECIAL, array.dtype), 5 * number)[:count]
    return salted.reshape(array.shape)


def _shaped(trial: Trial) -> Iterator[tuple[str, Trial]]:
    """Give an elementwise operator on other shapes, its operands' values repeated as often as needed."""
    arrays = list(trial.feeds.values())
    if not _has(trial.proto, Trait.ELEMENTWISE) or trial.proto.graph.initializer:
        return
    if any(array.size == 0 for array in arrays) or len({array.shape for array in arrays}) != 1:
        return
    for shape in SHAPES:
        yield f"shape-{_text(shape)}", _resized(trial, [shape] * len(arrays))
    if len(arrays) == 2:
        for left, right in BROADCASTS:
            resized = _resized(trial, (left, right))
            yield f"shapes-{_text(left)}-{_text(right)}", resized
            symbolic = with_symbols(resized) if np.broadcast_shapes(left, right) not in (left, right) else None
            if symbolic is not None:  # each operand is stretched, and either may grow alone
                yield f"shapes-{_text(left)}-{_text(right)}-symbolic", symbolic


def _resized(trial: Trial, shapes: Sequence[tuple[int, ...]]) -> Trial:
    proto = onnx.ModelProto()
    proto.CopyFrom(trial.proto)
    feeds: dict[str, np.ndarray] = {}
    for (name, array), shape in zip(trial.feeds.items(), shapes, strict=True):
        feeds[name] = np.resize(array if shape else array.min(), shape)  # of one element the one that is most unlike
        _set_shape(next(value for value in proto.graph.input if value.name == name), shape)
    result = np.broadcast_shapes(*shapes)
    for value in proto.graph.output:
        _set_shape(value, result)
    return Trial(proto, feeds)


def _set_shape(value: onnx.ValueInfoProto, shape: Sequence[int]) -> None:
    value.type.tensor_type.shape.Clear()
    for extent in shape:
        value.type.tensor_type.shape.dim.add().dim_value = extent


def _has(proto: onnx.ModelProto, *traits: Trait) -> bool:
    node = proto.graph.node[0]
    operator = OPERATORS.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    return operator is not None and not operator.traits.isdisjoint(traits)


def _text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
