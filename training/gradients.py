"""`graft.grad`: a model that computes gradients, as ONNX.

What is added is a Gradient node of ai.onnx.preview.training, which the importer writes as plain operators. Products
with the Jacobian on the other side (`jvp`) are derivatives of these in turn: a gradient is linear in the one that it
starts from, so its derivative by that is what pushes a direction forward.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from graft.compiler.request import Backends
from graft.core.collection import collection_rare
from graft.core.differentiation.reverse import Whole
from graft.core.importer.gradients import DOMAIN, write_gradients
from graft.core.importer.load import load
from graft.core.importer.source import SOURCE, Source
from graft.core.importer.steps import note_of
from graft.core.passes.pipeline import record_of
from graft.errors import ModelError
from graft.runtime.arguments import SHAPES, TEXT, TEXTS, optional, takes
from graft.training.composites import composites_of
from graft.training.editing import edited, free, named, values_of
from graft.training.recomputation import RECOMPUTE, recomputed
from graft.training.recomputation import STEP as RECOMPUTED_STEP

FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
STEP = "write-gradients"
"""The step of the import whose note says which gradients are zero."""


@takes(model=SOURCE, of=TEXT, wrt=optional(TEXTS), outputs=optional(TEXTS), stop=TEXTS, recompute=RECOMPUTE,
       shapes=optional(SHAPES))  # fmt: skip
@collection_rare()
def grad(
    model: Source,
    of: str = "loss",
    wrt: Sequence[str] | None = None,
    *,
    outputs: Sequence[str] | None = None,
    stop: Sequence[str] = (),
    recompute: str | int = "none",
    shapes: Mapping[str, Sequence[int]] | None = None,
    backends: Backends = (),
) -> ir.Model:
    """Return a model that computes outputs and the gradients of a loss: ``<name>_grad`` for each value of ``wrt``.

    ``of`` is a value of the model with one element. ``wrt`` are inputs, weights or values between; all weights
    (`weights_of`) if left out. ``outputs`` are those kept, all by default. No gradient comes through the values in
    ``stop``, as if they were constants. Only what ``wrt`` needs is computed. A value that the loss does not depend on
    has a gradient of zeros: `notes_of` says of which, and why.

    With ``recompute`` the backward pass computes again what would take memory from the forward pass on: all but the
    ends of segments (``"sqrt"``), all but the fewest bytes from which no product comes again (``"min-cut"``), or the
    cheapest that keeps values between kernels within a number of bytes.

    A composite of ``backends`` that has a ``vjp`` of its own is differentiated by that, all else by its operators; None
    asks all backends that are installed.

    Raises ModelError for a loss of more elements, for values of whole numbers, for an operator without a derivative,
    with the path on which it stands, and for a number of bytes that cannot be met, with the least that can; PlanError
    for what is no backend, and PluginError for a backend's derivative that raises or gives another shape or type.
    """
    loaded = load(model, shapes=shapes)
    require_scalar(loaded, of)
    values = values_of(loaded)
    wanted = weights_of(loaded) if wrt is None else [_differentiable(values, name) for name in dict.fromkeys(wrt)]
    kept = [value.name or "" for value in loaded.graph.outputs]
    kept = kept if outputs is None else [named(values, name, "output") for name in dict.fromkeys(outputs)]

    def write(source: ir.Model) -> ir.Model:
        return with_gradients(source, of, wanted, kept, stop, wholes=composites_of(source, backends))

    return recomputed(write, loaded, of, recompute)


def with_gradients(
    loaded: ir.Model,
    of: str,
    wanted: Sequence[str],
    kept: Sequence[str],
    stop: Sequence[str],
    more: Callable[[onnx.GraphProto], object] | None = None,
    before: Callable[[onnx.GraphProto], object] | None = None,
    without: Collection[str] = (),
    wholes: Sequence[Whole] = (),
) -> ir.Model:
    """Do what `grad` does, of a loaded model; ``without`` is that of `edited`.

    ``before`` changes the graph that is differentiated, ``more`` goes on with what that gives; ``wholes`` are nodes of
    the model that are differentiated as one.

    Raises ModelError where `grad` does, but does not ask whether the loss is a scalar.
    """
    if not wanted:
        raise ModelError("there is nothing to differentiate by: the model has no weights; name inputs in wrt")
    values = values_of(loaded)
    names = [free(values, f"{name}_grad") for name in wanted]
    fixed = [named(values, name, "stop") for name in stop if name not in wanted]

    def edit(proto: onnx.ModelProto) -> None:
        graph = proto.graph
        if before is not None:
            before(graph)
        inputs = [*wanted, *fixed]
        node = helper.make_node("Gradient", inputs, names, "grad", domain=DOMAIN, xs=wanted, zs=fixed or None, y=of)
        graph.node.append(node)
        infos = _types(graph)
        del graph.output[:]
        graph.output.extend(helper.make_value_info(name, infos[name]) for name in kept)
        graph.output.extend(helper.make_value_info(new, infos[name]) for new, name in zip(names, wanted, strict=True))
        proto.opset_import.append(helper.make_opsetid(DOMAIN, 1))
        if more is not None:
            more(graph)
        if wholes:  # which no file says, so the import cannot write these
            notes.extend(write_gradients(proto, wholes))

    notes: list[str] = []
    result = edited(loaded, edit, without=without)
    record_of(result).extend(note_of(STEP, result, note) for note in notes)
    return result


@takes(model=SOURCE, of=TEXT, wrt=TEXTS, shapes=optional(SHAPES))
def jvp(model: Source, of: str, wrt: Sequence[str], *, shapes: Mapping[str, Sequence[int]] | None = None) -> ir.Model:
    """Return a model that computes a value and how it changes in a direction: ``<of>_tangent``.

    The direction is one more input for each value of ``wrt``, ``<name>_tangent``. With ``of`` a gradient that `grad`
    has made, the product of the Hessian and a direction. Raises ModelError as `grad` does.
    """
    loaded = load(model, shapes=shapes)
    values = values_of(loaded)
    named(values, of, "the value")
    wanted = [_differentiable(values, name) for name in dict.fromkeys(wrt)]
    tangents = [free(values, f"{name}_tangent") for name in wanted]
    result = free(values, f"{of}_tangent")

    def edit(proto: onnx.ModelProto) -> None:
        graph = proto.graph
        infos = _types(graph)
        graph.input.extend(helper.make_value_info(new, infos[name]) for new, name in zip(tangents, wanted, strict=True))
        start, weighted = f"{of}/cotangent", f"{of}/weighted"
        backward = [f"{name}/backward" for name in wanted]
        graph.node.extend([
            helper.make_node("Sub", [of, of], [start], start),
            helper.make_node("Mul", [of, start], [weighted], weighted),
            helper.make_node(
                "Gradient", [*wanted, start], backward, "backward", domain=DOMAIN, xs=wanted, zs=[start], y=weighted
            ),
        ])  # fmt: skip
        parts = []
        for gradient, tangent in zip(backward, tangents, strict=True):
            graph.node.append(helper.make_node("Mul", [gradient, tangent], [f"{tangent}/part"]))
            graph.node.append(helper.make_node("ReduceSum", [f"{tangent}/part"], [f"{tangent}/sum"], keepdims=0))
            parts.append(f"{tangent}/sum")
        graph.node.append(helper.make_node("Sum", parts, [f"{result}/sum"]))
        graph.node.append(
            helper.make_node("Gradient", [start], [result], "forward", domain=DOMAIN, xs=[start], y=f"{result}/sum")
        )
        del graph.output[:]
        graph.output.extend(helper.make_value_info(name, infos[of]) for name in (of, result))
        proto.opset_import.append(helper.make_opsetid(DOMAIN, 1))

    return edited(loaded, edit)


def _types(graph: onnx.GraphProto) -> dict[str, onnx.TypeProto]:
    """Return the types of values; a loaded model states all."""
    constants = {one.name: helper.make_tensor_type_proto(one.data_type, list(one.dims)) for one in graph.initializer}
    return {one.name: one.type for one in (*graph.input, *graph.output, *graph.value_info)} | constants


def notes_of(model: ir.Model) -> tuple[str, ...]:
    """Return what is to be said of gradients: those that are zero, and why, and what is computed again."""
    notes = [step.note for step in record_of(model) if step.name == STEP]
    said = [note.removeprefix("grad").removeprefix(" (").removesuffix(")") for note in notes]
    found = tuple(part for note in said for part in note.split("; ") if part)
    return found + tuple(f"recompute: {step.note}" for step in record_of(model) if step.name == RECOMPUTED_STEP)


def constants_of(model: ir.Model) -> list[str]:
    """Return the names of a model's constants of floating-point type that nodes read."""
    return [
        value.name or ""
        for value in model.graph.initializers.values()
        if value.dtype in FLOATS and any(True for _ in value.uses())
    ]


