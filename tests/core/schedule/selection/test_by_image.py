"""Kernels in which nothing but the batch varies: each image has the schedule that it has by itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graft.core.machine.rows import ROWS
from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.one_image import one_image
from graft.core.schedule.parameters import ContractionParameters, ScheduleParameters
from graft.core.schedule.selection import by_image
from graft.core.schedule.selection.select import schedule
from graft.core.schedule.selection.table import TABLE
from graft.core.schedule.strategies.convolutions import direct_nhwc
from graft.core.schedule.strategies.strategy import Anchor, StrategyTable
from graft.core.tensor_ir.interpreting.interpreter import run_function, run_stages
from graft.core.tensor_ir.ir import Buffer, For, Variable
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tuning.candidates import candidates
from tests.core.schedule.strategies.convolutions.varying_images import kernel_of as convolution
from tests.core.schedule.strategies.nests.test_open_extents import MACHINES, kernel_of

BATCHES = (0, 1, 3)
POOL = """
input x: float32[n, 5, 9, 9]
stage p: float32[n, 5, 4, 4] at (i0, i1, i2, i3) = reduce max over k0 < 3, k1 < 3 from float32(-inf): x[i0, i1, i2 * 2 + k0, i3 * 2 + k1] as pooling(windows = windows(source = [9, 9], kernel = [3, 3], target = [4, 4], strides = [2, 2], dilations = [1, 1], begins = [0, 0], ends = [0, 0]))
stage y: float32[n, 5, 4, 4] at (i0, i1, i2, i3) = max(p[i0, i1, i2, i3], float32(0.0))
"""  # noqa: E501
SOFTMAX = """
input x: float32[n, 6, 37]
stage t: float32[n, 6] at (i, h) = reduce max over k < 37 from float32(-inf): x[i, h, k]
stage s: float32[n, 6] at (i, h) = reduce add over k < 37 from float32(0.0): exp(x[i, h, k] - t[i, h])
stage y: float32[n, 6, 37] at (i, h, j) = exp(x[i, h, j] - t[i, h]) / s[i, h]
"""
MEAN = """
input x: float32[n, 40, 7, 7]
stage s: float32[n, 40] at (i, c) = reduce add over k < 7, l < 7 from float32(0.0): x[i, c, k, l]
stage y: float32[n, 40] at (i, c) = s[i, c] * float32(0.25)
"""
TRANSPOSE = """
input x: float32[n, 33, 20]
input c: float32[20]
stage y: float32[n, 20, 33] at (i, j, k) = x[i, k, j] + c[j]
"""
JOINED = """
input a: float32[n, 3, 50]
input c: float32[n, 4, 50]
stage y: float32[n, 7, 50] at (i, j, k) = select(j < 3, a[i, j, k; j < 3], c[i, j - 3, k; j >= 3])
"""
NESTS = {
    "pool": (POOL, Trait.POOLING), "softmax": (SOFTMAX, Trait.ROW_WISE), "mean": (MEAN, Trait.REDUCTION),
    "transpose": (TRANSPOSE, Trait.INJECTIVE), "joined": (JOINED, Trait.INJECTIVE),
}  # fmt: skip
OTHERS = {
    "an image reads another": """
input x: float32[n, 40]
stage y: float32[n, 40] at (i, j) = x[n - 1 - i, j]
""",
    "the number of the image": """
input x: float32[n, 40]
stage y: float32[n, 40] at (i, j) = x[i, j] + cast<float32>(i)
""",
    "the number of images": """
input x: float32[n, 40]
stage y: float32[n, 40] at (i, j) = x[i, j] / cast<float32>(n)
""",
    "a sum over the batch": """
input x: float32[n, 40]
stage y: float32[40] at (j) = reduce add over k < n from float32(0.0): x[k, j]
""",
    "two symbols": """
input x: float32[n, m]
stage y: float32[n, m] at (i, j) = x[i, j] + float32(1.0)
""",
    "another axis": """
input x: float32[40, n]
stage y: float32[40, n] at (i, j) = x[i, j] + float32(1.0)
""",
    "rows apart in memory": """
