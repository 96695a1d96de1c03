from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.machine.target import target_named
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.selection.select import schedule
from graft.core.tensor_ir.interpreting.interpreter import run_function, run_stages
from graft.core.tensor_ir.ir import (
    Axis,
    Binary,
    Buffer,
    Constant,
    For,
    Intrinsic,
    Load,
    Reduction,
    Select,
    Stage,
    Variable,
)
from graft.core.tensor_ir.parser import parse_function, parse_stages
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tensor_ir.visit import loads, walk_statements
from graft.core.types import FLOAT32, INT64

AVX512 = target_named("x86-64-v4")
AVX2 = target_named("x86-64-v3")
NEON = target_named("armv8-a")
TARGETS = [AVX512, AVX2, NEON]


def index(value):
    return Constant(value, INT64)


def tensor(name, shape, dtype="float32", memory="host"):
    return Buffer(name, dtype, tuple(index(extent) for extent in shape), memory=memory)


def axes_of(shape, prefix="i"):
    return tuple(Variable(f"{prefix}{number}") for number in range(len(shape)))


def number(value):
    return Constant(value, FLOAT32)


def check(kernel, target, arrays, tolerance=1e-5):
    """Run a kernel scheduled and as stages; both must agree."""
    expected = run_stages(kernel.stages, dict(zip(kernel.inputs, arrays, strict=True)))
    scheduled = schedule(kernel, target)
    verify(scheduled.function)
    assert str(parse_function(str(scheduled.function))) == str(scheduled.function)
    inputs = [array.reshape(-1) for array in arrays]
    results = run_function(scheduled.function, inputs)
    for buffer, result in zip(kernel.outputs, results, strict=True):
        np.testing.assert_allclose(
            result.reshape(expected[buffer].shape), expected[buffer], rtol=tolerance, atol=tolerance
        )
    return scheduled.function


def random_array(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@st.composite
def broadcast_adds(draw):
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 5, 16, 17, 33]), min_size=0, max_size=4)))
    keep = [draw(st.booleans()) for _ in shape]
    narrow = tuple(extent if kept else 1 for extent, kept in zip(shape, keep, strict=True))
    return shape, narrow


def add_kernel(shape, narrow):
    x, b, y, axes = tensor("x", shape), tensor("b", narrow), tensor("y", shape), axes_of(shape)
    places = tuple(axis if extent > 1 else index(0) for axis, extent in zip(axes, narrow, strict=True))
    value = Binary("add", Load(x, axes), Load(b, places))
    return Kernel("add", (x, b), (y,), (Stage(y, axes, value),), Trait.ELEMENTWISE)


@settings(max_examples=40, deadline=None)
@given(broadcast_adds(), st.sampled_from(TARGETS))
def test_broadcast_addition(shapes, target):
    shape, narrow = shapes
    check(add_kernel(shape, narrow), target, [random_array(shape), random_array(narrow, 1)])


@settings(max_examples=40, deadline=None)
@given(st.permutations(range(3)), st.tuples(*[st.sampled_from([1, 3, 16, 19])] * 3), st.sampled_from(TARGETS))
def test_transpose(order, shape, target):
    out = tuple(shape[axis] for axis in order)
    x, y, axes = tensor("x", shape), tensor("y", out), axes_of(out)
    places = [None] * 3
    for position, axis in enumerate(order):
        places[axis] = axes[position]
    stage = Stage(y, axes, Load(x, tuple(places)))
    check(Kernel("transpose", (x,), (y,), (stage,), Trait.INJECTIVE), target, [random_array(shape)])


