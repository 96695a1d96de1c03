"""Sums of products taken apart, from stages written as text."""

import pytest

from graft.core.operators.definition.table import Trait
from graft.core.schedule.products.product_axes import Contraction, Multiply, contraction_of
from graft.core.tensor_ir.ir import Constant, Intrinsic, Variable
from graft.core.tensor_ir.printer import print_expression
from graft.core.types import FLOAT32, Type
from tests.core.schedule.strategies.nests.test_open_extents import kernel_of

PRODUCT = """
input x: float32[{x}]
input w: float32[{w}]
stage y: float32[{y}] at ({axes}) = reduce add over k < {k} from float32(0.5): {value}
  as contraction()
"""


def taken_apart(text: str, **extents: object) -> Contraction | None:
    return contraction_of(kernel_of(text.format(**extents), Trait.CONTRACTION))


def test_rows_are_of_the_left_factor_and_columns_of_the_right_one() -> None:
    for value in ("x[i, k] * w[k, j]", "w[k, j] * x[i, k]"):
        found = taken_apart(PRODUCT, x="5, 4", w="4, 7", y="5, 7", axes="i, j", k=4, value=value)
        assert found is not None
        assert (found.height, found.width, found.terms, found.batch) == (5, 7, 4, 1)
        assert print_expression(found.left) == "x[i, k]" and found.column.name == "j"
        assert found.rows == 0 and found.columns == 1 and found.outer == ()
        assert found.total == FLOAT32


def test_axes_of_both_factors_are_products_of_their_own() -> None:
    found = taken_apart(
        PRODUCT, x="3, 5, 4", w="3, 4, 7", y="3, 5, 7", axes="n, i, j", k=4, value="x[n, i, k] * w[n, k, j]"
    )
    assert found is not None
    assert found.outer == (0,) and found.batch == 3


def test_a_vector_has_no_rows() -> None:
    found = taken_apart(PRODUCT, x="4", w="4, 7", y="7", axes="j", k=4, value="x[k] * w[k, j]")
    assert found is not None
    assert found.rows is None and found.height == 1


def test_one_column_makes_the_axis_before_it_the_columns() -> None:
    found = taken_apart(PRODUCT, x="5, 4", w="4, 1", y="5, 1", axes="i, j", k=4, value="x[i, k] * w[k, j]")
    assert found is not None
    assert found.columns == 0 and found.rows is None


@pytest.mark.parametrize("value", ["x[i, k] * w[k, i]", "x[j, k] * w[k, j]"])
def test_columns_must_be_of_one_factor_alone(value: str) -> None:
    assert taken_apart(PRODUCT, x="5, 4", w="4, 5", y="5, 5", axes="i, j", k=4, value=value) is None


def test_a_stage_that_does_not_say_so_is_no_product() -> None:
    text = PRODUCT.replace("  as contraction()\n", "")
    assert taken_apart(text, x="5, 4", w="4, 7", y="5, 7", axes="i, j", k=4, value="x[i, k] * w[k, j]") is None


def test_the_number_of_a_term_counts_all_loops_of_the_sum() -> None:
    text = PRODUCT.replace("over k < {k}", "over p < 2, k < {k}")
    found = taken_apart(text, x="5, 2, 4", w="2, 4, 7", y="5, 7", axes="i, j", k=4, value="x[i, p, k] * w[p, k, j]")
    assert found is not None
    assert found.terms == 8
    assert print_expression(found.term()) == "p * 4 + k"


def test_a_bias_along_the_columns_is_held_in_registers() -> None:
    text = PRODUCT + "input c: float32[7]\nstage z: float32[5, 7] at (i, j) = y[i, j] * float32(2.0) + c[j]\n"
    lines = text.strip().splitlines()
    text = "\n".join([*lines[:2], lines[4], *lines[2:4], lines[5]])
    found = taken_apart(text, x="5, 4", w="4, 7", y="5, 7", axes="i, j", k=4, value="x[i, k] * w[k, j]")
    assert found is not None
    assert found.held_vectors(3) == 1 + 3


def test_plain_factors_are_fused_and_packed_ones_make_a_dot_product() -> None:
    x, w, total = (Variable(name, FLOAT32) for name in ("x", "w", "total"))
    assert Multiply()(x, w, total) == Intrinsic("fma", (x, w, total), FLOAT32)
    word, sums = Variable("word", Type("int32")), Variable("sums", Type("int32"))
    for transposed in (False, True):
        made = Multiply("dot4_u8s8", transposed)(word, word, sums)
        assert isinstance(made, Intrinsic)
        assert [one.type.dtype for one in made.arguments] == ["int32", "uint8", "int8"]
        assert Multiply("dot4_u8s8", transposed).kind(of_left=True) == ("int8" if transposed else "uint8")


def test_the_small_elements_of_a_factor_are_summed_by_a_dot_product_with_ones() -> None:
    elements, total = Variable("e", Type("uint8", 4)), Constant(0, Type("int32"))
    made = Multiply("dot4_u8s8").summed(elements, total, of_left=True)
    assert made == Intrinsic("dot4_u8s8", (total, elements, Constant(1, Type("int8", 4))), Type("int32"))
