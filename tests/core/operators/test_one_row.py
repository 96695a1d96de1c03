"""A row says all of an operator: one that is added here is inferred, checked, folded away and compiled."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import graft
from graft.core.affine.expressions import add
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition import build as b
from graft.core.operators.definition import checks as check
from graft.core.operators.definition.facts import Facts, Shape, replaced
from graft.core.operators.definition.index_bounds import along_axis
from graft.core.operators.definition.table import Lowering, Operator, Trait
from graft.core.operators.definition.varying import anything
from graft.core.passes.eliminate_identity import EliminateIdentity
from graft.core.tensor_ir.ir import Stage
from graft.errors import GraftError, ModelError

ROOT = Path(__file__).parents[3]
DOMAIN = "com.example.rows"
Schema = onnx.defs.OpSchema


def repeated_edge(lowering: Lowering) -> tuple[Stage, ...]:
    """The last row once more, ``times`` times."""
    source, extent = lowering.input(0), b.extents(lowering.input(0))[0]
    return (
        b.compute(
            lowering.output(), lambda i: b.load(source, b.minimum(i[0], b.subtract(b.extent(extent), 1)), *i[1:])
        ),
    )


def longer(facts: Facts) -> list[Shape | None]:
    shape = facts.shape(0)
    if shape is None or shape[0] is None:
        return []
    return [replaced(shape, 0, add(shape[0], int(facts.attribute("times", 1))))]


def same_elements(context: onnx.shape_inference.InferenceContext) -> None:
    """The schema says the type; the shape is said once, by the row's rule."""
    kind = onnx.TypeProto()
    kind.tensor_type.elem_type = context.get_input_type(0).tensor_type.elem_type
    context.set_output_type(0, kind)


@pytest.fixture(autouse=True)
def rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(OPERATORS, "_rows", dict(OPERATORS._rows))
    x, place = Schema.FormalParameter("x", "T"), Schema.FormalParameter("place", "tensor(int64)")
    types = [("T", ["tensor(float)"], "")]
    schema = Schema(
        "RepeatEdge", DOMAIN, 1, inputs=[x], outputs=[Schema.FormalParameter("y", "T")], type_constraints=types,
        attributes=[Schema.Attribute("times", onnx.defs.OpSchema.AttrType.INT, "", required=False)],
    )  # fmt: skip
    schema.set_type_and_shape_inference_function(same_elements)
    chosen = Schema("Chosen", DOMAIN, 1, inputs=[x, place], outputs=[Schema.FormalParameter("y", "T")],
                    type_constraints=types)  # fmt: skip
    OPERATORS.add(
        Operator(
            "RepeatEdge", frozenset({Trait.INJECTIVE}), repeated_edge, domain=DOMAIN, schema=schema, varies=anything,
            shapes=longer, attributes=(check.at_least(0, "times"),),
            identity=lambda facts: int(facts.attribute("times", 1)) == 0,
        )
    )  # fmt: skip
    OPERATORS.add(Operator("Chosen", domain=DOMAIN, schema=chosen, indices=along_axis))
    yield
    for one in schema, chosen:
        onnx.defs.deregister_schema(one.name, 1, DOMAIN)


def network(nodes: str, inputs: str = "float[n,3] x", more: str = "") -> onnx.ModelProto:
    return parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21, "{DOMAIN}" : 1]>\n'
        f"g ({inputs}) => (float[m,3] y) {more} {{ {nodes} }}"
    )


def test_its_rule_says_the_shape_and_its_lowering_computes_it_at_every_extent() -> None:
    model = graft.load(network(f"t = {DOMAIN}.RepeatEdge<times = 2>(x)  y = Neg(t)"))
    assert [str(dimension) for dimension in model.graph.outputs[0].shape or ()] == ["n + 2", "3"]
    program = graft.compile(model, ["llvm"])
    for n in (1, 4):
        x = np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32)
        np.testing.assert_array_equal(program(x), -np.concatenate([x, x[-1:], x[-1:]]))


def test_numbers_that_symbols_are_given_later_are_held_against_its_rule() -> None:
    model = network(f"t = {DOMAIN}.RepeatEdge(x)  y = Neg(t)")
    assert graft.load(model, dims={"n": 4}).graph.outputs[0].shape == [5, 3]


def test_its_schema_is_known_to_onnx() -> None:
    with pytest.raises(ModelError, match="Unrecognized attribute: tmies for operator RepeatEdge"):
        graft.load(network(f"y = {DOMAIN}.RepeatEdge<tmies = 2>(x)"))


def test_a_row_of_a_domain_of_its_own_has_a_schema() -> None:
    with pytest.raises(GraftError) as caught:
        OPERATORS.add(Operator("Bare", domain=DOMAIN))
    assert caught.value.message == (
        f"operator 'Bare' of domain '{DOMAIN}' has no schema; give an onnx.defs.OpSchema of it"
    )


def test_its_checks_refuse_a_node() -> None:
    with pytest.raises(ModelError, match="times is -1, where at least 0 is expected"):
        graft.load(network(f"y = {DOMAIN}.RepeatEdge<times = -1>(x)"))


def test_its_index_bounds_refuse_a_constant_position() -> None:
    with pytest.raises(ModelError, match=r"index 5 in 'place' is out of range: axis 0 has extent 4"):
        graft.load(network(f"y = {DOMAIN}.Chosen(x, place)", "float[4,3] x", "<int64[2] place = {0, 5}>"))


def test_its_rule_of_identity_takes_a_node_away() -> None:
    model = graft.load(network(f"t = {DOMAIN}.RepeatEdge<times = 0>(x)  y = Neg(t)"))
    assert EliminateIdentity().run(model)
    assert [node.op_type for node in model.graph] == ["Neg"]


TABLES = ("core/graph", "core/shapes", "core/operators/definition", "core/differentiation", "core/importer")
"""Rooms that ask rows, and keep no tables of functions by an operator's name."""
CONTROL = {"If", "Loop", "Scan"}
"""Operators whose bodies a walk goes into, each in its way."""


def tables(path: Path) -> list[int]:
    """Return the lines of a file's dictionaries from names of operators to what is no constant."""
    names = {row.name for row in OPERATORS if not row.domain} - CONTROL
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        pairs = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
        keys = [
            key.value for key, value in pairs if isinstance(key, ast.Constant) and not isinstance(value, ast.Constant)
        ]
        if len(names.intersection(keys)) > 1:
            found.append(node.lineno)
    return found


def test_no_other_room_keeps_rules_by_the_name_of_an_operator() -> None:
    paths = [path for room in TABLES for path in sorted((ROOT / room).rglob("*.py"))]
    assert [str(path.relative_to(ROOT)) for path in paths if tables(path)] == []
