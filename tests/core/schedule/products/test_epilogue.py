"""What is fused behind a sum of products, from stages written as text."""

import pytest

from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.schedule.products.epilogue import Epilogue, epilogue_of, fused_stages, turn
from graft.core.tensor_ir.ir import Variable
from graft.core.tensor_ir.printer import print_expression
from graft.core.tensor_ir.rewriting.simplify import simplify
from graft.core.types import FLOAT32
from tests.core.schedule.strategies.nests.test_open_extents import kernel_of

HEAD = """
input x: float32[5, 4]
input w: float32[4, 6]
input c: float32[6]
"""
SUM = """stage y: float32[5, 6] at (i, j) = reduce add over k < 4 from float32(0.0): x[i, k] * w[k, j]
"""


def epilogue(behind: str, before: str = "", sums: str = SUM) -> Epilogue | None:
    kernel = kernel_of(HEAD + before + sums + behind, Trait.CONTRACTION)
    stages = fused_stages(kernel)
    return None if stages is None else epilogue_of(stages, kernel.outputs)


def test_elementwise_stages_are_stored_at_the_place_of_the_sum() -> None:
    found = epilogue("stage z: float32[5, 6] at (a, d) = max(y[a, d] + c[d], float32(0.0))\n")
    assert found is not None and [stage.buffer.name for stage in found.followers] == ["z"]
    row, column, total = Variable("row"), Variable("column"), Variable("total", FLOAT32)
    (store,) = found.stores([row, column], total, None)
    assert (store.buffer.name, store.indices) == ("z", (row, column))
    assert print_expression(store.value) == "max(total + c[column], float32(0.0))"


def test_what_a_kernel_gives_out_is_stored_and_what_is_between_is_not() -> None:
    found = epilogue("stage p: float32[5, 6] at (i, j) = y[i, j] + c[j]\nstage z: float32[5, 6] at (i, j) = p[i, j]\n")
    assert found is not None
    assert [one.name for one in (found.last, *found.outputs)] == ["z", "z"]
    values = found.values([b.index(0), b.index(1)], Variable("t", FLOAT32), None)
    assert [print_expression(value) for value in values.values()] == ["t", "t + c[1]", "t + c[1]"]


@pytest.mark.parametrize(
    "behind",
    [
        "stage z: float32[5, 6] at (i, j) = y[i, 5 - j]\n",
        "stage z: float32[6, 5] at (i, j) = y[j, i]\n",
        "stage z: float32[5, 6] at (i, j) = y[i, j; j < 3]\n",
        "stage z: float32[5] at (i) = reduce add over j < 6 from float32(0.0): y[i, j]\n",
    ],
)
def test_a_stage_that_is_not_elementwise_is_no_epilogue(behind: str) -> None:
    assert epilogue(behind) is None


def test_what_is_computed_before_the_sum_is_inlined_into_it() -> None:
    before = "stage v: float32[5, 4] at (i, k) = x[i, k] * float32(2.0)\n"
    found = epilogue("", before, SUM.replace("x[i, k]", "v[i, k]"))
    assert found is not None
    assert "x[i, k] * float32(2.0)" in print_expression(found.anchor.value)


def test_a_maximum_is_no_sum_of_products() -> None:
    assert epilogue("", sums=SUM.replace("reduce add", "reduce max")) is None


def test_two_reductions_are_no_sum_with_an_epilogue() -> None:
    behind = "stage z: float32[5] at (i) = reduce add over j < 6 from float32(0.0): c[j]\n"
    assert epilogue(behind) is None


def test_an_index_of_0_into_an_axis_of_1_is_the_axis_itself() -> None:
    sums = SUM.replace("float32[5, 6]", "float32[5, 1]").replace("w[k, j]", "w[k, j + 2]")
    found = epilogue("stage z: float32[5, 1] at (i, j) = y[i, 0]\n", sums=sums)
    assert found is not None and len(found.followers) == 1


def test_branches_take_columns_of_their_own() -> None:
    behind = (
        "stage p: float32[5, 2] at (i, j) = y[i, j]\nstage q: float32[5, 4] at (i, j) = y[i, j + 2]\n"
        "stage r: float32[5, 4] at (i, j) = q[i, j] * float32(2.0)\n"
    )
    kernel = kernel_of(HEAD + SUM + behind, Trait.CONTRACTION)
    stages = fused_stages(kernel)
    assert stages is not None
    found = epilogue_of(stages, [stages[1].buffer, stages[3].buffer])
    assert found is not None and [(one.begin, one.end) for one in found.branches] == [(0, 2), (2, 6)]
    assert [stage.buffer.name for stage in found.every] == ["p", "q", "r"]
    assert epilogue_of(stages[:2], [stages[1].buffer]) is None  # columns 2 to 5 are nobody's


def test_columns_of_products_that_take_turns_are_picked_in_pairs() -> None:
    found = [simplify(turn(b.index(column), number, 2, 2)) for number in range(2) for column in range(4)]
    assert found == [b.index(place) for place in (0, 1, 4, 5, 2, 3, 6, 7)]


def test_a_tile_holds_whole_turns() -> None:
    stages = "stage p: float32[5, 3] at (i, j) = y[i, j * 2]\n"
    found = epilogue(stages)
    assert found is None
    plain = epilogue("")
    assert plain is not None and plain.turns == 1 and plain.allows(7)


def test_a_long_epilogue_is_not_repeated_for_every_vector() -> None:
    light, heavy = (epilogue(f"stage z: float32[5, 6] at (i, j) = {value}\n") for value in ("y[i, j]", DEEP))
    assert light is not None and not light.is_heavy
    assert heavy is not None and heavy.is_heavy


DEEP = "exp(tanh(exp(tanh(exp(tanh(y[i, j]))))))"
