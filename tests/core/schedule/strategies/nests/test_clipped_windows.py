import numpy as np
import pytest

from graft.core.machine.target import target_named
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.selection.select import schedule
from graft.core.schedule.strategies.nests.clipped_windows import clip_windows
from graft.core.tensor_ir.interpreting.interpreter import run_function, run_stages
from graft.core.tensor_ir.parser import parse_stages
from graft.core.tensor_ir.printer import print_stages
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tensor_ir.visit import loads

AVX512 = target_named("x86-64-v4")
NEON = target_named("armv8-a")

INSIDE = "h * 2 + a - 1 >= 0 & h * 2 + a - 1 < 9 & w * 2 + b - 1 >= 0 & w * 2 + b - 1 < 41"
MAX_POOL = f"""\
input x: float32[3, 9, 41]
stage y: float32[3, 5, 21] at (n, h, w) = reduce max over a < 3, b < 3 from float32(-inf): \
select({INSIDE}, x[n, h * 2 + a - 1, w * 2 + b - 1; {INSIDE}], float32(-inf))
"""
SUM_POOL = f"""\
input x: float32[3, 9, 41]
stage s: float32[3, 5, 21] in scratch at (n, h, w) = reduce add over a < 3, b < 3 from float32(0.0): \
x[n, h * 2 + a - 1, w * 2 + b - 1; {INSIDE}]
stage y: float32[3, 5, 21] at (p, q, r) = s[p, q, r] / float32(9.0)
"""
COLUMNS = """\
input x: float32[4, 1, 8, 1]
stage y: float32[4, 1, 4, 1] at (n, d, h, w) = reduce add over a < 3 from float32(0.0): \
x[n, d, h * 2 + a - 1, w; h * 2 + a - 1 >= 0 & h * 2 + a - 1 < 8]
"""
"""The last axis has one place, so that another one is the best for vectors."""


def kernel_of(text):
    stages = parse_stages(text)
    (x,) = {load.buffer for load in loads(stages[0].value)}
    return Kernel("pool", (x,), (stages[-1].buffer,), stages, Trait.POOLING)


@pytest.mark.parametrize("text", [MAX_POOL, SUM_POOL, COLUMNS], ids=["max", "sum", "columns"])
@pytest.mark.parametrize("target", [AVX512, NEON], ids=["avx512", "neon"])
def test_pooling_equals_its_stages(text, target):
    kernel = kernel_of(text)
    function = schedule(kernel, target).function
    verify(function)
    shape = [int(extent.value) for extent in kernel.inputs[0].shape]
    data = np.random.default_rng(0).standard_normal(shape, np.float32)
    expected = run_stages(kernel.stages, {kernel.inputs[0]: data})[kernel.outputs[0]]
    result = run_function(function, [data.reshape(-1)])[0].reshape(expected.shape)
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)


def test_rows_of_a_window_are_clipped_by_loop_bounds():
    (clipped,) = [clip_windows(stage) for stage in parse_stages(MAX_POOL)]
    assert print_stages([clipped]).splitlines()[1] == (
        "stage y: float32[3, 5, 21] at (n, h, w) = reduce max over "
        "a < max(min(3, 0 - h * 2 + 10) - max(0, 0 - h * 2 + 1), 0), b < 3 from float32(-inf): "
        "select(w * 2 + b - 1 >= 0 & w * 2 + b - 1 < 41, x[n, h * 2 + (max(0, 0 - h * 2 + 1) + a) - 1, w * 2 + b - 1; "
        "w * 2 + b - 1 >= 0 & w * 2 + b - 1 < 41], float32(-inf))"
    )


def test_a_window_whose_padding_counts_is_not_clipped():
    (stage,) = parse_stages(MAX_POOL.replace("float32(-inf))\n", "float32(0.0))\n"))
    assert clip_windows(stage) is stage


def test_the_division_of_an_average_is_done_before_the_store():
    function = schedule(kernel_of(SUM_POOL), AVX512).function
    assert "allocate s" not in str(function)
