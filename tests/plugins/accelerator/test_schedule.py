"""Stages as loops of the tensor IR: schedules keep what they compute, and intrinsics mean what the machine does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.operators.definition.build import dims
from graft.core.schedule.primitives.schedule_text import apply_schedule
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.ir import Allocate, Function
from graft.core.tensor_ir.visit import walk_statements
from graft.errors import ScheduleError
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.frontend.layers import (
    Activation,
    Addition,
    Convolution,
    Layer,
    Pooling,
    PoolingKind,
    Product,
    Requantize,
)
from graft.plugins.accelerator.intrinsics import PRODUCTS, Intrinsic, operation, product
from graft.plugins.accelerator.isa import FLOOR, WIDE, Alu, Operation
from graft.plugins.accelerator.lowering import stages_of
from graft.plugins.accelerator.model import operate
from graft.plugins.accelerator.nests import nest_of
from graft.plugins.accelerator.schedule import scheduled
from graft.plugins.accelerator.stages import Stage
from graft.plugins.accelerator.tiling import Tiling

Array = npt.NDArray[Any]
TINY = Configuration(block_in=2, block_out=2, input_bytes=512, weight_bytes=512, accumulator_bytes=2048)
"""Blocks of 2 x 2: a few loops are a layer."""
X = Activation("x", 5, 4, 3, scale=0.1, zero_point=-3)
HALF = Activation("y", 5, 2, 2, scale=0.1, zero_point=-3)
LEFT, RIGHT = Activation("x", 5, 3, zero_point=-128), Activation("w", 3, 5, zero_point=4)


def convolution(channels: int, groups: int = 1, kernel: int = 3, stride: int = 1) -> Convolution:
    height, width = (-(-size // stride) for size in (4, 3))
    x, y = Activation("x", channels, 4, 3, zero_point=-3), Activation("y", 6, height, width, scale=0.3, zero_point=7)
    weights = np.random.default_rng(0).integers(-9, 9, (6, channels // groups, kernel, kernel))
    fields = Requantize(divisor=8.0), (stride, stride), (kernel // 2,) * 4
    return Convolution("conv", x, y, weights, *fields, groups=groups)


LAYERS: dict[str, tuple[Layer, Tiling]] = {
    "convolution": (convolution(5), Tiling(2, 3, 3, 2)),
    "convolution in parts of its sum": (convolution(5), Tiling(2, 2, 2, 3, False)),
    "rows that are skipped": (convolution(5, kernel=1, stride=2), Tiling(3, 3, 1, 2)),
    "groups": (convolution(6, groups=3), Tiling(2, 2, 3, 3)),
    "depthwise": (convolution(6, groups=6), Tiling(2, 2, 2, 3)),
    "maximum": (Pooling("max", PoolingKind.MAX, X, HALF, (2, 2), (2, 1)), Tiling(2, 2, 2, 1)),
    "mean": (Pooling("mean", PoolingKind.AVERAGE, X, Activation("y", 5), (4, 3)), Tiling(2, 2, 1, 1)),
    "addition": (Addition("add", X, X, Activation("y", 5, 4, 3, scale=0.2)), Tiling(2, 2, 3, 3)),
    "product of two": (
        Product("p", LEFT, RIGHT, Activation("y", 3, 3), Requantize(divisor=9.0)),
        Tiling(1, 2, 2, 1),
    ),
}


def stage_of(layer: Layer) -> Stage:
    return next(iter(stages_of(layer, TINY)))


def random_inputs(function: Function, stage: Stage) -> list[Array]:
    """An array for each parameter; the vectors are the stage's, for they hold floats."""
    rng, found = np.random.default_rng(1), list[Array]()
    for one in function.input_buffers:
        if one.name == "v":
            assert stage.vectors is not None
            found.append(np.ascontiguousarray(stage.vectors, np.int32))
            continue
        found.append(rng.integers(-128, 128, dims(one)).astype(np.int8))
    return found


def called(intrinsic: Intrinsic) -> Callable[..., None]:
    """What a call of an intrinsic does to memory, by its meaning."""
    meaning = intrinsic.meaning

    def call(target: Array, *sources: Array) -> None:
        count = dims(meaning.output_buffers[0])[0]
        pairs = [(one, dims(buffer)) for one, buffer in zip(sources, meaning.input_buffers, strict=True)]
        inputs = [one[: int(np.prod(shape))].reshape(shape) for one, shape in pairs]
        target[:count] = updated(intrinsic, target[:count], inputs)

    return call


def updated(intrinsic: Intrinsic, x: Array, inputs: list[Array]) -> Array:
    """The destination after one step, as the intrinsic's meaning says."""
    meaning = intrinsic.meaning
    (x_buffer,) = meaning.output_buffers
    # The interpreter poisons outputs, so what a step updates is handed over as an input.
    function = Function("step", (*meaning.input_buffers, x_buffer), 0, meaning.body)
    values = x.copy()
    run_function(function, [*inputs, values])
    return values


