"""The importer: a file, bytes or a proto becomes a checked model of one opset, typed and named throughout."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
import onnx.inliner
import onnx_ir as ir
from google.protobuf.message import DecodeError

from graft.core.collection import collection_paused
from graft.core.graph.dimensions import (
    Dims,
    apply_dimensions,
    forget_names,
    forget_stated,
    keep_ranges,
    name_dimensions,
)
from graft.core.graph.exception_translation import CONTRADICTIONS, REFUSALS, readable, tidy
from graft.core.graph.protos import every_graph, order, subgraphs
from graft.core.graph.skeleton import is_large, skeleton_of_model, skeleton_of_proto
from graft.core.graph.traversal import all_nodes
from graft.core.importer.checks import check_header, check_model, check_tensor
from graft.core.importer.completion import complete_outputs, drop_zip_maps, merge_imports, name_domains, say_halves
from graft.core.importer.external_data import ModelDirectory, external_tensors
from graft.core.importer.function_bodies import expand_functions, has_functions
from graft.core.importer.gradients import write_gradients
from graft.core.importer.header import (
    complete_header,
    complete_imports,
    complete_names,
    compute_results,
    drop_uncalled,
    state_conditions,
    state_defaults,
)
from graft.core.importer.node_checks import check_nodes
from graft.core.importer.old_operators import name_old
from graft.core.importer.small_integers import widen_small_integers
from graft.core.importer.sparse import make_dense
from graft.core.importer.upgrade import IR_VERSION, level_functions, upgraded
from graft.core.passes.pipeline import RECORD, PassResult, record_of
from graft.core.shapes.inference import fix_dimensions, give_rank, has_unknown, infer_proto, infer_shapes
from graft.core.shapes.unification import aliases_of, unify
from graft.errors import ModelError
from graft.runtime.arguments import DIMS, SHAPES, instance, optional, takes
from graft.runtime.foreign import shown

ONNX_DOMAINS = frozenset({"ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training"})
EXTERNAL = onnx.TensorProto.EXTERNAL
Source = str | Path | bytes | onnx.ModelProto | ir.Model


SOURCE = instance(
    str, os.PathLike, bytes, onnx.ModelProto, ir.Model,
    wanted='the path of an ONNX model, its bytes, or a model in memory (onnx.ModelProto, onnx_ir.Model)',
)  # fmt: skip
"""What a model may be given as."""


@takes(source=SOURCE, shapes=optional(SHAPES), dims=optional(DIMS))
@collection_paused()
def load(source: Source, *, shapes: Mapping[str, Sequence[int]] | None = None, dims: Dims | None = None) -> ir.Model:
    """Return a model, checked, brought to opset `OPSET`, with shapes inferred and every node named.

    ``source`` is a path, the bytes of a file, or a model in memory, which is not changed. Dimensions of inputs that
    are no numbers are symbols, by the name that they have or as ``<input>_<axis>``; every other shape is an expression
    over them. ``dims`` gives symbols a number or a range: ``{"batch": (1, 64), "seq": 128}``; ``shapes`` gives all of
    an input's: ``{"x": (1, 3, 224, 224)}``. The model's own functions are inlined, and an initialiser that is also an
    input becomes a constant. What was done stands in ``record_of(model)``. A model that `load` returned is returned as
    it is. Raises ModelError.
    """
    if isinstance(source, ir.Model) and RECORD in source.meta and not shapes and not dims:
        return source
    if isinstance(source, ir.Model):
        proto, directory, constants = skeleton_of_model(source), None, _large_constants(source)
    else:
        (proto, directory), constants = _read(source), {}
    check_header(proto)
    _embed_inner_data(proto, directory)
    proto, large = skeleton_of_proto(proto)
    unread = _drop_unread(proto, {name for name, one in large.items() if one.data_location == EXTERNAL})
    for name, tensor in large.items():
        if name not in unread:
            check_tensor(tensor, f"initialiser '{name}'")
            constants[name] = _constant(tensor, directory)
    steps: list[PassResult] = []
    _repair(proto, steps)
    check_model(proto)
    for value in proto.graph.input:
        give_rank(value, shapes or {})
    for step in (
        _sort_nodes,
        _complete,
        _check_with_onnx,
        _inline_functions,
        _upgrade,
        _differentiate,
        _expand_functions,
    ):
        proto = step(proto, steps)
    if shapes and fix_dimensions(proto.graph, shapes, dims or {}):
        steps.append(_step("fix-dimensions", proto, ", ".join(_shown(*item) for item in shapes.items())))
    names = {**aliases_of(proto.metadata_props), **name_dimensions(proto.graph)}
    ranges = apply_dimensions(proto.graph, dims or {}, names)
    stated = forget_stated(proto.graph)
    if shapes or dims:
        _check_numbers(proto)
    with readable():
        model = ir.from_proto(infer_proto(proto))
    forget_names(model)
    _attach(model, constants, steps)
    keep_ranges(model, ranges)
    widened = widen_small_integers(model)
    if widened > 0:
        steps.append(_step("widen-small-integers", model, f"{widened} constants of fewer than 8 bits became bytes"))
    if has_unknown(model):
        infer_shapes(model, stated, has_numbers=not widened)
    _name_nodes(model)
    check_nodes(model)
    unify(model)
    record_of(model).extend(steps)
    return model


def _read(source: str | Path | bytes | onnx.ModelProto) -> tuple[onnx.ModelProto, ModelDirectory | None]:
    if isinstance(source, onnx.ModelProto):
        return source, None
    if isinstance(source, bytes):
        return _parse(source, "the data"), None
    path = Path(source)
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:  # a path with a null byte is a ValueError
        reason = error.strerror if isinstance(error, OSError) else error
        raise ModelError(f"cannot read {shown(str(path))}: {reason}", path=str(path)) from error
    return _parse(data, f"'{path}'"), ModelDirectory(path.parent, path)


def _large_constants(model: ir.Model) -> dict[str, ir.TensorProtocol]:
    """Return the constants that `skeleton_of_model` leaves out, those in files checked and mapped."""
    constants = {}
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        if tensor is None or not is_large(tensor):
            continue
        if isinstance(tensor, ir.ExternalTensor):
            tensor = ModelDirectory(Path(tensor.base_dir)).tensor(ir.to_proto(tensor))
        constants[name] = tensor
    return constants


def _parse(data: bytes, what: str) -> onnx.ModelProto:
    try:
        proto: onnx.ModelProto = onnx.ModelProto.FromString(data)
    except DecodeError:
        if data[:1] == b"\x08":
            raise ModelError(f"{what} begins as an ONNX model but is damaged or cut off; copy it again") from None
        raise ModelError(f"{what} is not an ONNX model; pass the .onnx file that an exporter wrote") from None
    if not proto.HasField("graph"):
        raise ModelError(f"{what} is not an ONNX model; pass the .onnx file that an exporter wrote")
    return proto


def _constant(tensor: onnx.TensorProto, directory: ModelDirectory | None) -> ir.TensorProtocol:
    if tensor.data_location == EXTERNAL:
        return _require_directory(tensor, directory).tensor(tensor)
    return ir.serde.deserialize_tensor(tensor)


def _embed_inner_data(proto: onnx.ModelProto, directory: ModelDirectory | None) -> None:
    """Read external tensors of attributes and subgraphs into the proto: ONNX's tools do not find the files."""
    held = list(proto.graph.initializer)  # a proto's children keep their identity only while they are held
    outer = {id(tensor) for tensor in held}
    for tensor in external_tensors(proto):
        if id(tensor) not in outer:
            tensor.raw_data = bytes(_require_directory(tensor, directory).read(tensor))
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]


