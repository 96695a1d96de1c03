"""Shapes that contradict each other: those that a model has, and those that a rule in an operator's row gives."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from graft.core.graph.exception_translation import CONTRADICTIONS, readable, sound, tidy
from graft.core.graph.traversal import all_nodes
from graft.core.graph.view import NodeView
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.facts import Facts, Shape
from graft.core.operators.definition.table import Operator
from graft.core.shapes.symbolic_shapes import asked, by_schema, constant_contents, dimensions_of
from graft.core.types import ONNX_DOMAINS
from graft.errors import ModelError


def check_numbers(proto: onnx.ModelProto, what: str) -> None:
    """Raise ModelError if ``what`` of a model contradicts what ONNX infers from it."""
    try:
        with readable():
            onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
    except CONTRADICTIONS as error:
        if str(error).count("Inference error(s)") > 1:
            return  # within the body of an operator's definition, where onnx itself may be wrong
        raise ModelError(f"{what} contradict each other: {tidy(error)}") from error


def check_rules(model: ir.Model) -> bool:
    """Raise ModelError if a row that brings its schema gives a result another shape than the model has.

    ONNX's own operators are left aside: onnx infers their shapes, and checks what the model states of them. Returns
    whether there are others with a rule.
    """
    if model.opset_imports.keys() <= ONNX_DOMAINS:
        return False
    views = [NodeView(node) for node in all_nodes(model.graph) if node.domain not in ONNX_DOMAINS]
    rows = [(view, OPERATORS.of(view)) for view in views]
    foreign = [(view, row) for view, row in rows if row is not None and row.schema is not None and row.shapes]
    for view, row in foreign:
        with sound(view):
            _check_rule(view, row)
    return bool(foreign)


def _check_rule(view: NodeView, row: Operator) -> None:
    inputs = view.node.inputs
    contents = [None if value is None else constant_contents(value) for value in inputs]
    facts = Facts(view, [None if value is None else dimensions_of(value) for value in inputs], contents)
    rules = asked(row, facts) or ()
    inferred = None if row.schema is None else by_schema(facts, row.schema, row.schema.since_version)
    for who, shapes in (
        ("the inference function of its schema", inferred or ()),
        ("the model", [dimensions_of(value) for value in view.node.outputs]),
    ):
        for value, rule, said in zip(view.node.outputs, rules, shapes, strict=False):
            if rule is not None and said is not None and not _agree(rule, said):
                raise ModelError(
                    f"{view.where}: the shape rule of its row gives '{value.name}' the shape {_shown(rule)}, "
                    f"{who} {_shown(said)}; mend the one that is wrong",
                    node=view.name,
                )


def _agree(one: Shape, other: Shape) -> bool:
    """Whether two shapes may be the same: of one rank, and no two numbers differ."""
    return len(one) == len(other) and all(
        left == right
        for left, right in zip(one, other, strict=True)
        if isinstance(left, int) and isinstance(right, int)
    )


def _shown(shape: Shape) -> str:
    return f"[{','.join('?' if extent is None else str(extent) for extent in shape)}]"