@pytest.mark.parametrize("name", LAYERS)
def test_a_schedule_keeps_what_a_layer_computes(name):
    layer, tiling = LAYERS[name]
    stage = stage_of(layer)
    nest, done = nest_of(stage, TINY), scheduled(stage, tiling, TINY)
    inputs = random_inputs(nest.function, stage)
    externs = {key: called(one) for key, one in done.intrinsics.items()}
    (plain,), (tiled,) = run_function(nest.function, inputs), run_function(done.function, inputs, externs=externs)
    assert np.array_equal(tiled, plain)


@pytest.mark.parametrize("name", LAYERS)
def test_each_step_of_the_template_proves_itself(name):
    layer, tiling = LAYERS[name]
    stage = stage_of(layer)
    done = scheduled(stage, tiling, TINY)
    assert str(apply_schedule(nest_of(stage, TINY).function, done.steps)) == str(done.function)


@pytest.mark.parametrize("name", LAYERS)
def test_buffers_of_a_tile_are_in_the_accelerators_memories(name):
    layer, tiling = LAYERS[name]
    done = scheduled(stage_of(layer), tiling, TINY)
    buffers = [one.buffer for one in walk_statements(done.function.body) if isinstance(one, Allocate)]
    assert {one.memory.partition(".")[0] for one in buffers} == {"accelerator"}
    (total,) = (one for one in buffers if one.name == "total")
    assert dims(total) == (1, tiling.outputs, tiling.rows, tiling.columns, 2)


def test_loops_that_mean_something_else_become_no_instruction():
    done = scheduled(stage_of(LAYERS["depthwise"][0]), LAYERS["depthwise"][1], TINY)
    nest = nest_of(stage_of(LAYERS["convolution"][0]), TINY)
    with pytest.raises(ScheduleError) as caught:
        done.intrinsics["gemm lanes"].at("m.sum0").apply(nest.function)
    assert str(caught.value) == (
        "cannot 'tensorize m.sum0 gemm lanes': 'm.sum0' is not what 'gemm lanes' means: a for stands where it has a "
        "store"
    )


# ---- Meanings -----------------------------------------------------------------------------------------------------

LANES = 8
NUMBERS = st.lists(st.integers(-(2**31), 2**31 - 1), min_size=LANES, max_size=LANES)
FLOATS = st.lists(st.floats(-1e6, 1e6, width=32), min_size=LANES, max_size=LANES)
DIVISORS = st.lists(st.floats(2**-9, 2**9, width=32), min_size=LANES, max_size=LANES)
IMMEDIATES = st.sampled_from((0, 3, 200, 200 | FLOOR))


def bits(numbers: list[float]) -> Array:
    return np.array(numbers, np.float32).view(np.int32)


@settings(deadline=None, max_examples=20)
@given(kind=st.sampled_from(Operation), immediate=IMMEDIATES, integers=NUMBERS, shift=st.integers(0, 31),
       floats=FLOATS, factors=DIVISORS, wide=st.booleans())  # fmt: skip
def test_an_operation_means_what_the_machine_does(kind, immediate, integers, shift, floats, factors, wide):
    x, y = np.array(integers, np.int32), bits(factors)
    if kind is Operation.SHIFT_RIGHT:
        y = np.full(LANES, shift, np.int32)
    if kind in (Operation.FLOAT_ADD, Operation.QUANTIZE):
        x = bits(floats)
    if kind is Operation.SCALE:
        immediate &= 255
    if kind is Operation.REQUANTIZE and wide:
        immediate |= WIDE
    x = x // 4096 if kind is Operation.REQUANTIZE else x
    behind = np.stack([bits(factors[::-1]), np.arange(LANES, dtype=np.int32)])
    intrinsic = operation(kind, immediate, False, LANES)
    assert isinstance(intrinsic.instruction, Alu)
    sources = [np.stack([y, *behind])[offset] for offset in intrinsic.offsets]
    expected = operate(intrinsic.instruction, x, y, behind if kind is Operation.REQUANTIZE else None)
    assert np.array_equal(updated(intrinsic, x, sources), expected)


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_means_what_the_machine_does(name):
    rng, intrinsic = np.random.default_rng(0), product(name, LANES)
    inputs = [rng.integers(-128, 128, dims(one)).astype(np.int8) for one in intrinsic.meaning.input_buffers]
    x = rng.integers(-999, 999, LANES).astype(np.int32)
    a, *weights = (one.astype(np.int32) for one in inputs)
    row = weights[0] if weights else np.ones(LANES, np.int32)
    products = a * row if row.ndim == 1 else row @ a
    assert np.array_equal(updated(intrinsic, x, inputs), products if "reset" in name else x + products)
