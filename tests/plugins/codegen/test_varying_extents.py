"""Kernels whose extents are known only when they run, on ONNX's own cases with no dimension stated as a number."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from graft.core.graph.view import NodeView, ValueView
from graft.core.machine.target import Target, host_target, target_named
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition import varying
from graft.partition.region import REGION_DOMAIN, Region
from graft.plugins.backend import CompiledRegion
from graft.plugins.codegen.region_kernels import RegionKernels
from graft.plugins.llvm.backend import LlvmBackend
from tests.core.operators.node_cases import Case, all_cases, make_constant, node_of
from tests.plugins.llvm.execute import execute

BACKEND = LlvmBackend()


def by_operator() -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for name, case in all_cases().items():
        names.setdefault(case.model.graph.node[0].op_type, []).append(name)
    return names


def with_symbols(view: NodeView, keep: tuple[int, ...] = (), *, all_inputs: bool = True) -> None:
    """Name every dimension of a node that is more than 1 by its number, but for axes of the first input in ``keep``.

    Inputs behind the first one keep their numbers without ``all_inputs``.
    """
    for number, value in enumerate((*view.inputs, *view.outputs)):
        if value is not None and value.name and not value.is_constant:
            shape = value.static_shape or ()
            first = number == 0 or value in view.outputs
            if not first and not all_inputs:
                continue
            fixed = {axis % len(shape) for axis in keep if -len(shape) <= axis < len(shape)} if first else set()
            value.value.shape = ir.Shape(
                [n if n <= 1 or axis in fixed else f"d{n}" for axis, n in enumerate(shape)]  #
            )


def planned(case: Case, name: str, target: Target) -> tuple[RegionKernels, list[np.ndarray]] | None:
    """The kernels of a case and their inputs; None if none of its dimensions can vary."""
    for all_inputs, keep in itertools.product((True, False), ((), (-1,), (0,), (1,), (1, 2, 3, 4))):
        view = node_of(case.model, case.inputs, case.outputs)
        arrays = dict(zip([value.name for value in case.model.graph.input], case.inputs, strict=True))
        answer = BACKEND.supports(view)
        if answer is not True and answer.code == "constant-required":
            make_constant(view, arrays)
            first = view.input(0)
            if first is not None:
                first.value.const_value = None
        with_symbols(view, keep, all_inputs=all_inputs)
        if BACKEND.supports(view) is not True or varying.is_static(view):
            continue
        graph = view.node.graph
        inputs = [ValueView(value) for value in graph.inputs if value.const_value is None]
        function = ir.Function(REGION_DOMAIN, name, graph=graph, attributes=[])
        outputs = tuple(ValueView(value) for value in graph.outputs)
        region = Region(name, "llvm", function, {}, tuple(inputs), outputs)
        return RegionKernels(region, OPERATORS, target, choices=BACKEND), [arrays[value.name] for value in inputs]
    return None


@pytest.mark.parametrize("target", ["native", "x86-64-v2"])
@pytest.mark.parametrize("operator", sorted(by_operator()))
def test_an_operator_of_any_extents_gives_what_onnx_expects(operator: str, target: str, load_image: Any) -> None:
    machine = host_target() if target == "native" else target_named(target)
    found, functions = [], []
    for number, name in enumerate(by_operator()[operator]):
        case = all_cases()[name]
        known = planned(case, f"r{number}", machine)
        if known is not None:
            functions += known[0].functions
            found.append((case, *known))
    if not found:
        pytest.skip(f"{operator}: its lowering takes static shapes alone")
    module = BACKEND.emit(functions, machine) if functions else None
    for case, kernels, inputs in found:
        compiled = CompiledRegion(() if module is None else (module,), kernels.procedure(), kernels.constants)
        sizes = {f"d{n}": n for array in (*case.inputs, *case.outputs) for n in array.shape}
        for result, expected in zip(execute(compiled, inputs, load_image, sizes), case.outputs, strict=True):
            assert result.dtype == expected.dtype
            given, wanted = result.astype(np.float64), expected.astype(np.float64)
            np.testing.assert_allclose(given, wanted, rtol=case.rtol, atol=case.atol, err_msg=case.name)
