from math import prod

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops import column_reduction
from graft.core.tensor_ir.ir import (
    Axis,
    Binary,
    Load,
    Reduction,
    Stage,
    Variable,
)
from graft.core.types import FLOAT32
from tests.core.schedule.strategies.nests.test_generic_nest import (
    TARGETS,
    axes_of,
    check,
    index,
    number,
    random_array,
    tensor,
)


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from([(9, 300), (2, 17, 131), (16, 2, 257)]),
    st.sampled_from([{0}, {0, 1}, {1}]),
    st.sampled_from(["add", "max"]),
    st.sampled_from(TARGETS),
)
@example((16, 2, 257), {1}, "add", TARGETS[0])
def test_large_reductions_over_leading_axes(shape, reduced, operator, target):
    reduced = reduced if len(shape) > 2 else {0}
    kept = [axis for axis in range(len(shape)) if axis not in reduced]
    x, y, variables = tensor("x", shape), tensor("y", [shape[axis] for axis in kept]), axes_of(shape)
    axes = tuple(Axis(variables[axis], index(shape[axis])) for axis in sorted(reduced))
    total = Variable("total", FLOAT32)
    reduction = Reduction(operator, axes, number(0.5))
    epilogue = Binary("mul", total, number(2.0))
    stage = Stage(y, tuple(variables[axis] for axis in kept), Load(x, variables), reduction, total, epilogue)
    kernel = Kernel("reduce", (x,), (y,), (stage,), Trait.REDUCTION)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_reduction, "CACHED_SHARE", 0)
        patch.setattr(column_reduction, "BLOCK_SHARE", 512 / (32 << 10))
        function = check(kernel, target, [random_array(shape)], 1e-4)
    rows = prod(shape[axis] for axis in reduced)
    wide = shape[-1] >= 2 * column_reduction.ROWS * target.vector_bytes // 4
    assert ("totals" in str(function)) == (wide and rows >= column_reduction.ROWS)