def weights_of(model: ir.Model) -> list[str]:
    """Return those of `constants_of` that are trained if nothing is said: tensors of numbers.

    What has no axis is a bound of Clip, an exponent, a root of a depth; what is not finite is a mask. Both are
    trained where they are named.
    """
    return [name for name in constants_of(model) if _is_weight(model.graph.initializers[name])]


def _is_weight(value: ir.Value) -> bool:
    assert value.const_value is not None, f"'{value.name}' is no constant"
    return value.const_value.shape.rank() > 0 and bool(np.isfinite(value.const_value.numpy()).all())


def require_scalar(model: ir.Model, of: str) -> None:
    """Raise ModelError for a loss that is no value of the model, or not one number."""
    values = values_of(model)
    value = values[named(values, of, "the loss")]
    if value.dtype not in FLOATS:
        raise ModelError(f"the loss '{value.name}' is of {_type(value)}, which has no gradient", value=value.name)
    if value.shape is None or any(extent != 1 for extent in value.shape):
        raise ModelError(
            f"the loss '{value.name}' is {_type(value)}, where one number is expected; take its mean or sum",
            value=value.name,
        )


def _differentiable(values: Mapping[str, ir.Value], name: str) -> str:
    value = values[named(values, name, "wrt")]
    if value.dtype not in FLOATS:
        raise ModelError(f"wrt '{name}' is of {_type(value)}, which has no gradient", value=name)
    return name


def _type(value: ir.Value) -> str:
    sizes = "..." if value.shape is None else ",".join(str(extent) for extent in value.shape)
    return f"{'no known type' if value.dtype is None else value.dtype.name.lower()}[{sizes}]"
