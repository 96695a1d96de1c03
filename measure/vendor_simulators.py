"""Layers in their vendors' simulators: beside the model, and beside what the program computes here.

Every layer is a region of its own, fed with the values that ONNX's reference has there, so that no layer answers for
another. Where the program itself runs by the simulator, as on a host without the device, there is no second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graft.errors import VerifyError
from graft.measure.differences import Difference, Tolerance
from graft.measure.expected_values import evaluate, symbols_in
from graft.runtime.procedure import Module

if TYPE_CHECKING:
    from graft.compiler.compiled_model import CompiledModel
    from graft.partition.region import Region
    from graft.plugins.backend import Backend
    from graft.runtime.procedure import ProgramDescription
    from graft.runtime.program import Program

SIMULATOR = "vendor-simulator"


@dataclass(frozen=True, slots=True)
class LayerReport:
    """One output of one layer."""

    region: str
    backend: str
    nodes: tuple[str, ...]
    output: str
    simulated: Difference
    """How far the simulator is from ONNX's reference."""
    program: Difference | None
    """How far the layer's program is from the simulator; None where it runs by that, or its device is not here."""

    @property
    def ok(self) -> bool:
        """Whether both are within the tolerance."""
        return self.simulated.ok and (self.program is None or self.program.ok)


def simulated_layers(
    compiled: CompiledModel,
    backends: Sequence[Backend],
    feeds: Mapping[str, np.ndarray],
    tolerance: Tolerance,
    load: Callable[[ProgramDescription], Program],
) -> list[LayerReport]:
    """Return a row for every output of every region of the main graph whose backend has a simulator.

    Raise VerifyError where there is no such region.
    """
    by_name = {backend.name: backend for backend in backends}
    calls = compiled.region_calls()
    faults = {name: by_name[name].device_fault() for name in {region.backend for _, region in calls}}
    touched = {value.name or "": value for node, _ in calls for value in (*node.inputs, *node.outputs) if value}
    names = [name for name, value in touched.items() if value.producer() is not None]
    expected = {**feeds, **evaluate(compiled.normalized, feeds, names, "reference")}
    tolerance = tolerance.among(compiled.normalized, names)
    binding = symbols_in([*compiled.partitioned.graph.inputs, *touched.values()], expected)
    rows: list[LayerReport] = []
    for node, region in calls:
        module, outer = compiled.modules[region.name], [value.name or "" for value in node.outputs if value]
        read = {inner.name: value for inner, value in zip(region.function.inputs, node.inputs, strict=True) if value}
        given = {view.name: expected[read[view.name].name or ""] for view in region.inputs}
        backend, alone = by_name[region.backend], compiled.stitch_region(region, binding)
        actual: Mapping[str, np.ndarray] = {}
        if backend.simulates:
            made = load(alone).run(given)
            simulated: Sequence[np.ndarray] | None = [made[view.name] for view in region.outputs]
        else:
            simulated = _simulated(backend, module, region, given, compiled.passed)
        if simulated is None:
            continue
        if not (backend.simulates or faults[region.backend]):
            actual = load(alone).run(given)
        for view, name, array in zip(region.outputs, outer, simulated, strict=True):
            program = tolerance.judge(actual[view.name], array, name) if actual else None
            found = tolerance.judge(array, expected[name], name)
            rows.append(LayerReport(region.name, region.backend, region.origin, name, found, program))
    if not rows:
        used = ", ".join(dict.fromkeys(region.backend for _, region in calls)) or "none"
        raise VerifyError(
            f"no layer is of a backend with a simulator (backends of the layers: {used}); name one with -b, or verify "
            "against 'reference'",
            against=SIMULATOR,
        )
    return rows


def _simulated(
    backend: Backend, module: object, region: Region, given: Mapping[str, np.ndarray], passed: frozenset[str]
) -> Sequence[np.ndarray] | None:
    """Return what a backend's simulator gives for a region; None where there is none for what it was compiled to."""
    if not isinstance(module, Module):
        return None
    constants = [region.constant(name) for name in region.constants] if backend.name in passed else []
    found = backend.simulated(module, [*given.values(), *constants])
    if found is not None and len(found) != len(region.outputs):
        raise VerifyError(
            f"backend '{backend.name}': its simulator gives {len(found)} arrays for region '{region.name}', which has "
            f"{len(region.outputs)} outputs",
            backend=backend.name,
        )
    return found
