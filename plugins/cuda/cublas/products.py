"""The products that cuBLASLt computes: composites, what it cannot do, and each as a row of a module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graft.core.reject import Reject
from graft.core.shapes.symbolic_shapes import dimensions_of
from graft.patterns import is_op
from graft.patterns.composite import Composite
from graft.patterns.language import Pattern
from graft.plugins.json_graph import JsonNode
from graft.plugins.product_patterns import gemm, matmul, matmul_bias, misshapen
from graft.runtime.extents import Extent

if TYPE_CHECKING:
    from graft.core.graph.view import NodeView, ValueView
    from graft.patterns.match import Match

TYPES = ("float32", "float64", "float16", "bfloat16")
LARGEST = 2**31 - 1
Row = dict[str, int | float | str]


def refused(node: NodeView) -> Reject | None:
    """Return why no call computes a node, None if one does."""
    if node.op_type not in ("MatMul", "Gemm") or node.domain not in ("", "ai.onnx"):
        return Reject("no-pattern", f"cuBLASLt has no {node.op_type}")
    values = [value for value in node.inputs if value is not None and value.name]
    for value in (*values, *node.outputs):
        if value.dtype not in TYPES:
            return Reject("dtype", f"'{value.name}' is {value.dtype}; cuBLASLt multiplies {', '.join(TYPES)}")
        shape = dimensions_of(value.value)
        if shape is None or None in shape:
            return Reject("dynamic-shape", f"the extents of '{value.name}' are not known before a run")
        if any(isinstance(extent, int) and not 0 < extent <= LARGEST for extent in shape):
            return Reject("size", f"'{value.name}' has an extent that is 0 or beyond {LARGEST}")
    return misshapen(values[0], values[1], "cuBLASLt") if node.op_type == "MatMul" else _misfit(node)


def _misfit(gemm: NodeView) -> Reject | None:
    """Return why what a Gemm adds is neither one value per column nor of the result's shape."""
    added = gemm.inputs[2] if len(gemm.inputs) > 2 else None
    if added is None or not added.name:
        return None
    shape, result = dimensions_of(added.value), dimensions_of(gemm.outputs[0].value)
    if shape == result or (_is_per_column(added, gemm.outputs[0]) and gemm.attribute("beta", 1.0) == 1.0):
        return None
    return Reject("shape", f"'{added.name}' is neither one value per column nor of the result's shape")


def _is_per_column(value: ValueView, result: ValueView) -> bool:
    shape, whole = dimensions_of(value.value) or (), dimensions_of(result.value) or ()
    leading = all(extent == 1 for extent in shape[:-1])
    return bool(shape) and bool(whole) and leading and shape[-1] == whole[-1] and value.dtype != "float64"


def _match_refused(match: Match) -> Reject | None:
    anchor, last = match.node("anchor"), match.sorted_members()[-1]
    reason = refused(anchor)
    if reason is None and "bias" in match and not _is_per_column(match["bias"], anchor.outputs[0]):
        return Reject("shape", f"'{match['bias'].name}' is not one value per column of a float of 16 or 32 bits")
    if reason is None and anchor.outputs[0].dtype == "float64" and last is not anchor.node:
        return Reject("dtype", "cuBLASLt has no epilogues of float64")
    if reason is None and "gelu" in match and match.node("gelu").attribute("approximate", "none") != "tanh":
        return Reject("attribute", "cuBLASLt's Gelu is the one by tanh")
    return reason


def _relu(x: Pattern) -> Pattern:
    return is_op("Relu")(x)


def _gelu(x: Pattern) -> Pattern:
    return is_op("Gelu")(x).named("gelu")


PATTERNS = (
    Composite("cublas.matmul_bias_relu", _relu(matmul_bias()), _match_refused),
    Composite("cublas.matmul_bias_gelu", _gelu(matmul_bias()), _match_refused),
    Composite("cublas.matmul_relu", _relu(matmul()), _match_refused),
    Composite("cublas.matmul_gelu", _gelu(matmul()), _match_refused),
    Composite("cublas.matmul_bias", matmul_bias(), _match_refused),
    Composite("cublas.gemm_relu", _relu(gemm()), _match_refused),
    Composite("cublas.gemm_gelu", _gelu(gemm()), _match_refused),
)


def row(name: str, node: JsonNode, precision: str, shapes: Sequence[tuple[Extent, ...]]) -> Row:
    """Return the product of a kernel with inputs of some shapes; its operands are numbers of these."""
    anchor = node.body[0]
    added = next((one for one in node.body if one.op == "Add"), None)
    given = anchor.attributes
    third = anchor.inputs[2][1] if len(anchor.inputs) > 2 and anchor.inputs[2] is not None else -1
    is_whole = third >= 0 and (shapes[third] == node.shape[0] and not _is_bias(shapes[third], given))
    bias = -1 if is_whole else third
    if added is not None:
        bias = next(source[1] for source in added.inputs if source is not None and source[0] == -1)
    first, second = anchor.inputs[0], anchor.inputs[1]
    assert first is not None and second is not None, "a product has two factors"
    wide = node.dtype[0] == "float64"
    activation = {"Relu": "relu", "Gelu": "gelu"}.get(node.body[-1].op, "")
    return {
        "name": name, "a": first[1], "b": second[1], "bias": bias, "c": third if is_whole else -1,
        "turns_a": int(given.get("transA", 0)), "turns_b": int(given.get("transB", 0)),
        "alpha": float(given.get("alpha", 1.0)), "beta": float(given.get("beta", 1.0)), "activation": activation,
        "type": node.dtype[0],
        "precision": "float64" if wide else precision if node.dtype[0] == "float32" else "float32",
    }  # fmt: skip


def _is_bias(shape: tuple[Extent, ...], given: Mapping[str, Any]) -> bool:
    """Whether what is added is a row, which is one value per column as well."""
    return all(extent == 1 for extent in shape[:-1]) and float(given.get("beta", 1.0)) == 1.0
