"""Regions whose backend is missing where an artifact is loaded, compiled anew by the built-in compiler.

An artifact keeps its partitioned model, and the weights of every region that a vendor's loader got. So a region that
cannot be loaded is cut out of that model, compiled by ``llvm`` (``reference`` for what it does not take) and put in
the place of the call.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import onnx
import onnx_ir as ir
import onnx_ir.passes.common as passes

from graft.api import compile_model
from graft.errors import ArtifactError
from graft.partition.region import Region, regions
from graft.plugins.backend import CompiledRegion
from graft.runtime.procedure import Module, Procedure, ProgramDescription
from graft.stitch import ProcedureBuilder

BACKENDS = ("llvm", "reference")


def recompile(description: ProgramDescription, missing: Collection[int], threads: int | None) -> ProgramDescription:
    """Return the program without the modules numbered ``missing``; raise ArtifactError if that cannot be."""
    if "model.onnx" not in description.files:
        raise ArtifactError("the artifact holds no model to compile the regions anew that have no loader here")
    model = _with_weights(description)
    found = {region.name: region for region in regions(model)}
    rebuilt: dict[int, CompiledRegion] = {}
    for number in sorted(missing):
        (name,) = description.modules[number].functions
        rebuilt[number] = _compile(found[name], threads)
    return _replace_modules(description, rebuilt)


def _with_weights(description: ProgramDescription) -> ir.Model:
    """Return the artifact's model with the weights that the artifact has."""
    model: ir.Model = ir.from_proto(onnx.ModelProto.FromString(description.files["model.onnx"]))
    keys: Mapping[str, str] = description.metadata.get("weights", {})
    for name, value in model.graph.initializers.items():
        if name in keys:
            value.const_value = ir.tensor(description.constants[keys[name]], name=name)
    return model


def _compile(region: Region, threads: int | None) -> CompiledRegion:
    """Compile a region's body as a model of its own."""
    constants = set(region.constants)
    body = region.function.clone()
    graph = ir.Graph(
        [value for value in body.inputs if value.name not in constants],
        list(body.outputs),
        nodes=list(body),
        opset_imports=dict(body.opset_imports),
        name=region.name,
    )
    for value in body.inputs:
        if value.name in constants:
            value.const_value = region.constants[value.name or ""]
            graph.initializers.add(value)
    model = ir.Model(graph, ir_version=10, functions=[function.clone() for function in region.composites.values()])
    passes.InlinePass()(model)
    compiled = compile_model(model, BACKENDS, threads=threads).description
    (procedure,) = compiled.procedures
    return CompiledRegion(compiled.modules, procedure, compiled.constants)


def _replace_modules(description: ProgramDescription, rebuilt: Mapping[int, CompiledRegion]) -> ProgramDescription:
    """Return the description with the calls of rebuilt modules inlined and the modules themselves taken out."""
    number: dict[int, int] = {}
    modules: list[Module] = []
    for old, module in enumerate(description.modules):
        number[old] = len(modules)
        modules += rebuilt[old].modules if old in rebuilt else (module,)
    constants = dict(description.constants)
    for region in rebuilt.values():
        constants.update(region.constants)
    procedures = tuple(_replace_calls(procedure, rebuilt, number) for procedure in description.procedures)
    return replace(description, procedures=procedures, modules=tuple(modules), constants=constants)


def _replace_calls(procedure: Procedure, rebuilt: Mapping[int, CompiledRegion], number: Mapping[int, int]) -> Procedure:
    builder = ProcedureBuilder.reopen(procedure)
    builder.calls = []
    for call in procedure.calls:
        if call.kind == "call" and call.module in rebuilt:
            region = rebuilt[call.module]
            keys = {key: key for key in region.constants}
            builder.inline(region.procedure, call.inputs, number[call.module], keys, into=call.outputs)
        else:
            builder.calls.append(replace(call, module=number[call.module]) if call.kind == "call" else call)
    return builder.replan()
