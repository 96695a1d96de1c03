"""The programs by hand, on the model and both simulators."""

from __future__ import annotations

import numpy as np
import pytest

from graft.plugins.accelerator.assembly import assemble
from graft.plugins.accelerator.model import run
from graft.plugins.accelerator.proof.prove import prove
from graft.plugins.accelerator.simulator import run_cycles, run_functional
from tests.plugins.accelerator.unit_programs import UNIT_PROGRAMS, X


@pytest.mark.parametrize("unit_program", UNIT_PROGRAMS, ids=lambda one: one.name)
def test_a_program_by_hand_computes_what_numpy_does(unit_program):
    program, inputs = assemble(unit_program.text), {"x": X.tobytes()}
    expected = unit_program.expected().astype(np.int8).tobytes()
    prove(program)
    assert run(program, inputs) == {"y": expected}
    assert run_cycles(program, inputs).outputs == {"y": expected}
    assert run_functional(program, inputs, 5).outputs == {"y": expected}
