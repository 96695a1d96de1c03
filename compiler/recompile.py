"""Regions whose backend is missing where an artifact is loaded, compiled anew by the fallback backends.

An artifact keeps its partitioned model, and the weights of every region that a vendor's loader got. So a region that
cannot be loaded is cut out of that model, compiled by the backends that are there to take what others leave, and put
in the place of the call. What the user asked of the program (precision, what it does without, memory, versions) is
asked again; schedules are chosen anew, for the machine that is here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import onnx
import onnx_ir as ir
import onnx_ir.passes.common as passes

from graft.compiler.api import compile_model
from graft.compiler.artifact_weights import ELSEWHERE
from graft.compiler.configuration import configuration
from graft.compiler.request import Request, plugins
from graft.compiler.specialize import Specialize, dims_of
from graft.compiler.stitching.most_memory import Memory
from graft.compiler.stitching.procedure_builder import ProcedureBuilder
from graft.compiler.stitching.symbol_binding import Unbound
from graft.core.machine.target import OPTIMISATIONS
from graft.core.passes.normalize import PASSES
from graft.errors import ArtifactError
from graft.partition.region import Region, regions
from graft.plugins.backend import CompiledRegion
from graft.plugins.registry.manager import PluginManager
from graft.runtime.foreign import kind_of, shown
from graft.runtime.isolation.options import isolations_of
from graft.runtime.procedure import Module, Procedure, ProgramDescription


def recompile(description: ProgramDescription, missing: Collection[int], threads: int | None) -> ProgramDescription:
    """Return the program without the modules numbered ``missing``; raise GraftError if that cannot be."""
    if description.devices:
        names = ", ".join(f"'{device.name}'" for device in description.devices)
        raise ArtifactError(
            f"the program computes on {names}, and no region is compiled anew for another memory; install what its "
            "modules need, or compile the model again for this machine",
            devices=[device.name for device in description.devices],
        )
    models = _models_of(description)
    found: dict[int, dict[str, Region]] = {}
    rebuilt: dict[int, CompiledRegion] = {}
    isolated = isolations_of(description.metadata)
    settings = configuration()  # isolated ones are left out: their code does not run in this process
    manager = PluginManager((*isolated, *settings.disabled), limits=settings.limits) if isolated else plugins()
    for number in sorted(missing):
        module = description.modules[number]
        first = max(one for one in models if one <= number)
        if first not in found:
            model = _model_of(description, *models[first])
            found[first] = {region.name: region for region in regions(model)}
        region = found[first].get(module.functions[0]) if len(module.functions) == 1 else None
        if region is None:
            raise ArtifactError(
                f"module '{module.name}' of kind '{module.kind}' cannot be compiled anew: it is not one region of the "
                "artifact's model",
                module=module.name,
            )
        rebuilt[number] = _compile(region, _request(description, threads, manager))
    try:
        return _replace_modules(description, rebuilt)
    except (LookupError, TypeError) as error:
        raise ArtifactError(
            f"artifact is damaged: a procedure names a tensor that it does not have ({error}); compile it again"
        ) from error
    except Unbound as error:
        raise ArtifactError(f"artifact is damaged: {error}; compile it again") from error


def recompile_whole(description: ProgramDescription, threads: int | None) -> ProgramDescription:
    """Return a program for the model inside another, with nothing of its modules; raise GraftError if it cannot be."""
    keys = description.metadata.get("weights", {})
    model = _model_of(description, "model.onnx", keys if isinstance(keys, Mapping) else {})
    missing = [
        f"'{name}'"
        for name, value in model.graph.initializers.items()
        if value.const_value is not None and value.const_value.doc_string == ELSEWHERE
    ]
    if missing:
        raise ArtifactError(
            f"the artifact's model cannot be compiled anew: {len(missing)} of its weights ({', '.join(missing[:3])}"
            f"{', ...' if len(missing) > 3 else ''}) are there only as its machine code wants them; compile it with "
            "keep_weights=True",
            weights=len(missing), spelled={"keep_weights=True": "--keep-weights"},
        )  # fmt: skip
    passes.InlinePass()(model)
    main = description.procedures[0]
    memory: Memory = "maximum" if main.symbols and main.arena_bytes else "binding"
    request = replace(
        _request(description, threads, plugins()), memory=memory, specialize=_versions(description), keep_weights=True
    )
    return compile_model(model, request).description


def _request(description: ProgramDescription, threads: int | None, manager: PluginManager) -> Request:
    """Return what was asked of a program, for the backends that take what others leave.

    Passes that a plugin brought are left out where it is missing.
    """
    without, precision = description.metadata.get("without", ()), description.metadata.get("precision", "float32")
    if not isinstance(without, Sequence) or not all(isinstance(one, str) for one in without):
        raise ArtifactError(f"artifact is damaged: what it does without is {shown(without)}; compile it again")
    request = Request(manager.fallbacks(), threads=threads, precision=str(precision), manager=manager)
    known = {*OPTIMISATIONS, *PASSES, *request.plugin_passes()}
    return replace(request, without=frozenset(without) & known)


def _versions(description: ProgramDescription) -> Specialize:
    """Return the numbers and ranges that versions of a program were compiled for, by symbol."""
    found: dict[str, list[int | tuple[int, int | None]]] = {}
    try:
        labels = [dims_of(row["label"]) for row in description.metadata.get("variants", ())]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _unreadable_variants(error) from error
    for name, spec in (one for label in labels for one in label.items()):
        if not isinstance(spec, str) and spec not in found.setdefault(name, []):
            found[name].append(spec)
    return found


def _unreadable_variants(error: Exception) -> ArtifactError:
    return ArtifactError(f"the artifact's variants cannot be read ({kind_of(error)}: {error}); compile it again")


def _models_of(description: ProgramDescription) -> dict[int, tuple[str, Mapping[str, str]]]:
    """Return the files of the artifact's models with the keys of their weights, by the first module of each."""
    versions = description.metadata.get("variants", ())
    try:
        rows = {
            int(row["module"]): (f"variants/{number}.onnx", dict(row["weights"])) for number, row in enumerate(versions)
        }
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable_variants(error) from error
    return {0: ("model.onnx", description.metadata.get("weights", {})), **rows}


