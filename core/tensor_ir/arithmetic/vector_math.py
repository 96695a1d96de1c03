"""Transcendental functions as branch-free expressions, so that generated code calls no library.

`expand` replaces the intrinsics below in a function. Everything is polynomial arithmetic on the same number of lanes;
NaN, infinities, signed zeros and denormals come out as C's ``<math.h>`` has them. float16 and bfloat16 go through
float32. The largest errors, in units in the last place: over every float32 number (``python -m
benchmarks.vector_math``; a test takes samples of every exponent), over samples in float64:

| function | float32 | float64 | method |
|---|---|---|---|
| exp, exp2 | 1.1, 0.9 | 1 | Cody-Waite reduction by ln 2, minimax (Taylor) polynomial, scaling in two steps |
| exp_nonpositive | 4.5, above -18 1.4 | 1 | the same with ln 2 as one number, scaled in one step: for Softmax |
| expm1 | 1.5 | 2 | the same, recombined as ``2^n p + (2^n - 1)`` |
| log, log2, log1p | 0.9, 1.2, 1.0 | 1 | exponent and mantissa in [sqrt 1/2, sqrt 2), polynomial in ``m - 1`` |
| tanh, sigmoid | 2.7, 2.5 | 2 | from expm1 and exp |
| erf | 1.1 | 2 | odd polynomial below 15/16 (1), above it ``1 - exp(p(x))`` |
| sin, cos | 1.6 | 0.85 | reduction by pi/2 with the bits of 2/pi that matter (Payne and Hanek), for every number |
| tan | 3.8 | 2 | sine by cosine |
| asin, acos, atan | 2.3, 1.3, 2.6 | 2 | reduction to abs(x) < 1/2 or tan(pi/8), odd polynomial |
| sinh, cosh, asinh, acosh, atanh | 2.4, 1.5, 1.8, 2.5, 2.0 | 2 | from exp, expm1, log and log1p |
| pow | 0.6 | 1e-12 relative | float32 through float64; ``exp2(y log2 x)`` |
| rsqrt | 1.5 | 1 | division by the root |

The float32 coefficients are those that `graft.core.tensor_ir.arithmetic.minimax` prints; float64 uses Taylor series.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from graft.core.tensor_ir.arithmetic import circular, error_function, exponential
from graft.core.tensor_ir.arithmetic.exponential import FLOAT32, FLOAT64, Format
from graft.core.tensor_ir.ir import Cast, Expression, Function, Intrinsic, Statement
from graft.core.tensor_ir.rewriting.sharing import bind_shared
from graft.core.tensor_ir.scalar_math import Value
from graft.core.tensor_ir.visit import (
    ExpressionMap,
    map_statement,
    statement_expressions,
    walk_expressions,
    walk_statements,
)

EXPANSIONS: dict[str, Callable[..., Value]] = {
    "exp": exponential.exp,
    "exp_nonpositive": exponential.exp_nonpositive,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "log": exponential.log,
    "log2": exponential.log2,
    "log1p": exponential.log1p,
    "tanh": exponential.tanh,
    "sigmoid": exponential.sigmoid,
    "sinh": exponential.sinh,
    "cosh": exponential.cosh,
    "asinh": exponential.asinh,
    "acosh": exponential.acosh,
    "atanh": exponential.atanh,
    "pow": exponential.power,
    "rsqrt": exponential.rsqrt,
    "erf": error_function.erf,
    "sin": circular.sin,
    "cos": circular.cos,
    "tan": circular.tan,
    "asin": circular.asin,
    "acos": circular.acos,
    "atan": circular.atan,
}
"""By intrinsic; each takes its arguments and the `Format`."""


def expand(function: Function) -> Function:
    """Return the function with its transcendental intrinsics replaced; shared subexpressions are bound by `Let`."""
    body = map_statement(function.body, ExpressionMap(_expand_node), bind_shared)
    return replace(function, body=body)


def has_expansions(body: Statement) -> bool:
    """Whether a statement has transcendental intrinsics."""
    every = (node for one in walk_statements(body) for node in statement_expressions(one))
    return any(isinstance(node, Intrinsic) and node.name in EXPANSIONS for node in walk_expressions(*every))


def expansion(*, has_ldexp: bool = False) -> ExpressionMap:
    """Return the map that replaces transcendental intrinsics; what expressions share, their results share too.

    With ``has_ldexp`` the emitter behind it knows `ldexp` of float32 and int32: ``x * 2^n``, rounded once, as without.
    """
    return ExpressionMap(partial(_expand_node, single=replace(FLOAT32, has_ldexp=has_ldexp)))


def _expand_node(node: Expression, single: Format = FLOAT32) -> Expression:
    if not isinstance(node, Intrinsic) or node.name not in EXPANSIONS:
        return node
    kind = _format(node.type.dtype, single)
    if kind is not None:
        return EXPANSIONS[node.name](*map(Value, node.arguments), kind).expression
    if node.type.dtype not in ("float16", "bfloat16"):
        return node
    wide = (Value(Cast(argument, "float32")) for argument in node.arguments)
    return Cast(EXPANSIONS[node.name](*wide, single).expression, node.type.dtype)


def _format(dtype: str, single: Format) -> Format | None:
    return {"float32": single, "float64": FLOAT64}.get(dtype)
