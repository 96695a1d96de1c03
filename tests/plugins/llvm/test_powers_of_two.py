"""Exponentials by the machine's own multiplication by a power of two, and by two products where there is none."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graft
from graft.core.machine.host import host_machine
from graft.core.machine.target import target_named
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.selection.select import schedule
from graft.core.tensor_ir.parser import parse_stages
from graft.core.tensor_ir.visit import loads
from graft.plugins.llvm.emit import assembly

NEEDED = {"avx512f", "avx512vl"}


def compiled(operator: str, target: str) -> graft.Program:
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 20]> g (float[65581] x) => (float[65581] y) {{ y = {operator} (x) }}'
    )
    return graft.compile(model, ["llvm"], threads=1, cache=False, target=target)


@pytest.mark.skipif(not host_machine().features >= NEEDED, reason="this machine has no AVX-512")
@pytest.mark.parametrize("operator", ["Exp", "Sigmoid", "Sinh", "Cosh", "Tanh", "Softplus", "Elu"])
def test_both_ways_round_alike_from_denormal_numbers_to_infinity(operator: str) -> None:
    every = np.linspace(0, 2**32 - 1, 65581).astype(np.uint32).view(np.float32).copy()
    every[:2048] = np.linspace(-110, -80, 2048)  # where results lose bits one by one
    own, other = (compiled(operator, target)(every) for target in ("x86-64-v4", "x86-64-v3"))
    np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize(("name", "has_it"), [("x86-64-v4", True), ("x86-64-v3", False)])
def test_machines_with_the_instruction_use_it_and_call_no_library(name: str, has_it: bool) -> None:
    stages = parse_stages("input x: float32[19]\nstage y: float32[19] at (i) = exp(x[i]) as elementwise()")
    (x,) = {load.buffer for load in loads(stages[0].value)}
    kernel = Kernel("f", (x,), (stages[0].buffer,), tuple(stages), Trait.ELEMENTWISE)
    target = target_named(name)
    text = assembly(schedule(kernel, target).function, target)
    assert ("scalef" in text) == has_it
    assert "ldexp" not in text
