"""Activation functions.

Formulas are those of the ONNX operator specification, rearranged where the literal form overflows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.operators.definition import checks as check
from graft.core.operators.definition.cost import per_output
from graft.core.operators.definition.table import LowerFunction, Lowering, Trait
from graft.core.operators.elementwise import derivatives as derivative
from graft.core.operators.elementwise.arithmetic import ELEMENTWISE, SELECTING, define_unary, unary
from graft.core.operators.elementwise.contents import rectified
from graft.core.tensor_ir.ir import Expression, Stage

Activation = Callable[[Expression], Expression]
Rule = Callable[[NodeView], Activation]
"""Gives the function of a node, its attributes read."""


def sigmoid(x: Expression) -> Expression:
    """Return ``1 / (1 + exp(-x))``."""
    return b.intrinsic("sigmoid", x)


def relu(x: Expression) -> Expression:
    """Return ``max(x, 0)``."""
    return b.maximum(x, 0)


def softplus(x: Expression) -> Expression:
    """Return ``log(1 + exp(x))`` as ``max(x, 0) + log1p(exp(-|x|))``, which does not overflow."""
    tail = b.intrinsic("log1p", b.intrinsic("exp", b.unary("neg", b.unary("abs", x))))
    return b.add(b.maximum(x, 0), tail)


def erf_gelu(x: Expression) -> Expression:
    """Return ``x/2 (1 + erf(x / sqrt 2))``."""
    return b.multiply(b.multiply(x, 0.5), b.add(b.intrinsic("erf", b.multiply(x, math.sqrt(0.5))), 1))


def tanh_gelu(x: Expression) -> Expression:
    """Return ``x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))``."""
    inner = b.multiply(x, b.add(b.multiply(b.multiply(x, x), 0.044715), 1))
    return b.multiply(b.multiply(x, 0.5), b.add(b.intrinsic("tanh", b.multiply(inner, math.sqrt(2 / math.pi))), 1))


def leaky_relu(alpha: float) -> Activation:
    """Return ``x`` for ``x >= 0``, else ``alpha x``."""
    return lambda x: b.select(b.less(x, 0), b.multiply(x, alpha), x)


def elu(alpha: float) -> Activation:
    """Return ``x`` for ``x > 0``, else ``alpha (exp(x) - 1)``."""
    return lambda x: b.select(b.greater(x, 0), x, b.multiply(b.intrinsic("expm1", x), alpha))


def hard_sigmoid(alpha: float, beta: float) -> Activation:
    """Return ``max(0, min(1, alpha x + beta))``."""
    return lambda x: b.maximum(b.minimum(b.add(b.multiply(x, alpha), beta), 1), 0)


def _gelu(node: NodeView) -> Activation:
    return tanh_gelu if node.attribute("approximate", "none") == "tanh" else erf_gelu


def _selu(node: NodeView) -> Activation:
    alpha = node.attribute("alpha", 1.6732632423543772)
    gamma = node.attribute("gamma", 1.0507009873554805)
    return lambda x: b.multiply(elu(alpha)(x), gamma)


def _celu(node: NodeView) -> Activation:
    alpha = node.attribute("alpha", 1.0)

    def celu(x: Expression) -> Expression:
        below = b.multiply(b.intrinsic("expm1", b.divide(b.minimum(x, 0), alpha)), alpha)
        return b.add(b.maximum(x, 0), below)

    return celu


def _swish(node: NodeView) -> Activation:
    alpha = node.attribute("alpha", 1.0)
    return lambda x: b.multiply(x, sigmoid(b.multiply(x, alpha)))


def _thresholded(node: NodeView) -> Activation:
    alpha = node.attribute("alpha", 1.0)
    return lambda x: b.select(b.greater(x, alpha), x, 0)


def _shrink(node: NodeView) -> Activation:
    bias, threshold = node.attribute("bias", 0.0), node.attribute("lambd", 0.5)

    def shrink(x: Expression) -> Expression:
        x = x if x.type.is_float else b.cast(x, "float64")  # a bias of whole numbers need not be one
        above = b.select(b.greater(x, threshold), b.subtract(x, bias), 0)
        return b.select(b.less(x, -threshold), b.add(x, bias), above)

    return shrink


def _hard_sigmoid(node: NodeView) -> Activation:
    return hard_sigmoid(node.attribute("alpha", 0.2), node.attribute("beta", 0.5))


def _hard_swish(x: Expression) -> Expression:
    return b.multiply(x, hard_sigmoid(1 / 6, 0.5)(x))


def _lower(rule: Rule) -> LowerFunction:
    def lower(lowering: Lowering) -> tuple[Stage, ...]:
        return unary(rule(lowering.node))(lowering)

    return lower


define_unary(
    "Relu", lower=unary(relu), cost=per_output(1), traits=SELECTING | {Trait.HOMOGENEOUS}, contents=rectified,
    vjp=derivative.rectified,
)  # fmt: skip
define_unary("Sigmoid", lower=unary(sigmoid), cost=per_output(10), vjp=derivative.sigmoid)
define_unary("Tanh", lower=unary(lambda x: b.intrinsic("tanh", x)), cost=per_output(10), vjp=derivative.tanh)
define_unary(
    "LeakyRelu", lower=_lower(lambda node: leaky_relu(node.attribute("alpha", 0.01))), cost=per_output(2),
    traits=ELEMENTWISE | {Trait.HOMOGENEOUS}, vjp=derivative.leaky,
)  # fmt: skip
define_unary(
    "Elu", lower=_lower(lambda node: elu(node.attribute("alpha", 1.0))), cost=per_output(10), vjp=derivative.elu
)
define_unary("Selu", lower=_lower(_selu), cost=per_output(10), vjp=derivative.selu)
define_unary("Celu", lower=_lower(_celu), cost=per_output(10), vjp=derivative.celu)
define_unary("HardSigmoid", lower=_lower(_hard_sigmoid), cost=per_output(4), vjp=derivative.hard_sigmoid)
define_unary("HardSwish", lower=unary(_hard_swish), cost=per_output(5))
define_unary("Mish", lower=unary(lambda x: b.multiply(x, b.intrinsic("tanh", softplus(x)))), cost=per_output(24))
define_unary("Softplus", lower=unary(softplus), cost=per_output(16), vjp=derivative.softplus)
define_unary(
    "Softsign", lower=unary(lambda x: b.divide(x, b.add(b.unary("abs", x), 1))), cost=per_output(3),
    vjp=derivative.softsign,
)  # fmt: skip
define_unary(
    "ThresholdedRelu", lower=_lower(_thresholded), cost=per_output(1), traits=SELECTING, vjp=derivative.thresholded
)
define_unary("Shrink", lower=_lower(_shrink), cost=per_output(3), vjp=derivative.shrunk)
define_unary(
    "Gelu", lower=_lower(_gelu), cost=per_output(16), attributes=(check.one_of("approximate", "none", "tanh"),)
)
define_unary("Swish", lower=_lower(_swish), cost=per_output(12))
