"""Nests that steps are tried on, and the check that a step keeps what they compute."""

import numpy as np

from graft.core.schedule.primitives.plain_nest import plain_nest
from graft.core.schedule.primitives.step import loops
from graft.core.schedule.primitives.vectorize import lower_loops
from graft.core.tensor_ir.interpreting.interpreter import run_function, run_stages
from graft.core.tensor_ir.ordered_stages import stage_expressions
from graft.core.tensor_ir.parser import parse_stages
from graft.core.tensor_ir.rewriting.simplify import simplify_statement
from graft.core.tensor_ir.visit import loads

MATMUL = """
input a: {t}[{m}, {k}]
input b: {t}[{k}, {n}]
stage c: {t}[{m}, {n}] at (i, j) = reduce add over k < {k} from {t}({zero}): a[i, k] * b[k, j]
"""


CHAIN = """
input x: float32[{m}, {n}]
stage p: float32[{m}, {n}] at (i, j) = x[i, j] * float32(2.0) + float32(1.0)
stage y: float32[{m}, {n}] at (u, v) = p[u, v] + p[{m} - 1 - u, v; u < {m}]
"""


WINDOW = """
input x: float32[{m}, {n}]
stage y: float32[{m}] at (i) = reduce max over d < 3 from float32(-inf): x[i, d + 0; d < {n}]
  then r: float32 = r * float32(0.5)
"""


def nest(text):
    stages = parse_stages(text)
    written = [stage.buffer for stage in stages]
    read = dict.fromkeys(load.buffer for stage in stages for load in loads(*stage_expressions(stage)))
    inputs = [buffer for buffer in read if buffer not in written]
    return stages, plain_nest("f", stages, inputs, written[-1:])


def matmul(m=5, n=7, k=6, dtype="float32"):
    return nest(MATMUL.format(m=m, n=n, k=k, t=dtype, zero="0.0" if dtype.startswith("float") else "0"))


def check(stages, function, seed=0, externs=None):
    """The function computes what the stages mean, as it stands and with its vectors and copies made."""
    random = np.random.default_rng(seed)
    inputs = [
        random.integers(-4, 5, [int(extent.value) for extent in buffer.shape]).astype(buffer.dtype)
        for buffer in function.input_buffers
    ]
    contents = run_stages(stages, dict(zip(function.input_buffers, inputs, strict=True)))
    expected = contents[function.output_buffers[0]]
    np.testing.assert_array_equal(run_function(function, inputs, externs=externs)[0], expected)
    lowered = type(function)(
        function.name, function.parameters, 1, simplify_statement(lower_loops(simplify_statement(function.body)))
    )
    np.testing.assert_array_equal(run_function(lowered, inputs, externs=externs)[0], expected)


def names(function):
    return [loop.variable.name for loop in loops(function.body)]


DOT = """
input a: uint8[4, 8]
input b: int8[5, 8]
stage c: int32[4, 5] at (i, j) = reduce add over k < 8 from int32(0): cast<int32>(a[i, k]) * cast<int32>(b[j, k])
"""


SUBJECTS = {
    "product": lambda m, n, k: nest(MATMUL.format(m=m, n=n, k=k, t="float32", zero="0.0")),
    "integers": lambda m, n, k: nest(MATMUL.format(m=m, n=n, k=k, t="int32", zero="0")),
    "chain": lambda m, n, k: nest(CHAIN.format(m=m, n=n)),
    "window": lambda m, n, k: nest(WINDOW.format(m=m, n=max(n, 3))),
}
