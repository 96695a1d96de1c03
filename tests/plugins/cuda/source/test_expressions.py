"""Expressions as CUDA C: a text for each kind and operator of any number of lanes, whose words the prelude has."""

from __future__ import annotations

import re

import pytest

from graft.core.affine.linear import Linear
from graft.core.tensor_ir import ir
from graft.core.types import INT64, Type
from graft.errors import CompileError
from graft.plugins.cuda.source.expressions import PRELUDE, CudaExpressions, form_text
from tests.core.tensor_ir.kinds import KINDS, OF_VECTORS, PLACE, X, expressions, operations

WORDS = frozenset(re.findall(r"\w+", PRELUDE.read_text(encoding="utf-8")))


def writer() -> CudaExpressions:
    made = CudaExpressions("f")  # type: ignore[abstract]  # statements have no part in this
    made.pointers[X], made.variables[PLACE] = "x", "i"
    return made


def unknown(text: str) -> set[str]:
    """The functions of a text that are not the prelude's."""
    return {one.removeprefix("across_") for one in re.findall(r"(\w+)(?:<[^()]*>)?\(", text)} - WORDS


def test_every_kind_of_expression_has_its_text() -> None:
    texts = {kind: writer().value(node) for kind, node in expressions(4).items()}
    x, one = "load<4, 4>(&x[i])", "splat<4, float>(1.5f)"
    assert texts == {
        ir.Constant: one, ir.Variable: "i", ir.Load: x, ir.Unary: f"magnitude({x})", ir.Binary: f"{x} + {one}",
        ir.Select: f"choice({x} < {one}, {x}, {one})", ir.Cast: f"saturated<int32_t>({x})",
        ir.Bitcast: f"bits_as<Lanes<int32_t, 4>, Lanes<float, 4>>({x})", ir.Intrinsic: f"fused({x}, {x}, {one})",
        ir.Ramp: "ramp<4>(i, 2)", ir.Broadcast: "splat<4, float>(x[i])", ir.Shuffle: f"chosen<3, 2, 1, 0>({x})",
        ir.Horizontal: f"across_sum({x})",
    }  # fmt: skip
    assert texts.keys() == KINDS
    scalars = {kind: writer().value(node) for kind, node in expressions(1).items()}
    assert scalars[ir.Select] == "x[i] < 1.5f ? x[i] : 1.5f"
    assert scalars.keys() == KINDS - OF_VECTORS
    assert not {name for text in (*texts.values(), *scalars.values()) for name in unknown(text)}


@pytest.mark.parametrize("lanes", [1, 4])
def test_every_operator_has_its_text_of_words_of_the_prelude(lanes: int) -> None:
    for node in operations(lanes):
        made, operand = writer(), node.value if isinstance(node, ir.Unary) else node.left  # type: ignore[union-attr]
        made.variables[operand] = "v"  # type: ignore[index]
        text = made.value(node)
        assert re.search(r"\w\(|[^\w\s()]", text) and not unknown(text), text


def test_an_intrinsic_without_a_text_is_refused() -> None:
    node = ir.Intrinsic("erf", (ir.Load(X, (PLACE,)),), Type("float32"))
    with pytest.raises(CompileError, match=r"^function 'f' has the intrinsic 'erf' of type float32, which cuda_source"):
        writer().value(node)


def test_loads_say_their_step_and_which_lanes_are_on() -> None:
    def load(index: ir.Expression, mask: ir.Expression | None = None) -> str:
        return writer().value(ir.Load(X, (index,), mask))

    on = ir.Binary("lt", ir.Ramp(PLACE, 1, 4), ir.Constant(3, INT64.with_lanes(4)))
    shown = "ramp<4>(i, 1) < splat<4, int64_t>(3)"
    nothing = "splat<4, bool>(true)"
    assert load(ir.Ramp(PLACE, 2, 4)) == f"load_where<float>(&x[i], 2, {nothing})"
    assert load(ir.Ramp(PLACE, 1, 4), on) == f"load_where<float>(&x[i], 1, {shown})"
    assert load(ir.Ramp(ir.Constant(2, INT64), 1, 4)) == "load<4, 4>(&x[2])"
    assert load(ir.Binary("mul", ir.Ramp(PLACE, 1, 4), ir.Ramp(PLACE, 1, 4))).startswith("gather<float>(x, ")
    assert load(PLACE, ir.Binary("lt", PLACE, ir.Constant(3, INT64))) == "i < 3 ? x[i] : (float)0"


def test_a_form_is_written_with_the_signs_of_its_terms() -> None:
    assert form_text(Linear(0)) == "0"
    assert form_text(Linear(-3, {"i": 1, "j": -2})) == "i - j * 2 - 3"
    assert form_text(Linear(3, {"j": -2})) == "j * -2 + 3"
