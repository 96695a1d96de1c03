"""The composites of the accelerator: what becomes one layer, from bytes to bytes."""

from __future__ import annotations

from functools import reduce
from operator import or_

from graft.patterns import is_constant, is_op, wildcard
from graft.patterns.composite import Composite
from graft.patterns.language import Pattern
from graft.plugins.accelerator.frontend.operators import Kind, operators_of

MOST_CONCATENATED = 16
MOST_LIMITS = 3
BYTES = ("int8", "uint8")


def bytes_of() -> Pattern:
    """Return numbers that are dequantised."""
    return is_op("DequantizeLinear")(wildcard(), ...)


def weights() -> Pattern:
    """Return constants that are dequantised."""
    return is_op("DequantizeLinear")(is_constant(), ...)


def bias() -> Pattern:
    """Return a bias, which may be a constant of floats too."""
    return weights() | is_constant()


def quantized(x: Pattern) -> Pattern:
    """Return ``x``, behind some Relu or Clip maybe, quantised."""
    for _ in range(MOST_LIMITS):
        x = x.optional(lambda x: is_op("Relu")(x) | is_op("Clip")(x, ...))
    return is_op("QuantizeLinear")(x, ...)


def _weighted(kind: Kind) -> Pattern:
    """Return a layer of constant weights, with a bias or without."""
    named = is_op(*operators_of(kind))
    return named(bytes_of(), weights(), bias()) | named(bytes_of(), weights())


def conv() -> Pattern:
    """Return a convolution."""
    return _weighted("convolution")


def gemm() -> Pattern:
    """Return a Gemm of constant weights."""
    return _weighted("gemm")


def matmul() -> Pattern:
    """Return a product, with a bias of one number for each column behind it maybe."""
    return is_op(*operators_of("product"))(bytes_of(), bytes_of())


def concat() -> Pattern:
    """Return tensors behind each other."""
    counts = range(MOST_CONCATENATED, 0, -1)
    return reduce(or_, (is_op(*operators_of("concatenation"))(*(bytes_of() for _ in range(count))) for count in counts))


PATTERNS = (
    Composite("accelerator.convolution", quantized(conv())),
    Composite("accelerator.product_bias", quantized(is_op("Add")(matmul(), bias()))),
    Composite("accelerator.product", quantized(matmul())),
    Composite("accelerator.gemm", quantized(gemm())),
    Composite("accelerator.addition", quantized(is_op(*operators_of("addition"))(bytes_of(), bytes_of()))),
    Composite("accelerator.max_pool", quantized(is_op(*operators_of("maximum"))(bytes_of()))),
    Composite("accelerator.average_pool", quantized(is_op(*operators_of("average"))(bytes_of()))),
    Composite("accelerator.mean", quantized(is_op(*operators_of("mean"))(bytes_of(), is_constant()))),
    Composite("accelerator.concatenation", quantized(concat())),
    Composite("accelerator.requantization", quantized(bytes_of())),
    Composite("accelerator.moved_maximum", is_op("MaxPool")(wildcard()).has_dtype(*BYTES)),
    Composite("accelerator.moved_concatenation", is_op(*operators_of("concatenation")).has_dtype(*BYTES)),
    Composite("accelerator.qlinear_convolution", is_op("QLinearConv")),
    Composite("accelerator.qlinear_product", is_op("QLinearMatMul")),
)