input x: float32[n, 40] strides [s, 1]
stage y: float32[n, 40] at (i, j) = x[i, j] + float32(1.0)
""",
}


def static(kernel: Kernel) -> Kernel:
    found = one_image(kernel)
    assert found is not None
    return found.kernel


def check(kernel: Kernel, machine: str, arrays: dict[Buffer, np.ndarray]) -> None:
    """Compare the function with the stages, at several batches, and its schedule with that of one image."""
    target = Target(ROWS[machine])
    scheduled, alone = schedule(kernel, target), schedule(static(kernel), target)
    if scheduled.strategy == "convolution_by_image":
        assert scheduled.knobs == {"image": alone.strategy, **alone.knobs}
    constants = {one: array for one, array in arrays.items() if one in kernel.constants}
    rng = np.random.default_rng(0)
    for batch in BATCHES:
        known = {
            one: rng.integers(-4, 5, [batch, *b.dims(replace(one, shape=one.shape[1:]))]).astype(np.float32)
            for one in kernel.inputs
            if isinstance(one.shape[0], Variable)
        }
        given = {one: arrays[one] for one in kernel.inputs if one not in known}
        wanted = run_stages(kernel.stages, known | given | constants)[kernel.outputs[0]]
        passed = [scheduled.packed.get(one, (known | given).get(one)) for one in kernel.inputs]
        *inputs, output = (
            [batch if isinstance(extent, Variable) else extent for extent in b.extents(one.outside)]
            for one in scheduled.function.parameters
        )
        shaped = [np.asarray(array).reshape(shape) for array, shape in zip(passed, inputs, strict=True)]
        (result,) = run_function(scheduled.function, shaped, [tuple(output)])
        np.testing.assert_allclose(result.reshape(wanted.shape), wanted, rtol=1e-3, atol=1e-3, err_msg=f"batch {batch}")


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", NESTS)
def test_a_nest_computes_every_batch_as_it_computes_one_image(name: str, machine: str) -> None:
    text, trait = NESTS[name]
    kernel = kernel_of(text, trait)
    rng = np.random.default_rng(1)
    arrays = {
        one: rng.integers(-3, 4, b.dims(one)).astype(np.float32)
        for one in kernel.inputs
        if not isinstance(one.shape[0], Variable)
    }
    scheduled = schedule(kernel, Target(ROWS[machine]))
    assert scheduled.strategy == schedule(static(kernel), Target(ROWS[machine])).strategy
    verify(scheduled.function, ROWS[machine])
    check(kernel, machine, arrays)


def fixed(weights: tuple[int, ...], size: tuple[int, int], pads: int) -> tuple[Kernel, dict[Buffer, np.ndarray]]:
    return convolution(weights, {"pads": [pads] * 4}, size)


APART = """
input x: float32[n, 9, 3, 2]
input w: float32[3, 2, 5]
stage y: float32[n, 5, 9] at (i, k, j) =
  reduce add over t < 3, u < 2 from float32(0.0): x[i, j, t, u] * w[t, u, k] as contraction()
"""


@pytest.mark.parametrize("machine", MACHINES)
def test_a_product_whose_columns_lie_apart_is_copied_panel_by_panel(machine: str) -> None:
    kernel = kernel_of(APART, Trait.CONTRACTION)
    assert schedule(kernel, Target(ROWS[machine])).strategy == "blocked_product"
    check(kernel, machine, {one: np.arange(30, dtype=np.float32).reshape(3, 2, 5) for one in kernel.inputs[1:]})


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("weights", "size", "pads"),
    [((20, 3, 3, 3), (9, 11), 1), ((8, 20, 1, 1), (5, 5), 0), ((8, 8, 3, 3), (6, 6), 1)],
    ids=["first", "points", "window"],
)
def test_a_convolution_computes_every_batch_as_it_computes_one_image(
    weights: tuple[int, ...], size: tuple[int, int], pads: int, machine: str
) -> None:
    kernel, constants = fixed(weights, size, pads)
    assert schedule(kernel, Target(ROWS[machine])).strategy == "convolution_by_image"
    check(kernel, machine, constants)


def test_a_convolution_of_few_pixels_reads_its_weights_for_all_images() -> None:
    kernel, _ = fixed((8, 20, 1, 1), (1, 1), 0)
    scheduled = schedule(kernel, Target(ROWS["x86-64-v4"]))
    assert scheduled.strategy == "direct_nhwc"
    assert str(scheduled.refusals["convolution_by_image"]) == "size: an image has few pixels"


def test_a_convolution_that_one_image_has_no_schedule_for_is_left_to_those_of_any_extents() -> None:
    kernel, _ = fixed((8, 20, 1, 1), (5, 5), 0)
    last = TABLE.rows[-1]
    table = StrategyTable((by_image.by_image(StrategyTable((last,))), direct_nhwc.STRATEGY, last))
    scheduled = schedule(kernel, Target(ROWS["x86-64-v4"]), strategies=table)
    assert scheduled.strategy == "direct_nhwc"
    refusal = scheduled.refusals["convolution_by_image"]
    assert str(refusal) == "cost: one image has no schedule but generic_nest"


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_each_image_by_itself_is_not_taken(name: str) -> None:
    kernel = kernel_of(OTHERS[name], Trait.ELEMENTWISE)
    assert one_image(kernel) is None
    answer = by_image.applies(Anchor(kernel), Target(ROWS["x86-64-v4"]))
    assert str(answer) == "shape: more than the batch varies"


def test_knobs_are_those_of_one_image() -> None:
    kernel, _ = fixed((16, 16, 3, 3), (8, 8), 1)
    target = Target(ROWS["x86-64-v4"])
    offered = candidates(kernel, target, 0, None)
    known = (one for one in candidates(static(kernel), target, 0, None) if not isinstance(one, ScheduleParameters))
    assert set(offered).issuperset(known)
    wanted = next(one for one in offered if isinstance(one, ContractionParameters))
    found, alone = schedule(kernel, target, wanted), schedule(static(kernel), target, wanted)
    assert found.knobs == {"image": alone.strategy, **alone.knobs}
    assert candidates(kernel, target, 1, wanted) == candidates(static(kernel), target, 1, wanted)


def loops_of(kernel: Kernel) -> list[str]:
    """The kinds of the loops that the function begins with."""
    kinds, body = [], schedule(kernel, Target(ROWS["x86-64-v4"])).function.body
    while isinstance(body, For):
        kinds.append(body.kind)
        body = body.body
    return kinds[:2]


def test_images_of_several_loops_are_shared_among_the_threads_one_by_one() -> None:
    kernel, _ = fixed((64, 64, 3, 3), (40, 40), 1)
    assert loops_of(kernel)[0] == "serial"