def softmax_stages(x, y, axis):
    shape = [int(extent.value) for extent in x.shape]
    kept = [extent for position, extent in enumerate(shape) if position != axis]
    top, e, total = tensor("top", kept), tensor("e", shape), tensor("total", kept)

    def without(variables):
        return tuple(variable for position, variable in enumerate(variables) if position != axis)

    def reduce(buffer, source, operator, initial, prefix):
        variables = axes_of(shape, prefix)
        reduction = Reduction(operator, (Axis(variables[axis], index(shape[axis])),), number(initial))
        return Stage(buffer, without(variables), Load(source, variables), reduction)

    a, b = axes_of(shape, "a"), axes_of(shape, "b")
    exponent = Intrinsic("exp", (Binary("sub", Load(x, a), Load(top, without(a))),), FLOAT32)
    return (
        reduce(top, x, "max", float("-inf"), "m"),
        Stage(e, a, exponent),
        reduce(total, e, "add", 0.0, "s"),
        Stage(y, b, Binary("div", Load(e, b), Load(total, without(b)))),
    )


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 3, 16, 21, 40]), min_size=1, max_size=3).filter(lambda shape: prod(shape) < 2048),
    st.integers(0, 2),
    st.sampled_from(TARGETS),
)
def test_softmax_over_any_axis(shape, axis, target):
    axis %= len(shape)
    x, y = tensor("x", shape), tensor("y", shape)
    kernel = Kernel("softmax", (x,), (y,), softmax_stages(x, y, axis), Trait.ROW_WISE)
    check(kernel, target, [random_array(shape)])


def test_softmax_sums_its_exponentials_while_it_stores_them():
    x, y = tensor("x", (3, 256)), tensor("y", (3, 256))
    kernel = Kernel("softmax", (x,), (y,), softmax_stages(x, y, 1), Trait.ROW_WISE)
    function = check(kernel, AVX512, [random_array((3, 256))])
    loops = [statement for statement in walk_statements(function.body) if isinstance(statement, For)]
    assert len(loops) == 1 + 3, "rows; in them the maximum, the exponentials with their sum, the quotients"


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
def test_max_pool_with_padding(target):
    x, y = tensor("x", (2, 9, 21)), tensor("y", (2, 5, 11))
    n, h, w, a, b = (Variable(name) for name in "nhwab")
    row, column = (
        Binary("sub", Binary("add", Binary("mul", outer, index(2)), inner), index(1))
        for outer, inner in ((h, a), (w, b))
    )
    inside = None
    for place, extent in ((row, 9), (column, 21)):
        for test in (Binary("ge", place, index(0)), Binary("lt", place, index(extent))):
            inside = test if inside is None else Binary("and", inside, test)
    value = Select(inside, Load(x, (n, row, column), inside), number(float("-inf")))
    reduction = Reduction("max", (Axis(a, index(3)), Axis(b, index(3))), number(float("-inf")))
    stage = Stage(y, (n, h, w), value, reduction)
    check(Kernel("pool", (x,), (y,), (stage,), Trait.POOLING), target, [random_array((2, 9, 21))])


TABLES = """\
input x: float32[2, 9, 16]
stage place: int32[24] in scratch at (j) = cast<int32>(j / 2)
stage weight: float32[24] in scratch at (j) = cast<float32>(j - j / 2 * 2) / float32(2.0) + float32(0.25)
stage y: float32[2, 9, 24] at (a, i, j) = x[a, i, cast<int64>(place[j])] * weight[j]
"""


def test_what_depends_on_one_axis_alone_is_computed_once_before_the_rows():
    stages = parse_stages(TABLES)
    (x,) = {load.buffer for load in loads(stages[-1].value)} - {stage.buffer for stage in stages}
    kernel = Kernel("resize", (x,), (stages[-1].buffer,), stages, Trait.INJECTIVE)
    function = schedule(kernel, target_named("x86-64-v3")).function
    verify(function)
    data = np.random.default_rng(0).standard_normal((2, 9, 16), np.float32)
    expected = run_stages(stages, {x: data})[kernel.outputs[0]]
    assert (run_function(function, [data.reshape(-1)])[0].reshape(expected.shape) == expected).all()
    assert str(function).index("place[") < str(function).index("y[")
