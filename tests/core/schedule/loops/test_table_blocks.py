"""Tables of a block of places: of open extents, which several blocks cover, and of what they cannot serve."""

from __future__ import annotations

import numpy as np
import pytest

from graft.core.machine.rows import ROWS
from graft.core.machine.target import Target
from graft.core.operators.definition.table import Trait
from graft.core.schedule.loops import table_blocks
from graft.core.schedule.selection.select import schedule
from graft.core.tensor_ir.interpreting.interpreter import run_function, run_stages
from graft.core.tensor_ir.ir import Allocate, Constant
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tensor_ir.visit import walk_statements
from tests.core.schedule.strategies.nests.test_open_extents import kernel_of

TARGET = Target(ROWS["x86-64-v3"])
WEIGHT = "sin(cast<float32>(place) * float32(0.3)) / float32(3.0) + sqrt(cast<float32>(place))"
LINE = f"""
input x: float32[n, 3, m]
stage weights: float32[m] at (place) = {WEIGHT}
stage rows: float32[n] at (place) = {WEIGHT}
stage y: float32[n, 3, m] at (i, c, j) = x[i, c, j] * weights[j] + rows[i]
"""
BACKWARDS = LINE.replace("weights[j]", "weights[m - 1 - j]")
PLANE = f"""
input x: float32[n, 3, m]
stage weights: float32[n, 2] at (place, side) = {WEIGHT} + cast<float32>(side)
stage rows: float32[2, m] at (side, place) = {WEIGHT} + cast<float32>(side)
stage y: float32[n, 3, m] at (i, c, j) = x[i, c, j] * weights[i, 1] + rows[1, j]
"""


@pytest.mark.parametrize("text", [LINE, BACKWARDS, PLANE])
@pytest.mark.parametrize(("n", "m"), [(0, 5), (1, 1), (3, 11), (2, 9)])
def test_blocks_of_tables_compute_what_the_stages_say(
    monkeypatch: pytest.MonkeyPatch, text: str, n: int, m: int
) -> None:
    monkeypatch.setattr(table_blocks, "BLOCK", 4)
    kernel = kernel_of(text, Trait.ELEMENTWISE)
    function = schedule(kernel, TARGET).function
    verify(function, TARGET.machine)
    image = np.random.default_rng(0).standard_normal((n, 3, m)).astype(np.float32)
    wanted = run_stages(kernel.stages, {kernel.inputs[0]: image})[kernel.outputs[0]]
    (found,) = run_function(function, [image], [wanted.shape])
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_tables_have_a_constant_size_and_are_left_out_where_other_places_are_read() -> None:
    tables = {}
    for name, text in (("line", LINE), ("backwards", BACKWARDS)):
        body = schedule(kernel_of(text, Trait.ELEMENTWISE), TARGET).function.body
        tables[name] = [one.buffer for one in walk_statements(body) if isinstance(one, Allocate)]
    assert {one.name for one in tables["line"]} == {"weights", "rows"} and not tables["backwards"]
    assert all(one.shape == (Constant(table_blocks.BLOCK, one.shape[0].type),) for one in tables["line"])
