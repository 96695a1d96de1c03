"""Layers found by the structure that their stages state: whatever they are called, and whatever their cells compute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graft.core.machine.target import target_named
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.selection.select import schedule
from graft.core.schedule.strategies.sequential.recurrence import Recurrence, parts_of
from graft.core.schedule.strategies.sequential.recurrent_loops import PhaseTiling
from graft.core.tensor_ir.interpreting.interpreter import run_function, run_stages
from graft.core.tensor_ir.ir import Buffer
from graft.core.tensor_ir.ordered_stages import stage_expressions
from graft.core.tensor_ir.parser import parse_stages
from graft.core.tensor_ir.verifying.verifier import verify, verify_stages
from graft.core.tensor_ir.visit import loads

MINIMAL = """\
input x: float32[{steps}, 2, 3]
input w: float32[3, {units}]
input u: float32[{units}, {units}]
input v: float32[{units}, {units}]
carry {state}: float32[{steps}, 2, {units}]
stage {given}: float32[{steps}, 2, {units}] in scratch at (t, i, j) =
  reduce add over k < 3 from float32(0.0): x[t, i, k] * w[k, j]
  as contraction()
stage {gate}: float32[{steps}, 2, {units}] in scratch at (s, i, j) =
  reduce add over k < {units} from {given}[s, i, j]: u[k, j] * {state}[{before}, i, k]
  then total: float32 = sigmoid(total)
  as contraction()
  scan s{reverse}
stage {kept}: float32[{steps}, 2, {units}] in scratch at (s, i, j) = {gate}[s, i, j] * {state}[{before}, i, j]
  scan s{reverse}
stage {new}: float32[{steps}, 2, {units}] in scratch at (s, i, j) =
  reduce add over k < {units} from {given}[s, i, j]: {kept}[s, i, k] * v[k, j]
  then total: float32 = tanh(total)
  as contraction()
  scan s{reverse}
stage {state}: float32[{steps}, 2, {units}] at (s, i, j) = {gate}[s, i, j] * {new}[s, i, j]
  + (float32(1.0) - {gate}[s, i, j]) * {state}[{before}, i, j]
  scan s{reverse} from x[0, i, 0]
stage y: float32[2, {units}] at (i, j) = {state}[{last}, i, j]
"""
"""A minimal gated unit (Zhou and others, 2016), which ONNX does not have, with weights by term and unit."""
OWN = {"state": "h", "given": "p", "gate": "f", "kept": "q", "new": "c"}
OTHER = {"state": "projected0", "given": "sums", "gate": "w_packed", "kept": "chunk", "new": "gated0"}
TWIN = {"state": "h2", "given": "p2", "gate": "f2", "kept": "q2", "new": "c2"}
FORWARD = {"before": "s - 1", "reverse": ""}
REVERSE = {"before": "s + 1", "reverse": " reverse", "last": 0}


def kernel_of(
    steps: int = 3, units: int = 5, names: dict[str, str] = OWN, reverse: bool = False, constant: bool = False
) -> Kernel:
    form = REVERSE if reverse else {**FORWARD, "last": steps - 1}
    return kernel_from(MINIMAL.format(steps=steps, units=units, **names, **form), constant)


def two_layers(units: int, second: str = "x") -> Kernel:
    """Return a kernel of two directions, or with ``second`` = ``h`` of a layer on top of another."""
    one = MINIMAL.format(steps=3, units=units, **OWN, **FORWARD, last=2)
    two = MINIMAL.format(steps=3, units=units, **TWIN, **REVERSE).replace("stage y", "stage z")
    two = two[two.index("carry") :].replace("x[t, i, k]", f"{second}[t, i, k]")
    return kernel_from(one + two)


def kernel_from(text: str, constant: bool = False) -> Kernel:
    stages = parse_stages(text)
    verify_stages(stages)
    computed = [stage.buffer for stage in stages]
    read = [load.buffer for stage in stages for load in loads(*stage_expressions(stage))]
    inputs = tuple(dict.fromkeys(buffer for buffer in read if buffer not in computed))
    outputs = tuple(buffer for buffer in computed if buffer.memory == "host")
    contents = {buffer: array(buffer) for buffer in inputs if buffer.name in "wuv" and constant}
    return Kernel("k", inputs, outputs, stages, Trait.RECURRENT, constants=contents)


def array(buffer: Buffer) -> np.ndarray:
    shape = tuple(int(extent.value) for extent in buffer.shape)  # type: ignore[union-attr]
    return np.random.default_rng(ord(buffer.name[0])).uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("constant", [False, True], ids=["given", "packed"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize(("steps", "units"), [(1, 5), (3, 16), (4, 37)])
def test_a_gated_unit_of_another_kind_agrees_with_its_stages(
    steps: int, units: int, reverse: bool, constant: bool
) -> None:
    kernel = kernel_of(steps, units, reverse=reverse, constant=constant)
    given = {buffer: array(buffer) for buffer in kernel.inputs}
    expected = run_stages(kernel.stages, given)
    scheduled = schedule(kernel, target_named("x86-64-v3"))
    assert scheduled.strategy == "recurrent_layers"
    assert [buffer.name for buffer in scheduled.packed] == (["w", "u", "v"] if constant else [])
    verify(scheduled.function)
    results = run_function(scheduled.function, [scheduled.packed.get(buffer, given[buffer]) for buffer in given])
    for buffer, found in zip(kernel.outputs, results, strict=True):
        np.testing.assert_allclose(found, expected[buffer], rtol=1e-4, atol=1e-5)


def test_names_of_buffers_change_nothing() -> None:
    target = target_named("x86-64-v4")
    texts = [str(schedule(kernel_of(names=names), target).function) for names in (OWN, OTHER)]
    for name, own in zip(OTHER.values(), OWN.values(), strict=True):
        texts = [text.replace(f"{name}[", f"{own}[").replace(f"{name}:", f"{own}:") for text in texts]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(("units", "vectors"), [(37, 3), (200, 7), (300, 4)])
def test_units_are_in_chunks_of_about_a_tile_that_pad_least(units: int, vectors: int) -> None:
    phases = [one for part in parts_of(kernel_of(units=units)) if isinstance(part, Recurrence) for one in part.phases]
    tiles = PhaseTiling.of(phases, target_named("x86-64-v4").machine)
    assert {tiles.chunk(phase) for phase in phases if phase.sums} == {vectors * tiles.lanes}


@pytest.mark.parametrize(
    ("units", "threads", "shared"), [(37, 0, True), (300, 0, False), (300, 2, True), (300, 4, False)]
)
def test_threads_share_directions_where_chunks_would_occupy_no_more_of_them(
    units: int, threads: int, shared: bool
) -> None:
    kernel = two_layers(units)
    function = schedule(kernel, replace(target_named("x86-64-v3"), threads=threads)).function
    verify(function)
    assert ("parallel layer < 2" in str(function)) == shared
    if units < 100:
        given = {buffer: array(buffer) for buffer in kernel.inputs}
        expected = run_stages(kernel.stages, given)
        for buffer, found in zip(kernel.outputs, run_function(function, list(given.values())), strict=True):
            np.testing.assert_allclose(found, expected[buffer], rtol=1e-4, atol=1e-5)
