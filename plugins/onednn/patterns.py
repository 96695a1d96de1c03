"""The composites of oneDNN, in order of preference: what one primitive computes with its post-operations.

ONNX's Conv and Gemm have the bias as an input; behind a MatMul it is an Add of a constant. ``anchor`` is the operator
that names the primitive, ``other`` the tensor that a residual connection adds, ``activation`` the last operator.
"""

from __future__ import annotations

from graft.patterns import is_constant, is_op, wildcard
from graft.patterns.composite import Composite
from graft.patterns.language import Pattern
from graft.plugins.onednn.checks import match_supported, scale_shift_supported, written_out_supported
from graft.plugins.onednn.operators import ROWS
from graft.plugins.product_patterns import gemm, matmul, matmul_bias

ACTIVATIONS = ("Sigmoid", "Tanh", "Elu", "LeakyRelu", "HardSwish", "HardSigmoid", "Mish", "Softplus", "Gelu", "Swish")
CONVOLUTION = is_op(*(name for name, row in ROWS.items() if row.kind == "convolution"))


def conv() -> Pattern:
    """Return a convolution without bias."""
    return CONVOLUTION(wildcard(), is_constant()).named("anchor")


def conv_bias() -> Pattern:
    """Return a convolution with a bias: its third input, or an addition of one value per channel."""
    inside = CONVOLUTION(wildcard(), is_constant(), is_constant().named("bias")).named("anchor")
    return inside | is_op("Add")(conv(), is_constant().named("bias"))


def plus(x: Pattern) -> Pattern:
    """Return ``x`` plus a tensor of the same shape: a residual connection."""
    return is_op("Add")(x, wildcard().named("other"))


def relu(x: Pattern) -> Pattern:
    """Return Relu of ``x``."""
    return is_op("Relu")(x).named("activation")


def clip(x: Pattern) -> Pattern:
    """Return Clip of ``x`` (Relu6 and its kin)."""
    return is_op("Clip")(x, ...).named("activation")


def activation(x: Pattern) -> Pattern:
    """Return one of the other activations of ``x``."""
    return is_op(*ACTIVATIONS)(x).named("activation")


def swish(x: Pattern) -> Pattern:
    """Return ``x * sigmoid(x)``."""
    return is_op("Mul")(x, is_op("Sigmoid")(x))


def gelu_erf(x: Pattern) -> Pattern:
    """Return Gelu as exporters write it out: ``0.5 x (1 + erf(x / sqrt 2))``, the factors in any order."""
    scaled = is_op("Div")(x, is_constant(2**0.5)) | is_op("Mul")(x, is_constant(0.5**0.5))
    gate = is_op("Add")(is_op("Erf")(scaled), is_constant(1.0))
    return is_op("Mul")(is_op("Mul")(x, gate), is_constant(0.5)) | is_op("Mul")(is_op("Mul")(x, is_constant(0.5)), gate)


def gelu_tanh(x: Pattern) -> Pattern:
    """Return the tanh form: ``0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))``."""
    cube = is_op("Pow")(x, is_constant(3.0)) | is_op("Mul")(is_op("Mul")(x, x), x)
    inner = is_op("Add")(x, is_op("Mul")(cube, is_constant(0.044715)))
    gate = is_op("Add")(
        is_op("Tanh")(is_op("Mul")(inner, is_constant((2 / 3.141592653589793) ** 0.5))), is_constant(1.0)
    )
    return is_op("Mul")(is_op("Mul")(x, is_constant(0.5)), gate) | is_op("Mul")(is_op("Mul")(x, gate), is_constant(0.5))


def scale_shift() -> Pattern:
    """Return a value times a constant plus a constant, each one per channel: a normalisation that was folded."""
    scaled = is_op("Mul")(wildcard(), is_constant().named("scale")).named("anchor")
    return is_op("Add")(scaled, is_constant().named("shift"))


def anything() -> Pattern:
    """Return any value, as the anchor of an activation that is written out."""
    return wildcard()


PATTERNS = (
    Composite("onednn.conv_bias_add_relu", relu(plus(conv_bias())), match_supported),
    Composite("onednn.conv_add_relu", relu(plus(conv())), match_supported),
    Composite("onednn.conv_bias_swish", swish(conv_bias()), match_supported),
    Composite("onednn.conv_bias_gelu_erf", gelu_erf(conv_bias()), match_supported),
    Composite("onednn.conv_bias_relu", relu(conv_bias()), match_supported),
    Composite("onednn.conv_bias_clip", clip(conv_bias()), match_supported),
    Composite("onednn.conv_bias_activation", activation(conv_bias()), match_supported),
    Composite("onednn.conv_bias_add", plus(conv_bias()), match_supported),
    Composite("onednn.conv_swish", swish(conv()), match_supported),
    Composite("onednn.conv_relu", relu(conv()), match_supported),
    Composite("onednn.conv_clip", clip(conv()), match_supported),
    Composite("onednn.conv_activation", activation(conv()), match_supported),
    Composite("onednn.conv_bias", conv_bias(), match_supported),
    Composite("onednn.conv_add", plus(conv()), match_supported),
    Composite("onednn.matmul_bias_gelu_erf", gelu_erf(matmul_bias()), match_supported),
    Composite("onednn.matmul_bias_gelu_tanh", gelu_tanh(matmul_bias()), match_supported),
    Composite("onednn.matmul_bias_add", plus(matmul_bias()), match_supported),
    Composite("onednn.matmul_bias_relu", relu(matmul_bias()), match_supported),
    Composite("onednn.matmul_bias_activation", activation(matmul_bias()), match_supported),
    Composite("onednn.matmul_gelu_erf", gelu_erf(matmul()), match_supported),
    Composite("onednn.matmul_relu", relu(matmul()), match_supported),
    Composite("onednn.matmul_activation", activation(matmul()), match_supported),
    Composite("onednn.matmul_bias", matmul_bias(), match_supported),
    Composite("onednn.gemm_gelu_erf", gelu_erf(gemm()), match_supported),
    Composite("onednn.gemm_gelu_tanh", gelu_tanh(gemm()), match_supported),
    Composite("onednn.gemm_relu", relu(gemm()), match_supported),
    Composite("onednn.gemm_activation", activation(gemm()), match_supported),
    Composite("onednn.scale_shift_relu", relu(scale_shift()), scale_shift_supported),
    Composite("onednn.scale_shift", scale_shift(), scale_shift_supported),
    Composite("onednn.gelu_erf", gelu_erf(anything()), written_out_supported),
    Composite("onednn.gelu_tanh", gelu_tanh(anything()), written_out_supported),
    Composite("onednn.swish", swish(anything()), written_out_supported),
)