def _drop_unread(proto: onnx.ModelProto, external: set[str]) -> set[str]:
    """Drop, in place, what is stored in files and read by nothing; return the names: the files need not be there."""
    read = {name for graph in every_graph(proto.graph) for node in graph.node for name in node.input}
    read |= {value.name for graph in every_graph(proto.graph) for value in graph.output}
    unread = external - read
    for place in reversed(range(len(proto.graph.input))):
        if proto.graph.input[place].name in unread:
            del proto.graph.input[place]
    return unread


def _require_directory(tensor: onnx.TensorProto, directory: ModelDirectory | None) -> ModelDirectory:
    if directory is None:
        raise ModelError(
            f"tensor '{tensor.name}' is stored in a file beside the model, but the model was given without its "
            f"directory; load it by its path",
            tensor=tensor.name,
        )
    return directory


def _repair(proto: onnx.ModelProto, steps: list[PassResult]) -> None:
    """Make good, in place, what ONNX Runtime takes and the checks below do not."""
    complete_header(proto, IR_VERSION)
    complete_names(proto)
    compute_results(proto.graph)
    state_conditions(proto.graph)
    merged = merge_imports(proto)
    if merged:
        steps.append(_step("merge-imports", proto, merged))
    if names := drop_uncalled(proto):
        steps.append(_step("drop-uncalled-functions", proto, ", ".join(names)))
    if names := complete_imports(proto):
        steps.append(_step("complete-imports", proto, f"operator sets that nodes use: {', '.join(names)}"))
    if names := make_dense(proto.graph):
        steps.append(_step("make-dense", proto, f"sparse tensors made dense: {', '.join(names)}"))
    opset = next((entry.version for entry in proto.opset_import if not entry.domain), 0)
    if names := name_old(proto, opset):
        steps.append(_step("name-old-operators", proto, f"{', '.join(names)} of opset {opset}"))
    if names := level_functions(proto):
        steps.append(_step("level-functions", proto, f"{', '.join(names)} to opset {opset}"))


