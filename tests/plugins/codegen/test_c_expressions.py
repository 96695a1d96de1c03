"""Expressions as C: a text for each kind and operator of scalars, constants exactly, indices without detours."""

from __future__ import annotations

import math
import re

import pytest

from graft.core.tensor_ir import ir
from graft.core.types import BOOL, FLOAT32, FLOAT64, INT32, INT64, Type
from graft.errors import CompileError
from graft.plugins.codegen.c_expressions import LONGEST, ExpressionWriter, identifier, literal, product_text, sum_text
from graft.runtime.c_source import prelude
from tests.core.tensor_ir.kinds import KINDS, OF_VECTORS, PLACE, X, expressions, operations


def writer() -> ExpressionWriter:
    made = ExpressionWriter("f")
    made.bind(X)
    made.bind(PLACE)
    return made


def test_every_kind_of_scalar_has_its_text_and_vectors_are_refused() -> None:
    texts = {kind: writer().value(node) for kind, node in expressions(1).items()}
    assert texts == {
        ir.Constant: "1.5f", ir.Variable: "i", ir.Load: "x[i]", ir.Unary: "abs_float32(x[i])",
        ir.Binary: "x[i] + 1.5f", ir.Select: "x[i] < 1.5f ? x[i] : 1.5f", ir.Cast: "int32_of_float(x[i])",
        ir.Bitcast: "(int32_t)bits_of_float32(x[i])", ir.Intrinsic: "fma_float32(x[i], x[i], 1.5f)",
    }  # fmt: skip
    vectors = expressions(4)
    assert texts.keys() | OF_VECTORS == KINDS
    for kind in OF_VECTORS - {ir.Ramp}:
        with pytest.raises(
            CompileError, match=r"^function 'f' has a [A-Z][a-z]+ of type .*, which c_source cannot write$"
        ):
            writer().value(vectors[kind])


def test_every_operator_of_scalars_has_its_text_in_c_or_in_the_prelude() -> None:
    for node in operations(1):
        made, operand = writer(), node.value if isinstance(node, ir.Unary) else node.left  # type: ignore[union-attr]
        made.variables[operand] = "v"  # type: ignore[index]
        text = made.value(node)
        signs, calls = re.findall(r"[^\w\s(),]+", text), re.findall(r"(\w+)_(?:float32|int64)\(", text)
        assert len(signs) + len(calls) == 1 and re.search(r"\bv\b", text)
        assert all(f"{one}_" in prelude() for one in calls), text


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (True, BOOL, "true"), (False, BOOL, "false"), (7, INT32, "7"), (-7, INT32, "-7"), (0, INT64, "0"),
        (2**31 - 1, INT64, "2147483647"), (2**31, INT64, "INT64_C(2147483648)"),
        (-(2**31), INT64, "INT64_C(-2147483648)"), (-1, Type("uint8"), "255u"), (-(2**31), INT32, "INT32_MIN"),
        (-(2**63), INT64, "INT64_MIN"), (2**31, Type("uint32"), "UINT32_C(2147483648)"),
        (-128, Type("int8"), "INT8_MIN"), (2**64 - 1, Type("uint64"), "UINT64_C(18446744073709551615)"),
        (-127, Type("int8"), "-127"),
        (1.5, FLOAT32, "1.5f"), (-1.5, FLOAT32, "-1.5f"), (-0.0, FLOAT32, "-0x0.0p+0f"), (0.0, FLOAT64, "0.0"),
        (0.1, FLOAT32, "0x1.99999a0000000p-4f"), (0.1, FLOAT64, "0x1.999999999999ap-4"), (1e6, FLOAT64, (1e6).hex()),
        (2.0**-6, FLOAT64, "0.015625"), (2.0**-7, FLOAT64, "0x1.0000000000000p-7"), (999999.0, FLOAT64, "999999.0"),
        (math.inf, FLOAT32, "(float)INFINITY"), (-math.inf, FLOAT64, "(double)-INFINITY"),
        (math.nan, FLOAT32, "(float)NAN"), (1.0, Type("float16"), str(0x3C00)), (1.0, Type("bfloat16"), str(0x3F80)),
    ],
)  # fmt: skip
def test_constants_are_written_exactly(value: float, kind: Type, text: str) -> None:
    assert literal(value, kind) == text


def test_sums_and_products_of_indices_are_computed_where_they_are_known() -> None:
    assert [sum_text("3", "-4", sign) for sign in "+-"] == ["-1", "7"]
    assert [sum_text("i", "0", "-"), sum_text("0", "i", "+"), sum_text("0", "i", "-")] == ["i", "i", "0 - i"]
    assert sum_text("i", "2", "+") == "i + 2"
    assert [product_text("3", "-4"), product_text("i", "0"), product_text("0", "i")] == ["-12", "0", "0"]
    assert [product_text("1", "i"), product_text("i", "1"), product_text("i", "2")] == ["i", "i", "i * 2"]


def test_indices_are_divided_by_cs_own_operators_where_the_divisor_is_positive() -> None:
    def text(operator: str, divisor: int) -> str:
        return writer().index(ir.Binary(operator, PLACE, ir.Constant(divisor, INT64)))  # type: ignore[arg-type]

    assert [text("div", 4), text("mod", 1)] == ["i / 4", "i % 1"]
    assert [text("div", 0), text("mod", -4)] == ["div_int64(i, 0)", "mod_int64(i, -4)"]


def test_a_name_is_the_end_of_the_models_as_c_takes_it() -> None:
    assert [identifier(one) for one in ("x", "a/b:0", "0x", "_y_", "")] == ["x", "a_b_0", "v0x", "y", "v"]
    assert identifier("model/layer/" + "block/" * 6 + "weight") == "block_block_block_block_weight"
    assert identifier("a" * 33) == "a" * 32


def test_names_do_not_meet_those_of_c_or_each_other() -> None:
    made = ExpressionWriter("f")
    names = [made.bind(ir.Variable(one)) for one in ("int", "i", "i", "f", "sum_t", "graft_x")]
    assert names == ["int_1", "i", "i_1", "f_1", "sum_t_1", "graft_x_1"]


def test_what_is_used_twice_or_is_long_gets_a_name_and_is_written_once() -> None:
    made = writer()
    shared = ir.Unary("abs", ir.Load(X, (PLACE,)))
    store = ir.Store(X, (PLACE,), ir.Binary("mul", shared, shared))
    made.begin(store)
    assert made.value(store.value) == "size1 * size1"
    assert made.lines == ["const float size1 = abs_float32(x[i]);"]
    value: ir.Expression = ir.Load(X, (PLACE,))
    for _ in range(18):
        value = ir.Binary("add", value, ir.Constant(1.5, FLOAT32))
    made.begin(ir.Store(X, (PLACE,), value))
    assert len(made.value(value)) <= LONGEST
    assert len(made.lines) == 2 and made.lines[1].startswith("const float sum1 = ")
