"""Stages over linear indices, and axes that every access walks as one."""

from dataclasses import replace

import pytest

from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.schedule.loops.flat_stages import (
    FAR,
    FlatStage,
    Layout,
    accesses,
    collapse_own,
    constant_extent,
    flatten,
    irregular,
    stride,
)
from graft.core.tensor_ir.ir import Variable
from graft.core.tensor_ir.printer import print_expression
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from tests.core.schedule.strategies.nests.test_open_extents import kernel_of


def flat(text: str) -> tuple[FlatStage, Simplifier]:
    kernel, simplifier = kernel_of(text, Trait.ELEMENTWISE), Simplifier()
    return flatten(kernel.stages[-1], Layout(simplifier)), simplifier


def test_every_access_is_one_linear_index() -> None:
    stage, _ = flat("input x: float32[3, 4]\nstage y: float32[4, 3] at (i, j) = x[j, i]\n")
    assert sorted(map(print_expression, accesses(stage))) == ["i * 3 + j", "j * 4 + i"]
    assert [(axis.variable.name, axis.extent) for axis in stage.axes] == [("i", 4), ("j", 3)]


@pytest.mark.parametrize(
    ("text", "extents"),
    [
        ("input x: float32[3, 4]\nstage y: float32[3, 4] at (i, j) = x[i, j]\n", [12]),
        ("input x: float32[3, 4]\nstage y: float32[4, 3] at (i, j) = x[j, i]\n", [4, 3]),
        ("input x: float32[4]\nstage y: float32[3, 4] at (i, j) = x[j]\n", [3, 4]),
        ("input x: float32[2, 4]\nstage y: float32[2, 3, 4] at (n, i, j) = x[n, j]\n", [2, 3, 4]),
        ("input x: float32[2]\nstage y: float32[2, 3, 4] at (n, i, j) = x[n]\n", [2, 12]),
        ("input x: float32[1, 4]\nstage y: float32[1, 4] at (i, j) = x[i, j]\n", [4]),
        ("input x: float32[3, 4]\nstage y: float32[3, 4] at (i, j) = x[i, j] + cast<float32>(j)\n", [3, 4]),
    ],
)
def test_neighbouring_axes_that_all_accesses_walk_as_one_become_one(text: str, extents: list[int]) -> None:
    stage, simplifier = flat(text)
    assert [axis.extent for axis in collapse_own(stage, simplifier).axes] == extents


def test_axes_of_a_sum_are_collapsed_by_themselves() -> None:
    stage, simplifier = flat(
        "input x: float32[2, 3, 4]\n"
        "stage y: float32[2] at (i) = reduce add over j < 3, k < 4 from float32(0.0): x[i, j, k]\n"
    )
    joint = collapse_own(stage, simplifier)
    assert ([axis.extent for axis in joint.axes], [axis.extent for axis in joint.reduced]) == ([2], [12])


def test_the_stride_of_an_index_is_known_where_it_is_constant() -> None:
    i, j = Variable("i"), Variable("j")
    simplifier = Simplifier({i: (0, 3), j: (0, 7)})
    index = b.add(b.multiply(i, 8), j)
    assert [stride(index, one, simplifier) for one in (i, j, Variable("k"))] == [8, 1, 0]
    assert stride(b.modulo(index, 5), i, simplifier) is None


def test_a_variable_that_is_a_value_is_irregular() -> None:
    stage, simplifier = flat("input x: float32[8]\nstage y: float32[8] at (i) = x[i] * cast<float32>(i)\n")
    assert irregular(stage, simplifier) == {stage.axes[0].variable}
    plain, simplifier = flat("input x: float32[8]\nstage y: float32[8] at (i) = x[i]\n")
    assert not irregular(plain, simplifier)


def test_a_buffer_of_a_row_leaves_the_rows_out() -> None:
    kernel = kernel_of("input x: float32[3, 4]\nstage y: float32[3, 4] at (i, j) = x[i, j]\n", Trait.ELEMENTWISE)
    (x,) = kernel.inputs
    assert b.dims(Layout(Simplifier()).flat(x)) == (12,)
    assert b.dims(Layout(Simplifier(), 1, [x]).flat(x)) == (4,)


def test_a_symbolic_extent_of_a_sum_is_no_number() -> None:
    assert constant_extent(b.index(5)) == 5
    with pytest.raises(AssertionError, match="the extent of a reduction axis is symbolic"):
        constant_extent(Variable("n"))


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("input x: float32[n, m]\nstage y: float32[n, m] at (i, j) = x[i, j]\n", ["m * n"]),
        ("input x: float32[n, m]\nstage y: float32[m, n] at (i, j) = x[j, i]\n", ["m", "n"]),
        ("input x: float32[n, 4, m]\nstage y: float32[n, 4, m] at (i, j, k) = x[i, j, k]\n", ["m * n * 4"]),
        ("input x: float32[n]\nstage y: float32[n, m, 4] at (i, j, k) = x[i]\n", ["n", "m * 4"]),
        ("input x: float32[n, m] strides [s, 1]\nstage y: float32[n, m] at (i, j) = x[i, j]\n", ["n", "m"]),
    ],
)
def test_axes_of_extents_that_vary_become_one_where_all_accesses_walk_them_so(text: str, counts: list[str]) -> None:
    stage, simplifier = flat(text)
    joint = collapse_own(stage, simplifier)
    assert [print_expression(axis.iterations) for axis in joint.axes] == counts


def test_a_stride_that_varies_is_far() -> None:
    stage, simplifier = flat("input x: float32[n, m]\nstage y: float32[n, m] at (i, j) = x[i, j]\n")
    assert [stride(stage.place, axis.variable, simplifier) for axis in stage.axes] == [FAR, 1]


def test_a_flat_parameter_says_what_tensor_it_is_where_its_size_varies() -> None:
    kernel = kernel_of("input x: float32[n, 4]\nstage y: float32[n, 4] at (i, j) = x[i, j]\n", Trait.ELEMENTWISE)
    (x,) = kernel.inputs
    assert Layout(Simplifier()).flat(x).outside is x
    joined = replace(x, shape=(b.product_of(x.shape),), tensor=x)
    assert Layout(Simplifier()).flat(joined).outside is x
