"""Small kernels that the tests of the emitter share."""

from __future__ import annotations

from graft.core.operators.definition import build as b
from graft.core.tensor_ir.ir import (
    Buffer,
    Expression,
    For,
    Function,
    Load,
    Ramp,
    Store,
    Variable,
)

LANES = 8


def vector(name: str, dtype: str, size: int = LANES) -> Buffer:
    return Buffer(name, dtype, (b.index(size),))


def lanes(base: Expression | int = 0, count: int = LANES) -> Ramp:
    return Ramp(b.index(base) if isinstance(base, int) else base, 1, count)


def map_function(result: str, operands: list[str], value, size: int = 256) -> Function:
    """``out[i] = value(a[i], b[i], ...)``, in vectors."""
    inputs = [vector(f"x{number}", dtype, size) for number, dtype in enumerate(operands)]
    out = vector("out", result, size)
    step = Variable("step")
    place = (lanes(b.multiply(step, LANES)),)
    body = Store(out, place, value(*(Load(item, place) for item in inputs)))
    return Function("kernel", (*inputs, out), 1, For(step, b.index(size // LANES), "serial", body))