def _sort_nodes(proto: onnx.ModelProto, steps: list[PassResult]) -> onnx.ModelProto:
    if _sort_graph(proto.graph):
        steps.append(_step("sort-nodes", proto, "nodes did not stand in an order to run"))
    return proto


def _sort_graph(graph: onnx.GraphProto) -> bool:
    nodes = list(graph.node)
    changed = False
    for inner in (inner for node in nodes for inner in subgraphs(node)):
        changed |= _sort_graph(inner)
    sequence = order(nodes)
    if any(old is not new for old, new in zip(nodes, sequence, strict=True)):
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in sequence]
        del graph.node[:]
        graph.node.extend(copies)
        return True
    return changed


def _complete(proto: onnx.ModelProto, steps: list[PassResult]) -> onnx.ModelProto:
    """Make good what exporters leave out or write twice."""
    if names := name_domains(proto):
        steps.append(_step("name-domains", proto, f"operators of ONNX Runtime: {', '.join(names)}"))
    if notes := drop_zip_maps(proto.graph):
        steps.append(_step("drop-zip-maps", proto, "; ".join(notes)))
    if names := say_halves(proto.graph):
        steps.append(_step("say-halves", proto, f"half of the spectra {', '.join(names)}"))
    if names := complete_outputs(proto, _foreign_expanded):
        steps.append(_step("complete-outputs", proto, f"shapes inferred of {', '.join(names)}"))
    return proto


