"""Losses by name, added to a model: ONNX's where it has them, else what PyTorch's mean, of a few operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx
import onnx_ir as ir
from onnx import TensorProto, helper

from graft.core.importer.load import load
from graft.core.importer.source import SOURCE, Source
from graft.errors import ModelError
from graft.runtime.arguments import NUMBER, TEXT, either, optional, takes
from graft.training.editing import Writer, edited, free, named, values_of

REDUCTIONS = ("mean", "sum")


Each = Callable[[Writer, str, str], str]
"""The loss of each element, of predictions and targets."""


def _squared(f: Writer, prediction: str, target: str) -> str:
    difference = f("Sub", prediction, target)
    return f("Mul", difference, difference)


def _absolute(f: Writer, prediction: str, target: str) -> str:
    return f("Abs", f("Sub", prediction, target))


def _huber(f: Writer, prediction: str, target: str) -> str:
    """Half of the square up to 1, linear beyond (PyTorch's huber_loss, smooth_l1_loss)."""
    size = f("Abs", f("Sub", prediction, target))
    square = f("Mul", f("Mul", size, size), f.number(0.5))
    return f("Where", f("Less", size, f.number(1.0)), square, f("Sub", size, f.number(0.5)))


def _binary(f: Writer, prediction: str, target: str) -> str:
    """``softplus(x) - x t`` of logits, which does not overflow."""
    return f("Sub", f("Softplus", prediction), f("Mul", prediction, target))


ELEMENTWISE: Mapping[str, Each] = {"mse": _squared, "mae": _absolute, "huber": _huber, "bce": _binary}
CLASSES: Mapping[str, str] = {"cross-entropy": "SoftmaxCrossEntropyLoss", "nll": "NegativeLogLikelihoodLoss"}
"""Losses of ONNX over classes, the second axis, by labels."""
LOSSES = (*CLASSES, *ELEMENTWISE)
"""The names of losses: the last four take targets in the shape of the predictions."""


@takes(model=SOURCE, kind=either(*LOSSES), of=optional(TEXT), target=TEXT, name=TEXT, reduction=either(*REDUCTIONS),
       ignore_index=optional(NUMBER))  # fmt: skip
def loss(
    model: Source,
    kind: str,
    *,
    of: str | None = None,
    target: str = "target",
    name: str = "loss",
    reduction: str = "mean",
    ignore_index: int | None = None,
) -> ir.Model:
    """Return a model with a loss as one more output, and what it is compared with as one more input.

    ``kind`` is ``cross-entropy`` (logits ``[n, classes, ...]``, labels ``int64[n, ...]``), ``nll`` (logarithms of
    probabilities instead), or, of targets in the shape of the predictions, ``mse``, ``mae``, ``huber`` (delta 1),
    ``bce`` (logits). ``of`` is the value that is compared; the model's first output if left out. ``ignore_index`` is a
    label that does not count. Raises ModelError for a name that is taken or unknown.
    """
    loaded = load(model)
    values = values_of(loaded)
    prediction = named(values, of or loaded.graph.outputs[0].name or "", "the output")
    shape, dtype = values[prediction].shape, values[prediction].dtype
    if shape is None or dtype is None or (kind in CLASSES and len(shape) < 2):
        raise ModelError(f"'{prediction}' has no axis of classes, which {kind} needs", value=prediction)
    free(values, target), free(values, name)
    if ignore_index is not None and kind not in CLASSES:
        raise ModelError(f"{kind} has no labels, which ignore_index is one of")

    def edit(proto: onnx.ModelProto) -> None:
        f = Writer(proto.graph, name, int(dtype))
        sizes = [one if isinstance(one, int) else str(one) for one in shape]
        if kind in CLASSES:
            proto.graph.input.append(helper.make_tensor_value_info(target, TensorProto.INT64, [sizes[0], *sizes[2:]]))
            more = {} if ignore_index is None else {"ignore_index": int(ignore_index)}
            found = f(CLASSES[kind], prediction, target, reduction=reduction, **more)
        else:
            proto.graph.input.append(helper.make_tensor_value_info(target, int(dtype), sizes))
            each = ELEMENTWISE[kind](f, prediction, target)
            found = f("ReduceMean" if reduction == "mean" else "ReduceSum", each, keepdims=0)
        proto.graph.node.append(helper.make_node("Identity", [found], [name], name))
        proto.graph.output.append(helper.make_tensor_value_info(name, int(dtype), []))

    return edited(loaded, edit)
