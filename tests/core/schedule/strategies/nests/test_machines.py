"""One strategy, several machines: loops for one without vectors, vectors, blocks of lanes; each of them verified."""

from dataclasses import replace

import numpy as np
import pytest

from graft.core.machine.machine import Costs, Level, Machine, Memory
from graft.core.machine.rows import GENERIC, X86_64_V3, X86_64_V4
from graft.core.machine.target import Target
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.selection.select import schedule
from graft.core.tensor_ir.interpreting.interpreter import run_function, run_stages
from graft.core.tensor_ir.ir import For, Ramp
from graft.core.tensor_ir.parser import parse_stages
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tensor_ir.visit import loads, statement_expressions, walk_expressions, walk_statements

CARD = Machine(
    "card-8",
    "card",
    memories=(Memory("scratch", seen_by="lane"), Memory("host")),
    levels=(Level("block"), Level("lane", 8)),
    costs=Costs(task=0),
)
"""A made-up machine: blocks of eight lanes, no vectors."""
MACHINES = tuple(replace(row, costs=Costs(task=0)) for row in (GENERIC, X86_64_V3, X86_64_V4, CARD))
"""The machines, on which all work is shared."""
KERNELS = {
    "elementwise": (Trait.ELEMENTWISE, "fused_elementwise", """
        input x: float32[3, 5, 37]
        input s: float32[5]
        stage y: float32[3, 5, 37] at (i, j, k) = x[i, j, k] * s[j] + float32(1.0)
        """),
    "transpose": (Trait.INJECTIVE, "fused_elementwise", """
        input x: float32[20, 33]
        stage y: float32[33, 20] at (i, j) = x[j, i]
        """),
    "columns": (Trait.REDUCTION, "split_reduction", """
        input x: float32[6, 43]
        stage y: float32[43] at (j) = reduce add over i < 6 from float32(0.5): x[i, j]
          then t: float32 = t * float32(2.0)
        """),
    "rows": (Trait.REDUCTION, "split_reduction", """
        input x: float32[7, 83]
        stage y: float32[7] at (i) = reduce max over j < 83 from float32(-inf): x[i, j]
        """),
    "softmax": (Trait.ROW_WISE, "fused_rows", """
        input x: float32[9, 21]
        stage m: float32[9] at (i) = reduce max over j < 21 from float32(-inf): x[i, j]
        stage e: float32[9, 21] at (i, j) = exp(x[i, j] - m[i])
        stage s: float32[9] at (i) = reduce add over j < 21 from float32(0.0): e[i, j]
        stage y: float32[9, 21] at (i, j) = e[i, j] / s[i]
        """),
    "windows": (Trait.POOLING, "clipped_windows", """
        input x: float32[2, 9, 19]
        stage y: float32[2, 9, 17] at (n, h, w) = reduce add over a < 3, b < 3 from float32(0.0):
          x[n, h + a - 1, w + b; h + a - 1 >= 0 & h + a - 1 < 9]
        """),
}  # fmt: skip


def kernel_of(name: str) -> Kernel:
    trait, _, text = KERNELS[name]
    stages = parse_stages(text)
    made = [stage.buffer for stage in stages]
    read = dict.fromkeys(load.buffer for stage in stages for load in loads(stage.value) if load.buffer not in made)
    return Kernel(name, tuple(read), (made[-1],), tuple(stages), trait)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
@pytest.mark.parametrize("name", KERNELS)
def test_a_strategy_serves_machines_with_and_without_vectors_and_with_blocks(name: str, machine: Machine) -> None:
    kernel = kernel_of(name)
    random = np.random.default_rng(0)
    shapes = [[int(extent.value) for extent in buffer.shape] for buffer in kernel.inputs]
    arrays = [random.standard_normal(shape, np.float32) for shape in shapes]
    expected = run_stages(kernel.stages, dict(zip(kernel.inputs, arrays, strict=True)))[kernel.outputs[0]]
    scheduled = schedule(kernel, Target(machine))
    verify(scheduled.function, machine)
    (result,) = run_function(scheduled.function, [array.reshape(-1) for array in arrays])
    np.testing.assert_allclose(result.reshape(expected.shape), expected, rtol=1e-5, atol=1e-5)
    parts = list(walk_statements(scheduled.function.body))
    vectors = any(isinstance(node, Ramp) for one in parts for node in walk_expressions(*statement_expressions(one)))
    bindings = {one.binding for one in parts if isinstance(one, For)}
    assert scheduled.strategy == KERNELS[name][1]
    assert vectors == bool(machine.vectors)
    assert bindings - {""} == ({"block.x", "lane.x"} if len(machine.levels) > 1 else set())
