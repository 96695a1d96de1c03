"""Products of images seen as products of rows."""

import numpy as np
import pytest

from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.collapse import collapse_rows, collapse_terms, collapsed, with_sources
from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.ir import Block, Function
from tests.core.schedule.strategies.nests.test_open_extents import kernel_of

TEXT = """
input x: float32[2, 3, 4]
input w: float32[4, 5]
input c: float32[5]
stage y: float32[2, 3, 5] at (n, h, j) = reduce add over k < 4 from float32(0.0): x[n, h, k] * w[k, j]
  as contraction()
stage z: float32[2, 3, 5] at (n, h, j) = y[n, h, j] + c[j]
"""


def kernel(text: str = TEXT) -> Kernel:
    return kernel_of(text, Trait.CONTRACTION, {"c": np.arange(5, dtype=np.float32)})


def test_leading_axes_become_rows_and_the_numbers_stay() -> None:
    found = collapse_rows(kernel())
    assert found is not None
    rows, sources = found
    assert [b.dims(stage.buffer) for stage in rows.stages] == [(6, 5), (6, 5)]
    assert {old.name for old in sources.values()} == {"x", "y", "z"}
    random = np.random.default_rng(0)
    numbers = {one: random.integers(-3, 4, b.dims(one)).astype("float32") for one in kernel().inputs}
    named = {one.name: array for one, array in numbers.items()}
    plain = kernel()
    expected = run_stages(plain.stages, {one: named[one.name] for one in plain.inputs})[plain.outputs[0]]
    flat = {one: named[one.name].reshape(b.dims(one)) for one in rows.inputs}
    np.testing.assert_array_equal(run_stages(rows.stages, flat)[rows.outputs[0]], expected.reshape(6, 5))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("= y[n, h, j] + c[j]", "= y[n, 2 - h, j] + c[j]"),
        ("= y[n, h, j] + c[j]", "= y[n, h, j] + cast<float32>(h)"),
    ],
)
def test_a_stage_that_does_not_go_through_rows_in_step_stays(old: str, new: str) -> None:
    assert collapse_rows(kernel(TEXT.replace(old, new))) is None


def test_a_matrix_has_its_rows_already() -> None:
    text = TEXT.replace("[2, 3, ", "[3, ").replace("(n, h, j)", "(h, j)").replace("[n, h, ", "[h, ")
    assert collapse_rows(kernel(text)) is None


def test_packed_constants_have_the_names_of_the_kernel_before() -> None:
    found = collapse_rows(kernel())
    assert found is not None
    rows, sources = found
    packed = {one: np.zeros(1) for one in rows.inputs}
    named = with_sources(Scheduled(Function("f", (), 0, Block(())), packed), sources)
    originals = set(sources.values())
    assert {one for one in named.packed if one.name == "x"} <= originals
    assert {one.name for one in named.packed} == {"x", "w", "c"}


SUMS = """
input x: float32[4, 2, 3]
input w: float32[2, 3, 5]
stage y: float32[4, 5] at (i, j) = reduce add over k < 2, l < 3 from float32(0.0): x[i, k, l] * w[k, l, j]
  as contraction()
"""


def test_axes_of_a_sum_that_follow_each_other_in_its_factors_become_one_and_the_numbers_stay() -> None:
    plain = kernel_of(SUMS, Trait.CONTRACTION, {})
    found, sources = collapsed(plain)
    reduction = found.stages[0].reduction
    assert reduction is not None
    assert [b.dims(one) for one in found.inputs] == [(4, 6), (6, 5)]
    assert len(reduction.axes) == 1
    assert {old.name for old in sources.values()} == {"x", "w"}
    random = np.random.default_rng(0)
    arrays = [random.integers(-3, 4, b.dims(one)).astype("float32") for one in plain.inputs]
    wanted = run_stages(plain.stages, dict(zip(plain.inputs, arrays, strict=True)))[plain.outputs[0]]
    flat = {one: array.reshape(b.dims(one)) for one, array in zip(found.inputs, arrays, strict=True)}
    np.testing.assert_array_equal(run_stages(found.stages, flat)[found.outputs[0]], wanted)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[i, k, l]", "[i, k, 2 - l]"),
        ("* w[k, l, j]", "* w[k, l, j] * cast<float32>(k)"),
        ("x[i, k, l]", "x[i, k, l] * x[i, 0, 0]"),
        ("over k < 2, l < 3", "over k < 2, l < 2"),
        ("over k < 2, l < 3", "over l < 3, k < 2"),
    ],
)
def test_axes_of_a_sum_that_are_apart_in_a_factor_stay(old: str, new: str) -> None:
    assert collapse_terms(kernel_of(SUMS.replace(old, new), Trait.CONTRACTION, {})) is None
