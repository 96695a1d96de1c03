"""Shapes of operators that compute each element, or each row, by itself."""

from __future__ import annotations

from collections.abc import Mapping

from graft.core.operators.definition.facts import Facts, Shape, ShapeRule, broadcast

_LIKE_FIRST = """
    Abs Acos Acosh Asin Asinh Atan Atanh Bernoulli BitwiseNot Cast CastLike Ceil Celu Clip Cos Cosh CumProd CumSum
    DequantizeLinear Elu Erf Exp EyeLike Floor Gelu GroupNormalization HardSigmoid HardSwish Hardmax Identity
    InstanceNormalization IsInf IsNaN LRN LeakyRelu Log LogSoftmax LpNormalization MeanVarianceNormalization Mish Neg
    Not PRelu QuantizeLinear RandomNormalLike RandomUniformLike Reciprocal Relu ReverseSequence RotaryEmbedding Round
    Scatter ScatterElements ScatterND Selu Shrink Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Swish Tan Tanh
    TensorScatter ThresholdedRelu Trilu
"""
BROADCAST = frozenset({
    "Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual",
    "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Sum", "Where", "Xor",
})  # fmt: skip
"""The operators that broadcast all of their inputs."""


def _like_first(facts: Facts) -> list[Shape | None]:
    return [facts.shape(0)]


def _like_first_twice(facts: Facts) -> list[Shape | None]:
    return [facts.shape(0), facts.shape(0)]


def _broadcast(facts: Facts) -> list[Shape | None]:
    return [broadcast(*facts.shapes, ranges=facts.ranges)]


def _batch_normalization(facts: Facts) -> list[Shape | None]:
    return [facts.shape(0), facts.shape(3), facts.shape(4)]


def _dynamic_quantize(facts: Facts) -> list[Shape | None]:
    return [facts.shape(0), (), ()]


def _layer_normalization(facts: Facts) -> list[Shape | None]:
    """Return the shape of the result, and twice that of the statistics: 1 along the axes of a row."""
    shape = facts.shape(0)
    if shape is None:
        return []
    axis = facts.attribute("axis", -1) % max(1, len(shape))
    rows = (*shape[:axis], *(1 for _ in shape[axis:]))
    return [shape, rows, rows]


RULES: Mapping[str, ShapeRule] = {
    **dict.fromkeys(_LIKE_FIRST.split(), _like_first),
    **dict.fromkeys(BROADCAST, _broadcast),
    "BatchNormalization": _batch_normalization,
    "Dropout": _like_first_twice,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "LayerNormalization": _layer_normalization,
    "RMSNormalization": _layer_normalization,
}
