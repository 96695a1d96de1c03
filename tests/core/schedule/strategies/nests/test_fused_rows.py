import numpy as np
import pytest

from graft.core.machine.target import target_named
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.kept_stages import keep_costly
from graft.core.schedule.selection.select import schedule
from graft.core.schedule.strategies.nests.split_reduction import split
from graft.core.tensor_ir.interpreting.interpreter import run_function, run_stages
from graft.core.tensor_ir.ir import For, Let, Load, Shuffle, Store
from graft.core.tensor_ir.parser import parse_stages
from graft.core.tensor_ir.printer import print_stages
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tensor_ir.visit import loads, walk_expressions, walk_statements

AVX512 = target_named("x86-64-v4")

SOFTMAX = """\
input x: float32[6, 40]
stage top: float32[6] in scratch at (i) = reduce max over k < 40 from float32(-inf): x[i, k]
stage total: float32[6] in scratch at (p) = reduce add over q < 40 from float32(0.0): exp(x[p, q] - top[p])
stage y: float32[6, 40] at (m, n) = exp(x[m, n] - top[m]) / total[m]
"""


def kernel_of(text, anchor):
    stages = parse_stages(text)
    written = {stage.buffer for stage in stages}
    inputs = []
    for stage in stages:
        for load in loads(stage.value):
            if load.buffer not in written and load.buffer not in inputs:
                inputs.append(load.buffer)
    return Kernel("kernel", tuple(inputs), (stages[-1].buffer,), stages, anchor)


def check(kernel, arrays, tolerance=1e-5):
    function = schedule(kernel, AVX512).function
    verify(function)
    expected = run_stages(kernel.stages, dict(zip(kernel.inputs, arrays, strict=True)))[kernel.outputs[0]]
    result = run_function(function, [array.reshape(-1) for array in arrays])[0]
    np.testing.assert_allclose(result.reshape(expected.shape), expected, rtol=tolerance, atol=tolerance)
    return function


def test_softmax_runs_row_by_row():
    random = np.random.default_rng(0)
    function = check(kernel_of(SOFTMAX, Trait.ROW_WISE), [random.standard_normal((6, 40), np.float32)])
    assert str(function).splitlines()[1:5] == [
        "  serial row0 < 6 {",
        "    allocate top: float32[1] in scratch",
        "    allocate y_kept: float32[40] in scratch",
        "    allocate total: float32[1] in scratch",
    ]


def test_softmax_over_a_middle_axis_keeps_its_exponentials():
    text = """\
input x: float32[2, 5, 33]
stage top: float32[2, 33] in scratch at (i, j) = reduce max over k < 5 from float32(-inf): x[i, k, j]
stage total: float32[2, 33] in scratch at (p, q) = reduce add over r < 5 from float32(0.0): exp(x[p, r, q] - top[p, q])
stage y: float32[2, 5, 33] at (m, n, o) = exp(x[m, n, o] - top[m, o]) / total[m, o]
"""
    assert "y_kept[p, r, q]" in print_stages(keep_costly(parse_stages(text)))
    check(kernel_of(text, Trait.ROW_WISE), [np.random.default_rng(1).standard_normal((2, 5, 33), np.float32)])


SUM = """\
input x: float32[96, 1024]
stage y: float32[] at () = reduce add over i < 96, k < 1024 from float32(3.0): x[i, k]
  then t: float32 = t * float32(0.5)
"""


def test_a_large_sum_is_split_into_parts():
    (stage,) = parse_stages(SUM)
    assert print_stages(split(stage, AVX512.machine)) == (
        "input x: float32[96, 1024]\n"
        "stage y_parts: float32[48] in scratch at (part) = reduce add over i < 2, k < 1024 from float32(0.0): "
        "x[part * 2 + i, k]\n"
        "stage y: float32[] at () = reduce add over part_1 < 48 from float32(3.0): y_parts[part_1]\n"
        "  then t: float32 = t * float32(0.5)\n"
    )
    function = check(kernel_of(SUM, Trait.REDUCTION), [np.random.default_rng(2).random((96, 1024), np.float32)], 1e-4)
    assert "parallel part < 48" in str(function)


def test_a_small_sum_is_not_split():
    (stage,) = parse_stages(SUM.replace("1024", "64"))
    assert split(stage, AVX512.machine) == [stage]


def test_what_many_places_read_is_kept_instead_of_repeated():
    text = """\
input x: float32[300]
stage a: float32[300] in scratch at (i) = exp(tanh(x[i]))
stage y: float32[292] at (j) = a[j] + a[j + 1] + a[j + 2] + a[j + 3] + a[j + 4] + a[j + 5] + a[j + 6] + a[j + 7]
"""
    function = check(kernel_of(text, Trait.ELEMENTWISE), [np.random.default_rng(3).random(300, np.float32)])
    assert "allocate a: float32[300] in scratch" in str(function)


@pytest.mark.parametrize("shape", [(16, 32), (40, 50), (17, 64)])
def test_a_transpose_goes_through_register_tiles(shape):
    rows, columns = shape
    text = f"""\
input x: float32[{rows}, {columns}]
input b: float32[{rows}]
stage y: float32[{columns}, {rows}] at (i, j) = max(x[j, i] + b[j], float32(0.0))
"""
    random = np.random.default_rng(4)
    arrays = [random.standard_normal(shape, np.float32), random.standard_normal(rows, np.float32)]
    function = check(kernel_of(text, Trait.INJECTIVE), arrays)
    values = [inner.value for inner in walk_statements(function.body) if isinstance(inner, Let)]
    assert sum(isinstance(value, Shuffle) for value in values) == 64
    wide = [node for value in values for node in walk_expressions(value) if isinstance(node, Load)]
    assert all(node.type.lanes == 16 for node in wide)


COLUMNS = """\
input x: float32[512, 768]
stage y: float32[768] at (j) = reduce add over i < 512 from float32(0.0): x[i, j]
"""


def test_a_sum_to_one_block_of_columns_is_split_into_parts_of_rows():
    parts, whole = split(parse_stages(COLUMNS)[0], AVX512.machine)
    assert [extent.value for extent in parts.buffer.shape] == [16, 768]
    assert whole.buffer.name == "y"
    function = check(
        kernel_of(COLUMNS, Trait.REDUCTION), [np.random.default_rng(2).random((512, 768), np.float32)], 1e-4
    )
    assert "parallel part < 16" in str(function)


def test_columns_enough_for_all_threads_are_not_split():
    (stage,) = parse_stages(COLUMNS.replace("768", "98304"))
    assert split(stage, AVX512.machine) == [stage]


def test_whole_reductions_of_one_input_go_over_its_parts_together():
    text = """\
input x: float32[64, 1100]
stage low: float32[] in scratch at () = reduce min over i < 64, j < 1100 from float32(inf): x[i, j]
  then total: float32 = min(total, float32(0.0))
stage high: float32[] in scratch at () = reduce max over i < 64, j < 1100 from float32(-inf): x[i, j]
stage y: float32[64, 1100] at (m, n) = (x[m, n] - low[]) / (high[] - low[])
"""
    x = np.random.default_rng(5).random((64, 1100), np.float32) + np.float32(1.0)
    function = check(kernel_of(text, Trait.ROW_WISE), [x])
    shared = [one for one in walk_statements(function.body) if isinstance(one, For) and one.kind == "parallel"]
    assert shared[0].extent == b.index(64)
    stored = {one.buffer.name for one in walk_statements(shared[0]) if isinstance(one, Store)}
    assert {"low_parts", "high_parts"} <= stored
