"""Regions written as ONNX text, for tests of backends."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir

from graft.core.graph.view import ValueView
from graft.partition.region import COMPOSITE_DOMAIN, REGION_DOMAIN, Region

HEADER = '<ir_version: 10, opset_import: ["" : 21, "graft.composite" : 1, "graft.region" : 1]>'


def region_of(
    body: str,
    inputs: Mapping[str, tuple[int | str, ...]],
    constants: Mapping[str, np.ndarray] | None = None,
    composites: Mapping[str, tuple[str, str]] | None = None,
    outputs: Mapping[str, tuple[int | str, ...]] | None = None,
) -> Region:
    """Return a float32 region from the text of its nodes.

    ``composites`` maps a function name to (composite name, ``"(a, b) => (c) { ... }"``). Shapes of intermediate
    values are left unknown but for ``outputs``; every value is float32.
    """
    constants = dict(constants or {})
    composites = dict(composites or {})
    parameters = ", ".join((*inputs, *constants))
    results = ", ".join(outputs or {})
    text = f"{HEADER} g () => () {{ }}"
    text += f'<domain: "{REGION_DOMAIN}", opset_import: ["" : 21, "graft.composite" : 1]>'
    text += f" r0 ({parameters}) => ({results}) {{ {body} }}"
    for name, (_, code) in composites.items():
        text += f'<domain: "{COMPOSITE_DOMAIN}", opset_import: ["" : 21]> {name} {code}'
    functions = {key[1]: function for key, function in ir.from_proto(onnx.parser.parse_model(text)).functions.items()}
    region = functions.pop("r0")
    for name, (composite, _) in composites.items():
        functions[name].metadata_props["Composite"] = composite
    shapes = {**inputs, **(outputs or {}), **{name: array.shape for name, array in constants.items()}}
    for value in [*region.inputs, *(output for node in region for output in node.outputs)]:
        value.dtype = ir.DataType.FLOAT
        if value.name in shapes:
            value.shape = ir.Shape(shapes[value.name])
        if value.name in constants:
            value.const_value = ir.tensor(constants[value.name], name=value.name)
            value.dtype = value.const_value.dtype
    run_time = [value for value in region.inputs if value.name in inputs]
    return Region(
        name="r0",
        backend="npu",
        function=region,
        composites=functions,
        inputs=tuple(ValueView(value) for value in run_time),
        outputs=tuple(ValueView(value) for value in region.outputs),
        constants={value.name: value.const_value for value in region.inputs if value.const_value is not None},
        origin=tuple(node.name or "" for node in region),
    )
