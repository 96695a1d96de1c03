"""Loads whose lanes read each element several times, in vectors of which only the first lanes are on."""

import numpy as np
import pytest

from graft.core.tensor_ir.ir import Binary, Broadcast, Buffer, Constant, Function, Let, Load, Ramp, Store, Variable
from graft.core.types import INT64
from graft.runtime.dtypes import numpy_dtype

LANES = 16


def vector(name: str, dtype: str, size: int) -> Buffer:
    return Buffer(name, dtype, (Constant(size, INT64),))


@pytest.mark.parametrize("dtype", ["float32", "uint8", "float64"])
@pytest.mark.parametrize("times", [2, 3, 5])
@pytest.mark.parametrize("on", [0, 1, 2, 7, 15, 16])
def test_only_what_a_lane_that_is_on_reads_is_read(run, dtype: str, times: int, on: int) -> None:  # type: ignore[no-untyped-def]
    source, counts, out = vector("x", dtype, -(-on // times) or 1), vector("n", "int64", 1), vector("y", dtype, LANES)
    count, zero = Variable("count", INT64), Constant(0, INT64)
    lanes = Ramp(zero, 1, LANES)
    mask = Binary("lt", lanes, Broadcast(count, LANES))
    place = Binary("div", lanes, Constant(times, INT64.with_lanes(LANES)))
    body = Let(count, Load(counts, (zero,)), Store(out, (lanes,), Load(source, (place,), mask)))
    kind = numpy_dtype(dtype)
    elements = np.arange(1, 1 + (-(-on // times) or 1)).astype(kind)
    found = np.full(LANES, 77).astype(kind)
    run(Function("kernel", (source, counts, out), 1, body), [elements, np.array([on])], [found])
    wanted = np.zeros(LANES, kind)
    wanted[:on] = np.repeat(elements, times)[:on]
    np.testing.assert_array_equal(found, wanted)
