import numpy as np
import pytest

from graft.core.tensor_ir.arithmetic.fused import unfused
from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.ir import Buffer, Constant, Intrinsic, Load, Stage, Variable
from graft.core.types import INT64, Type


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_fused_multiply_add_without_the_instruction_rounds_once(dtype: str) -> None:
    random = np.random.default_rng(6)
    x, y = (random.normal(0, 1, 3000) * 10.0 ** random.integers(-12, 12, 3000) for _ in range(2))
    x, y = x.astype(dtype), y.astype(dtype)
    z = np.where(random.random(3000) < 0.5, -(x * y), random.normal(0, 1, 3000)).astype(dtype)
    special = np.array([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 2.0**60], dtype)
    grid = np.stack([part.ravel() for part in np.meshgrid(special, special, special)])
    x, y, z = (np.concatenate(parts) for parts in zip((x, y, z), grid, strict=True))
    extent = (Constant(x.size, INT64),)
    buffers = [Buffer(f"x{number}", dtype, extent) for number in range(3)]
    target, i = Buffer("y", dtype, extent), Variable("i")
    value = Intrinsic("fma", tuple(Load(buffer, (i,)) for buffer in buffers), Type(dtype))
    contents = dict(zip(buffers, (x, y, z), strict=True))
    with np.errstate(all="ignore"):
        found = run_stages([Stage(target, (i,), unfused(is_exact=True)(value))], contents)[target]
        expected = run_stages([Stage(target, (i,), value)], contents)[target]
    np.testing.assert_array_equal(found, expected)