def _foreign_expanded(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in the terms of ONNX, where it has operators that ONNX does not know."""
    if has_functions(proto):
        for step in (_inline_functions, _upgrade, _expand_functions):
            proto = step(proto, [])
    return proto


def _check_with_onnx(proto: onnx.ModelProto, steps: list[PassResult]) -> onnx.ModelProto:
    wrong = _contradiction(proto)
    if wrong is None:
        return proto
    rest = _without_stated(proto)
    if rest is None or _contradiction(rest) is not None:
        with readable():
            model = ir.from_proto(proto)
        check_nodes(model)  # where an attribute is the cause, this says so
        raise ModelError(f"types or shapes of the model contradict each other: {tidy(wrong)}") from wrong
    steps.append(_step("forget-stated-shapes", rest, f"shapes that the model states are wrong: {tidy(wrong)}"))
    return rest


def _contradiction(proto: onnx.ModelProto) -> Exception | None:
    """Return what ONNX's inference finds wrong with types and shapes; raise ModelError for anything else wrong."""
    try:
        with readable():
            onnx.checker.check_model(proto, full_check=True)
    except CONTRADICTIONS as error:
        # twice: within the body of an operator's definition, where onnx itself may be wrong
        return None if str(error).count("Inference error(s)") > 1 else error
    return None


def _without_stated(proto: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return a model with the shapes of results as they are inferred, not as it states them; None where that fails."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    known = {node.domain for graph in every_graph(copy.graph) for node in graph.node} <= {"", *ONNX_DOMAINS}
    made = {name for node in copy.graph.node for name in node.output}
    for place in reversed(range(len(copy.graph.value_info))):
        if known and copy.graph.value_info[place].name in made:
            del copy.graph.value_info[place]
    for value in copy.graph.output:
        if value.name in made and value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    try:
        complete_outputs(copy, _foreign_expanded)
    except ModelError:
        return None
    return copy


def _check_numbers(proto: onnx.ModelProto) -> None:
    """Raise ModelError if the numbers that dimensions were given contradict what the model computes with them."""
    try:
        with readable():
            onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
    except CONTRADICTIONS as error:
        if str(error).count("Inference error(s)") > 1:
            return  # within the body of an operator's definition, as above
        raise ModelError(f"the numbers given to dimensions contradict each other: {tidy(error)}") from error


def _inline_functions(proto: onnx.ModelProto, steps: list[PassResult]) -> onnx.ModelProto:
    if not proto.functions:
        return proto
    note = f"functions inlined: {', '.join(function.name for function in proto.functions)}"
    state_defaults(proto)
    try:
        inlined = onnx.inliner.inline_local_functions(proto, convert_version=True)
    except (*REFUSALS, RuntimeError) as error:
        raise ModelError(f"the model's functions cannot be inlined: {tidy(error)}") from error
    del inlined.functions[:]
    steps.append(_step("inline-functions", proto, note))
    return inlined


def _upgrade(proto: onnx.ModelProto, steps: list[PassResult]) -> onnx.ModelProto:
    proto, note = upgraded(proto)
    if note:
        steps.append(_step("upgrade-opset", proto, note))
    return proto


def _differentiate(proto: onnx.ModelProto, steps: list[PassResult]) -> onnx.ModelProto:
    if names := write_gradients(proto):
        steps.append(_step("write-gradients", proto, ", ".join(names)))
    return proto


def _expand_functions(proto: onnx.ModelProto, steps: list[PassResult]) -> onnx.ModelProto:
    """Write what ONNX defines by other operators as these, where nobody computes it as a whole."""
    expanded, names = expand_functions(proto)
    if names:
        steps.append(_step("expand-functions", expanded, f"functions of {', '.join(names)}"))
    return expanded


def _attach(model: ir.Model, constants: Mapping[str, ir.TensorProtocol], steps: list[PassResult]) -> None:
    """Give large constants their contents back, and take initialisers out of the inputs."""
    graph = model.graph
    overridable = []
    for value in list(graph.inputs):
        if (name := value.name or "") in constants:
            value.const_value = constants[name]
            graph.inputs.remove(value)
            graph.initializers.add(value)
        elif value.name in graph.initializers:
            graph.inputs.remove(value)
            overridable.append(value.name)
    if overridable:
        steps.append(_step("fix-initializers", model, f"{len(overridable)} inputs with a default became constants"))


def _name_nodes(model: ir.Model) -> None:
    """Give every node a unique name: its own, else that of its first output, with a number where it is taken."""
    nodes = list(all_nodes(model.graph))
    taken: set[str] = set()
    for node in nodes:
        wanted = node.name or node.outputs[0].name or node.op_type
        name, number = wanted, 1
        while name in taken:
            number += 1
            name = f"{wanted}_{number}"
        taken.add(name)
        node.name = name


def _step(name: str, model: onnx.ModelProto | ir.Model, note: str) -> PassResult:
    nodes = len(model.graph.node) if isinstance(model, onnx.ModelProto) else len(model.graph)
    return PassResult(name, True, nodes, nodes, note)


def _shown(name: str, shape: Sequence[int]) -> str:
    return f"{name}:{'x'.join(map(str, shape))}"
