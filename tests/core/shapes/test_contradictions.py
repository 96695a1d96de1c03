"""What a row's shape rule says is held against the schema's inference function and against the model."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import pytest

import graft
from graft.core.affine.expressions import add
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.facts import Facts, Shape, replaced
from graft.core.operators.definition.table import Operator
from graft.errors import ModelError

DOMAIN = "com.example.contradictions"
Schema = onnx.defs.OpSchema


def longer(facts: Facts) -> list[Shape | None]:
    """One row more along the last axis but one."""
    extents = facts.extents(0)
    return [replaced(extents, len(extents) - 2, add(extents[-2], 1))]


def same_elements(context: onnx.shape_inference.InferenceContext) -> None:
    kind = onnx.TypeProto()
    kind.tensor_type.elem_type = context.get_input_type(0).tensor_type.elem_type
    context.set_output_type(0, kind)


def like_input(context: onnx.shape_inference.InferenceContext) -> None:
    context.set_output_type(0, context.get_input_type(0))


@pytest.fixture(autouse=True)
def rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(OPERATORS, "_rows", dict(OPERATORS._rows))
    x, y = Schema.FormalParameter("x", "T"), Schema.FormalParameter("y", "T")
    for name, inference in (("Longer", same_elements), ("LikeInput", like_input), ("Silent", None)):
        schema = Schema(name, DOMAIN, 1, inputs=[x], outputs=[y], type_constraints=[("T", ["tensor(float)"], "")])
        if inference is not None:
            schema.set_type_and_shape_inference_function(inference)
        OPERATORS.add(Operator(name, domain=DOMAIN, schema=schema, shapes=longer))
    yield
    for name in ("Longer", "LikeInput", "Silent"):
        onnx.defs.deregister_schema(name, 1, DOMAIN)


def network(nodes: str, x: str, y: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21, "{DOMAIN}" : 1]> g ({x} x) => ({y} y) {{ {nodes.format(DOMAIN)} }}'
    )


@pytest.mark.parametrize("operator", ["Longer", "Silent"])
def test_what_the_model_states_of_a_result_is_held_against_its_rule(operator: str) -> None:
    with pytest.raises(ModelError) as caught:
        graft.load(network(f"y = {{}}.{operator}(x)", "float[4,3]", "float[4,3]"))
    assert caught.value.message == (
        f"{operator} (node 'y'): the shape rule of its row gives 'y' the shape [5,3], the model [4,3]; mend the one "
        "that is wrong"
    )
    graft.load(network(f"y = {{}}.{operator}(x)", "float[4,3]", "float[5,3]"))


@pytest.mark.parametrize("stated", ["5,3", "4,3", "k,m"])
def test_what_the_schema_infers_is_held_against_its_rule(stated: str) -> None:
    with pytest.raises(ModelError) as caught:
        graft.load(network("y = {}.LikeInput(x)", "float[4,3]", f"float[{stated}]"))
    assert caught.value.message == (
        "LikeInput (node 'y'): the shape rule of its row gives 'y' the shape [5,3], the inference function of its "
        "schema [4,3]; mend the one that is wrong"
    )


def test_a_number_beside_a_symbol_is_held_against_its_rule() -> None:
    with pytest.raises(ModelError, match=r"gives 't' the shape \[n,5,3\], the inference .* \[n,4,3\]"):
        graft.load(network("t = {}.LikeInput(x) y = Neg(t)", "float[n,4,3]", "float[n,5,3]"))


def test_what_the_model_states_of_results_behind_it_is_held_against_its_rule() -> None:
    with pytest.raises(ModelError, match=r"op_type:Neg.* differ in dimension 0: \(5\) vs \(4\)"):
        graft.load(network("t = {}.Longer(x) y = Neg(t)", "float[4,3]", "float[4,3]"))


@pytest.mark.parametrize("operator", ["Longer", "LikeInput", "Silent"])
def test_a_type_that_contradicts_the_schema_is_an_error(operator: str) -> None:
    with pytest.raises(ModelError, match=r"Inferred elem type differs from existing elem type: \(1\) vs \(11\)"):
        graft.load(network(f"y = {{}}.{operator}(x)", "float[4,3]", "double[5,3]"))
