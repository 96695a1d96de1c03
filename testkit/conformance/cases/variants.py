"""Variants of a model of one operator: other types, special values, other shapes, symbols for dimensions.

None of them knows the operator: a variant that ONNX's checker, its shape inference or the reference refuses is dropped
by whoever runs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

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
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-45, 3e38, -3e38, 1e-8, 1.0, -1.0)
SUBNORMAL = (1e-39, -3e-39, 7e-40, -1e-38)
"""Numbers of float32 below the least normal one, with digits enough for the bounds of `differences`."""
KEEP_SUBNORMALS = frozenset({"Abs", "Add", "Clip", "Identity", "Max", "Min", "Neg", "Relu", "Sub", "Sum"})
"""Operators whose results are as small as their operands, whatever the order in which anything is rounded."""
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


def variants(trial: Trial) -> Iterator[tuple[str, Trial]]:
    """Give a model's variants with their names."""
    yield from _typed(trial)
    special = _special(trial)
    if special is not None:
        yield "special", special
    yield from _subnormal(trial)
    yield from _shaped(trial)
    symbolic = with_symbols(trial)
    if symbolic is not None:
        yield "symbolic", symbolic


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


def _as(array: np.ndarray, dtype: np.typing.DTypeLike) -> np.ndarray:
    if array.dtype != np.float32:
        return array
    with np.errstate(all="ignore"):
        return (np.round(array * 4) if np.dtype(dtype).kind == "i" else array).astype(dtype)


def _typed(trial: Trial) -> Iterator[tuple[str, Trial]]:
    if not any(array.dtype == np.float32 for array in trial.feeds.values()):
        return
    for name, (kind, dtype) in TYPES.items():
        other = retyped(trial, kind, dtype)
        if other is not None:
            yield name, other


def _special(trial: Trial) -> Trial | None:
    """Return the model fed with NaNs, infinities, zeros of both signs, subnormal and very large numbers among others.

    Only what works on each element by itself: elsewhere the order of additions decides between NaN and infinity.
    """
    if not _has(trial.proto, Trait.ELEMENTWISE, Trait.INJECTIVE, Trait.VIEW):
        return None
    feeds = {name: _salted(array, number) for number, (name, array) in enumerate(trial.feeds.items())}
    if all(feeds[name] is trial.feeds[name] for name in feeds):
        return None
    return Trial(trial.proto, feeds)


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
            yield f"shapes-{_text(left)}-{_text(right)}", _resized(trial, (left, right))


def _resized(trial: Trial, shapes: Sequence[tuple[int, ...]]) -> Trial:
    proto = onnx.ModelProto()
    proto.CopyFrom(trial.proto)
    feeds: dict[str, np.ndarray] = {}
    for (name, array), shape in zip(trial.feeds.items(), shapes, strict=True):
        feeds[name] = np.resize(array, shape)
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
