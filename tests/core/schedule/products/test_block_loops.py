"""The loops of products in blocks of terms, against the stages, for known and open numbers of rows."""

import numpy as np
import pytest

from graft.core.machine.machine import Machine
from graft.core.machine.rows import X86_64_V3, X86_64_V4
from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.products.block_loops import MOST
from graft.core.schedule.selection.select import schedule
from graft.core.schedule.strategies.contractions.narrow_operand import FEW
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.ir import Allocate, Function, Variable
from graft.core.tensor_ir.parser import parse_stages
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tensor_ir.visit import loads, walk_statements

TERMS, COLUMNS, BLOCK = 64, 48, 32


def product(rows: str, machine: Machine) -> tuple[Function, dict[str, np.ndarray]]:
    """Return the function of a product by bytes with a scale for each block, and its constants as it reads them."""
    stages = parse_stages(f"""
        input x: float32[{rows}, {TERMS}]
        input w: int8[{TERMS}, {COLUMNS}]
        input s: float32[{TERMS // BLOCK}, {COLUMNS}]
        stage y: float32[{rows}, {COLUMNS}] at (i, j) = reduce add over k < {TERMS} from float32(0.0):
            x[i, k] * (cast<float32>(w[k, j]) * s[k / {BLOCK}, j]) as contraction()
    """)
    buffers = {load.buffer.name: load.buffer for load in loads(stages[-1].value)}
    random = np.random.default_rng(0)
    weights = random.integers(-128, 128, (TERMS, COLUMNS)).astype(np.int8)
    scales = random.standard_normal((TERMS // BLOCK, COLUMNS)).astype(np.float32)
    constants = {buffers["w"]: weights, buffers["s"]: scales}
    inputs = (buffers["x"], *constants)
    kernel = Kernel("y", inputs, (stages[-1].buffer,), tuple(stages), Trait.CONTRACTION, constants=constants)
    scheduled = schedule(kernel, Target(machine))
    assert scheduled.strategy == "narrow_weights"
    verify(scheduled.function, machine)
    packed = {name: scheduled.packed.get(buffers[name], constants[buffers[name]]) for name in ("w", "s")}
    whole = weights * scales.repeat(BLOCK, 0).astype(np.float64)
    return scheduled.function, {**packed, "whole": whole}


def check(function: Function, constants: dict[str, np.ndarray], rows: int) -> None:
    """Hold a function against the product in float64."""
    x = np.random.default_rng(rows).standard_normal((rows, TERMS)).astype(np.float32)
    (found,) = run_function(function, [x, constants["w"], constants["s"]], [(rows, COLUMNS)])
    expected = x.astype(np.float64) @ constants["whole"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


def widens(function: Function) -> bool:
    """Whether some blocks of the right factor are kept widened."""
    memory = (one.buffer for one in walk_statements(function.body) if isinstance(one, Allocate))
    return any(buffer.name == "widened" for buffer in memory)


@pytest.mark.parametrize("rows", [1, 2, 5, FEW, FEW + 1, 23, MOST + 7])
@pytest.mark.parametrize("machine", [X86_64_V3, X86_64_V4], ids=lambda machine: machine.name)
def test_blocks_are_widened_once_where_many_rows_pass_and_registers_are_few(rows: int, machine: Machine) -> None:
    function, constants = product(str(rows), machine)
    check(function, constants, rows)
    assert widens(function) == (machine is X86_64_V3 and rows > FEW)


@pytest.mark.parametrize("machine", [X86_64_V3, X86_64_V4], ids=lambda machine: machine.name)
def test_one_function_has_few_and_many_rows(machine: Machine) -> None:
    function, constants = product("m", machine)
    for rows in (1, 3, FEW, FEW + 1, 2 * MOST + 6):
        check(function, constants, rows)
    assert widens(function) == (machine is X86_64_V3)


def test_scratch_memory_does_not_grow_with_the_number_of_rows() -> None:
    function, _ = product("m", X86_64_V3)
    memory = [one.buffer for one in walk_statements(function.body) if isinstance(one, Allocate)]
    sizes = [b.dims(buffer) for buffer in memory]
    assert max(np.prod(size) for size in sizes) == MOST * TERMS
    assert not any(isinstance(extent, Variable) for size in sizes for extent in size)
