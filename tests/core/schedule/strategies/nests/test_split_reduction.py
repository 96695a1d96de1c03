import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
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


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 5, 16, 20, 37]), min_size=1, max_size=3),
    st.sets(st.integers(0, 2)),
    st.sampled_from(["add", "max", "min", "mul"]),
    st.sampled_from(TARGETS),
)
def test_reduction_over_any_axes(shape, reduced, operator, target):
    reduced = {axis for axis in reduced if axis < len(shape)}
    kept = [axis for axis in range(len(shape)) if axis not in reduced]
    x, y = tensor("x", shape), tensor("y", [shape[axis] for axis in kept])
    variables = axes_of(shape)
    total = Variable("total", FLOAT32)
    initial = {"add": 0.5, "mul": 1.0, "max": -1e30, "min": 1e30}[operator]
    stage = Stage(
        y,
        tuple(variables[axis] for axis in kept),
        Load(x, variables),
        Reduction(
            operator, tuple(Axis(variables[axis], index(shape[axis])) for axis in sorted(reduced)), number(initial)
        ),
        total,
        Binary("mul", total, number(2.0)),
    )
    array = random_array(shape) if operator != "mul" else 1 + random_array(shape) / 100
    check(Kernel("reduce", (x,), (y,), (stage,), Trait.REDUCTION), target, [array.astype(np.float32)], 1e-4)