def _model_of(description: ProgramDescription, file: str, keys: Mapping[str, str]) -> ir.Model:
    """Return a model of the artifact with the weights that the artifact has; raise ArtifactError if it has no such."""
    if file not in description.files:
        raise ArtifactError("the artifact holds no model to compile the regions anew that have no loader here")
    try:
        proto = onnx.ModelProto.FromString(description.files[file])
        if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in _tensors_of(proto)):
            raise ValueError("a tensor of it lies in another file")
        model: ir.Model = ir.from_proto(proto)
        for name, value in model.graph.initializers.items():
            if name in keys:
                value.const_value = ir.tensor(description.constants[keys[name]], name=name)
    except Exception as error:  # protobuf's, onnx_ir's, or a missing key: each means that the file is not what we wrote
        raise ArtifactError(
            f"the artifact's model cannot be read ({type(error).__name__}: {error}); compile it again"
        ) from error
    return model


def _tensors_of(message: Any) -> Iterator[onnx.TensorProto]:
    """Yield every tensor in a protobuf message, wherever it stands."""
    for field, value in message.ListFields():
        if field.message_type is not None:
            for one in (value,) if hasattr(value, "ListFields") else value:
                if isinstance(one, onnx.TensorProto):
                    yield one
                else:
                    yield from _tensors_of(one)


def _compile(region: Region, request: Request) -> CompiledRegion:
    """Compile a region's body as a model of its own."""
    graph = region.function.clone().graph
    graph.name = region.name
    for value in [one for one in graph.inputs if one.name in region.constants]:
        graph.inputs.remove(value)
        value.const_value = region.constants[value.name or ""]
        graph.initializers.add(value)
    model = ir.Model(graph, ir_version=10, functions=[function.clone() for function in region.composites.values()])
    passes.InlinePass()(model)
    compiled = compile_model(model, request).description
    if len(compiled.procedures) > 1:
        raise ArtifactError(
            f"region '{region.name}' cannot be compiled anew: it holds control flow; install what its module needs",
            region=region.name,
        )
    return CompiledRegion(compiled.modules, compiled.procedures[0], compiled.constants)


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
            given = len(region.procedure.inputs), len(region.procedure.outputs)
            if given != (len(call.inputs), len(call.outputs)):
                raise ArtifactError(
                    f"artifact is damaged: '{call.function}' is called with {len(call.inputs)} inputs and "
                    f"{len(call.outputs)} outputs, its region has {given[0]} and {given[1]}; compile it again"
                )
            builder.inline(region.procedure, call.inputs, number[call.module], keys, into=call.outputs)
        else:
            builder.calls.append(replace(call, module=number[call.module]) if call.kind == "call" else call)
    return builder.replan()
