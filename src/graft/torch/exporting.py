"""A module, or a program that `torch.export` saved, as an ONNX model, by the same table as under `torch.compile`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils._python_dispatch import _disable_current_modes

from graft.core.affine.expressions import Range
from graft.core.graph.dimensions import keep_ranges
from graft.errors import ModelError, UnsupportedError
from graft.runtime.extents import Symbol
from graft.torch.aten import recurrent
from graft.torch.aten.builder import Refused
from graft.torch.aten.table import ASSERTIONS, decompositions
from graft.torch.conversion import converted, fake, is_getitem, is_number, refusal, where
from graft.torch.quantized import name_dequantisation

WRITTEN = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION, OutputKind.PARAMETER_MUTATION)


def export(
    module: torch.nn.Module | torch.export.ExportedProgram | Path | str, args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None, *, dynamic_shapes: Any = None,
) -> ir.Model:  # fmt: skip
    """Return a module as an ONNX model for `graft.compile`: parameters are constants, inputs have their Python names.

    Inputs and outputs are the module's tensors in its order; what is none is not in the model, and so are assertions.
    ``module`` may be an `ExportedProgram`, or the path of a ``.pt2`` file; ``dynamic_shapes`` is as for `torch.export`.
    Raises UnsupportedError with each operator that has no row, and its place, for an ONNX model is a whole.
    """
    if isinstance(module, str | Path):
        return read_model(Path(module))
    if isinstance(module, torch.export.ExportedProgram):
        program = module
    else:
        program = torch.export.export(module, tuple(args), dict(kwargs or {}), dynamic_shapes=dynamic_shapes)
    with _disable_current_modes():
        refused = {one.target for one in program.graph.nodes if one.target in recurrent.ROWS and refusal(one)}
    return model_of(program.run_decompositions(decompositions(refused)))


def read_model(path: Path) -> ir.Model:
    """Return the ONNX model of a ``.pt2`` file; raise ModelError for what is none."""
    if not path.is_file():
        raise ModelError(f"cannot read '{path}': there is no such file", path=str(path))
    try:
        program = torch.export.load(path)
    except Exception as error:  # PyTorch raises whatever its parts do
        raise ModelError(f"'{path}' is no program of torch.export: {error}", path=str(path)) from error
    return export(program)


def model_of(program: torch.export.ExportedProgram) -> ir.Model:
    """Return a decomposed program as an ONNX model; raise UnsupportedError for what cannot be a part of one."""
    signature, graph = program.graph_signature, program.graph_module.graph
    names = {one.arg.name: one for one in signature.input_specs}
    name_dequantisation(program.graph_module)
    nodes = [
        one for one in graph.nodes
        if one.op == "call_function" and not is_number(one) and one.target not in ASSERTIONS
    ]  # fmt: skip
    written = [one for one in signature.output_specs if one.kind in WRITTEN]
    if written:
        raise UnsupportedError(f"the module writes to '{written[0].target}' when it is called; export it with .eval()")
    holders = {one.name: one for one in graph.find_nodes(op="placeholder")}
    tensors = {**program.state_dict, **program.constants}
    constants = {
        holders[name]: tensors[str(one.target)] for name, one in names.items()
        if one.kind != InputKind.USER_INPUT and one.target in tensors
    }  # fmt: skip
    with _disable_current_modes():
        left = [
            (one, why) for one in nodes if not is_getitem(one) and (why := refusal(one, has_pairs=True)) is not None
        ]
        if left:
            texts = "; ".join(f"{one.target} ({where(one)}): {why}" for one, why in left)
            raise UnsupportedError(f"{len(left)} operators cannot be exported: {texts}")
        outputs, made = _results(graph)
        given = [one for one in holders.values() if names[one.name].kind == InputKind.USER_INPUT and _is_tensor(one)]
        try:
            found = converted([*nodes, *made], outputs, constants, given, program.range_constraints)
        except Refused as why:
            raise UnsupportedError(f"the module cannot be exported: {why}") from why
    values = {value.name: value for value in found.model.graph.inputs}
    for number, node in enumerate(found.inputs):
        values[f"in_{number}"].name = node.name
    for value, node in zip(found.model.graph.outputs, found.outputs, strict=True):
        value.name = node.name if value.name != node.name else value.name
    keep_ranges(found.model, {Symbol(name): Range(*bounds) for name, bounds in found.dims.items()})
    return found.model


def _results(graph: torch.fx.Graph) -> tuple[list[torch.fx.Node], list[torch.fx.Node]]:
    """Return the nodes of the tensors that come out, each another one and none an input, and those made for it."""
    found: list[torch.fx.Node] = []
    made = []
    with graph.inserting_before(graph.output_node()):
        for node in filter(_is_tensor, graph.output_node().args[0]):
            if node.op != "call_function" or node in found:
                made.append(graph.call_function(torch.ops.aten.alias.default, (node,)))
                made[-1].meta = {**node.meta}
                node = made[-1]
            found.append(node)
    if not found:
        raise UnsupportedError("the module gives no tensor, so there is nothing to export")
    return found, made


def _is_tensor(node: Any) -> bool:
    return isinstance(node, torch.fx.Node) and isinstance(fake(node), torch.Tensor)
