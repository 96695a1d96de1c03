"""The composites: groups of operators from integers to integers that become one layer."""

from functools import reduce
from operator import or_

from graft.patterns import Composite, is_constant, is_op, wildcard
from graft_ethosu.reading import ELEMENTWISE, JOINING

MOST_CONCATENATED = 12
MOST_LIMITS = 2
WITH_CONSTANTS = (
    "MaxPool", "GlobalMaxPool", "AveragePool", "GlobalAveragePool", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin",
    "Softmax", "Resize", "Slice", "Pad", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose",
)  # fmt: skip
"""Operators of one tensor, and of constants that say where and how."""
MOVES = ("MaxPool", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Concat", "Slice", "Split", "Pad",
         "ReduceMax", "ReduceMin", "ArgMax")  # fmt: skip
"""Operators that take integers as they are."""


def integers():
    """Return numbers that are dequantised."""
    return is_op("DequantizeLinear")(wildcard(), ...)


def weights():
    """Return constants that are dequantised."""
    return is_op("DequantizeLinear")(is_constant(), ...)


def quantised(x):
    """Return ``x``, behind some Relu or Clip maybe, quantised."""
    for _ in range(MOST_LIMITS):
        x = x.optional(lambda x: is_op("Relu")(x) | is_op("Clip")(x, ...))
    return is_op("QuantizeLinear")(x, ...)


def weighted(*names):
    """Return a product by weights, with a bias or without."""
    return is_op(*names)(integers(), weights(), weights() | is_constant()) | is_op(*names)(integers(), weights())


def elementwise():
    """Return chains of operators that a table says, and what multiplies a tensor by such a chain of itself."""
    one = is_op(*ELEMENTWISE)(integers(), ...) | is_op(*JOINING)(integers(), is_constant())
    one = one | is_op(*JOINING)(is_constant(), integers())
    for _ in range(2):
        one = one.optional(lambda x: is_op(*ELEMENTWISE)(x, ...) | is_op(*JOINING)(x, is_constant()))
    return one | is_op("Mul")(integers(), one) | is_op("Mul")(one, integers())


PATTERNS = (
    Composite("ethosu.convolution", quantised(weighted("Conv", "ConvTranspose"))),
    Composite("ethosu.gemm", quantised(weighted("Gemm"))),
    Composite("ethosu.product_bias", quantised(is_op("Add")(
        is_op("MatMul")(integers(), weights()), weights() | is_constant()))),
    Composite("ethosu.product", quantised(is_op("MatMul")(integers(), integers()))),
    Composite("ethosu.window", quantised(is_op(*WITH_CONSTANTS)(integers(), ...))),
    Composite("ethosu.table", is_op("QuantizeLinear")(elementwise(), ...)),
    Composite("ethosu.arithmetic", quantised(is_op("Add", "Sub", "Mul", "Div", "Max", "Min")(
        integers() | is_constant(), integers() | is_constant()))),
    Composite("ethosu.concatenation", quantised(reduce(or_, (
        is_op("Concat")(*(integers() for _ in range(count))) for count in range(MOST_CONCATENATED, 0, -1))))),
    Composite("ethosu.position", is_op("ArgMax")(integers())),
    Composite("ethosu.requantisation", quantised(integers())),
)  # fmt: skip
