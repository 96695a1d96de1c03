"""The importer: a file, bytes or a proto becomes a checked model of one opset, typed and named throughout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
import onnx_ir as ir

from graft.core.collection import collection_paused
from graft.core.graph.dimensions import (
    Dims,
    apply_dimensions,
    forget_names,
    forget_stated,
    keep_ranges,
    name_dimensions,
    unique,
)
from graft.core.graph.exception_translation import readable
from graft.core.graph.skeleton import skeleton_of_model
from graft.core.graph.traversal import all_nodes
from graft.core.importer.checks import check_model
from graft.core.importer.node_checks import check_nodes
from graft.core.importer.small_floats import widen_small_floats
from graft.core.importer.small_integers import widen_small_integers
from graft.core.importer.source import SOURCE, Source, opened
from graft.core.importer.steps import REPAIRS, REWRITES, applied, note_of
from graft.core.passes.pipeline import RECORD, PassResult, record_of
from graft.core.shapes.contradictions import check_numbers, check_rules
from graft.core.shapes.inference import fix_dimensions, give_rank, has_unknown, infer_proto, infer_shapes
from graft.core.shapes.unification import aliases_of, unify
from graft.runtime.arguments import DIMS, SHAPES, optional, takes


@takes(source=SOURCE, shapes=optional(SHAPES), dims=optional(DIMS))
def load(source: Source, *, shapes: Mapping[str, Sequence[int]] | None = None, dims: Dims | None = None) -> ir.Model:
    """Return a model, checked, brought to opset `OPSET`, with shapes inferred and every node named.

    ``source`` is a path, the bytes of a file, or a model in memory, which is not changed. Dimensions of inputs that
    are no numbers are symbols, by the name that they have or as ``<input>_<axis>``; every other shape is an expression
    over them. ``dims`` gives symbols a number or a range: ``{"batch": (1, 64), "seq": 128}``; ``shapes`` gives all of
    an input's: ``{"x": (1, 3, 224, 224)}``. The model's own functions are inlined, and an initialiser that is also an
    input becomes a constant. What was done stands in ``record_of(model)``. A model that `load` returned is returned as
    it is. Raises ModelError.
    """
    return imported(source, shapes, dims)


@collection_paused()
def imported(source: Source, shapes: Mapping[str, Sequence[int]] | None, dims: Dims | None) -> ir.Model:
    """Return what `load` does, of arguments that were checked where they came in."""
    if isinstance(source, ir.Model) and RECORD in source.meta and not shapes and not dims:
        return source
    return _imported(*opened(source), shapes, dims)


@collection_paused()
def load_skeleton(skeleton: onnx.ModelProto, constants: Mapping[str, ir.TensorProtocol]) -> ir.Model:
    """Return what `load` does, of a message whose inputs are constants where they have the name of one.

    The message, such as `skeleton_of_model` gives of a loaded model, is not changed. Raises ModelError.
    """
    proto, large = opened(skeleton)
    return _imported(proto, {**large, **constants}, None, None)


def _imported(
    proto: onnx.ModelProto,
    constants: Mapping[str, ir.TensorProtocol],
    shapes: Mapping[str, Sequence[int]] | None,
    dims: Dims | None,
) -> ir.Model:
    """Return the model of an opened message, which is changed."""
    steps: list[PassResult] = []
    proto = applied(REPAIRS, proto, steps)
    check_model(proto)
    for value in proto.graph.input:
        give_rank(value, shapes or {})
    proto = applied(REWRITES, proto, steps)
    if shapes and fix_dimensions(proto.graph, shapes, dims or {}):
        steps.append(note_of("fix-dimensions", proto, ", ".join(_shown(*item) for item in shapes.items())))
    names = {**aliases_of(proto.metadata_props), **name_dimensions(proto.graph)}
    ranges = apply_dimensions(proto.graph, dims or {}, names)
    stated = forget_stated(proto.graph)
    if shapes or dims:
        check_numbers(proto, "the numbers given to dimensions")
    with readable():
        model = ir.from_proto(infer_proto(proto))
    forget_names(model)
    _attach(model, constants, steps)
    keep_ranges(model, ranges)
    widened = widen_small_integers(model)
    if widened > 0:
        steps.append(note_of("widen-small-integers", model, f"{widened} constants of fewer than 8 bits became bytes"))
    small = widen_small_floats(model)
    if small > 0:
        steps.append(note_of("widen-small-floats", model, f"constants of {small} DequantizeLinear became wider"))
    if has_unknown(model):
        infer_shapes(model, stated, has_numbers=not widened)
    _name_nodes(model)
    if check_rules(model):
        check_numbers(skeleton_of_model(model), "types or shapes of the model")
    check_nodes(model)
    unify(model)
    record_of(model).extend(steps)
    return model


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
        steps.append(note_of("fix-initializers", model, f"{len(overridable)} inputs with a default became constants"))


def _name_nodes(model: ir.Model) -> None:
    """Give every node a unique name: its own, else that of its first output, with a number where it is taken."""
    nodes = list(all_nodes(model.graph))
    taken: set[str] = set()
    for node in nodes:
        node.name = unique(node.name or node.outputs[0].name or node.op_type, taken)


def _shown(name: str, shape: Sequence[int]) -> str:
    return f"{name}:{'x'.join(map(str, shape))}"
