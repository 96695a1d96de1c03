"""The products that CBLAS computes: composites, what it cannot do, and the call of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graft.core.affine.expressions import multiply
from graft.core.reject import Reject
from graft.core.shapes.symbolic_shapes import dimensions_of
from graft.patterns import is_op
from graft.patterns.composite import Composite
from graft.patterns.language import Pattern
from graft.plugins.c_calls import C, CCall, CKernel, COperand
from graft.plugins.json_graph import BodyOperator
from graft.plugins.product_patterns import gemm, matmul, matmul_bias, misshapen
from graft.runtime.extents import Extent

if TYPE_CHECKING:
    from graft.core.graph.view import NodeView, ValueView
    from graft.patterns.match import Match

PREFIXES = {"float32": "s", "float64": "d"}
"""What the names of CBLAS's functions begin with, by element type."""
LARGEST = 2**31 - 1
GEMM = (
    "graft_cblas_{prefix}gemm({turn_a}, {turn_b}, {count}, {m}, {n}, {k}, {alpha}, {a}, {a_step}, {b}, {b_step}, "
    "{beta}, {c}, {c_row}, {c_column}, {is_relu}, {Y})"
)


# ---- What it takes ----


def refused(node: NodeView) -> Reject | None:
    """Return why no call computes a node, None if one does."""
    if node.op_type not in ("MatMul", "Gemm") or node.domain not in ("", "ai.onnx"):
        return Reject("no-pattern", f"CBLAS has no {node.op_type}")
    values = [value for value in node.inputs if value is not None and value.name]
    shapes = [dimensions_of(value.value) for value in values]
    for value in (*values, *node.outputs):
        if value.dtype not in PREFIXES:
            return Reject("dtype", f"'{value.name}' is {value.dtype}; CBLAS multiplies float32 and float64")
    for value, shape in zip(values, shapes, strict=True):
        if shape is None or None in shape:
            return Reject("dynamic-shape", f"the extents of '{value.name}' are not known before a run")
        if any(isinstance(extent, int) and extent > LARGEST for extent in shape):
            return Reject("size", f"'{value.name}' has an extent beyond {LARGEST}")
    return (
        misshapen(values[0], values[1], "CBLAS") if node.op_type == "MatMul" else _misfit(values[2:], node.outputs[0])
    )


def _misfit(added: Sequence[ValueView], result: ValueView) -> Reject | None:
    """Return why what a Gemm adds is neither of the result's extents nor repeated along them."""
    for value in added:
        pairs = zip(reversed(value.shape or ()), reversed(result.shape or ()), strict=False)
        if any(own not in (1, whole) for own, whole in pairs):
            return Reject("shape", f"'{value.name}' may be repeated along an extent that is not known before a run")
    return None


def _match_refused(match: Match) -> Reject | None:
    anchor = match.node("anchor")
    reason = refused(anchor)
    if reason is None and "bias" in match:
        shape, columns = match["bias"].static_shape, anchor.outputs[0].shape
        if shape is None or columns is None or not shape or (*(1 for _ in shape[1:]), columns[-1]) != shape:
            return Reject("shape", f"'{match['bias'].name}' is not one value per column")
    return reason


def _relu(x: Pattern) -> Pattern:
    return is_op("Relu")(x)


PATTERNS = (
    Composite("cblas.matmul_bias_relu", _relu(matmul_bias()), _match_refused),
    Composite("cblas.matmul_bias", matmul_bias(), _match_refused),
    Composite("cblas.matmul_relu", _relu(matmul()), _match_refused),
    Composite("cblas.gemm_relu", _relu(gemm()), _match_refused),
)


# ---- What it calls ----


def product(kernel: CKernel) -> CCall:
    """Return the call of a kernel: a product, what is added to it, and whether Relu follows."""
    anchor = kernel.body[0]
    a, b = _operand(kernel, anchor, 0), _operand(kernel, anchor, 1)
    assert a is not None and b is not None, f"{kernel.where} multiplies nothing"
    values = _matmul(a, b) if anchor.op == "MatMul" else _gemm(a, b, anchor)
    added = _operand(kernel, anchor, 2) if anchor.op == "Gemm" else _bias(kernel)
    row, column = (0, 0) if added is None else _strides(added, values["n"])
    values |= {
        "prefix": C(PREFIXES[a.dtype]), "a": a, "b": b, "c": added, "c_row": row, "c_column": column,
        "is_relu": kernel.body[-1].op == "Relu",
    }  # fmt: skip
    return CCall(GEMM, values)


def _operand(kernel: CKernel, operator: BodyOperator, index: int) -> COperand | None:
    source = operator.inputs[index] if index < len(operator.inputs) else None
    return None if source is None else kernel.inputs[source[1]]


def _bias(kernel: CKernel) -> COperand | None:
    adds = [operator for operator in kernel.body if operator.op == "Add"]
    outside = [source for operator in adds for source in operator.inputs if source is not None and source[0] == -1]
    return kernel.inputs[outside[0][1]] if outside else None


def _matmul(a: COperand, b: COperand) -> dict[str, object]:
    """Return the extents of a product: one of all rows where the right side is a single matrix."""
    rows, columns = multiply(*a.shape[:-1]), b.shape[-1]
    count: Extent = 1
    if b.rank > 2:
        count, rows = multiply(*b.shape[:-2]), a.shape[-2]
    return {
        "turn_a": C("CblasNoTrans"), "turn_b": C("CblasNoTrans"), "count": count,
        "m": rows, "n": columns, "k": a.shape[-1], "alpha": 1.0, "beta": 1.0,
        "a_step": 0 if a.rank == 2 else multiply(*a.shape[-2:]), "b_step": multiply(*b.shape[-2:]),
    }  # fmt: skip


def _gemm(a: COperand, b: COperand, operator: BodyOperator) -> dict[str, object]:
    given = operator.attributes
    turn_a, turn_b = bool(given.get("transA", 0)), bool(given.get("transB", 0))
    return {
        "turn_a": C("CblasTrans" if turn_a else "CblasNoTrans"),
        "turn_b": C("CblasTrans" if turn_b else "CblasNoTrans"),
        "count": 1, "m": a.shape[turn_a], "n": b.shape[not turn_b], "k": a.shape[not turn_a],
        "alpha": given.get("alpha", 1.0), "beta": given.get("beta", 1.0), "a_step": 0, "b_step": 0,
    }  # fmt: skip


def _strides(added: COperand, columns: object) -> tuple[object, int]:
    """Return by how many elements what is added goes on from row to row, and from column to column."""
    shape = (1,) * (2 - added.rank) + tuple(added.shape)
    column = 0 if shape[-1] == 1 and columns != 1 else 1
    return (0 if shape[-2] == 1 else (columns if column else 1)), column
