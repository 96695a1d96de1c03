"""The checks on the attributes of a model's nodes that shape inference does not make: ranges, choices, divisors.

One row per operator; a rule says None, or what is wrong. They are asked once types and shapes are known, and not
where a rank is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from graft.core.graph.exception_translation import NONSENSE, sound
from graft.core.graph.traversal import all_nodes
from graft.core.graph.view import NodeView, ValueView
from graft.core.importer.input_extents import EXTENTS
from graft.core.operators.definition.index_bounds import index_bounds
from graft.errors import ModelError

Rule = Callable[[NodeView], str | None]


def check_nodes(model: ir.Model) -> None:
    """Check attributes, constant indices and the extents of inputs and results; raise ModelError at the first fault.

    Extents in a body are left aside: a branch that is not taken may have impossible ones.
    """
    for node in all_nodes(model.graph):
        view = NodeView(node)
        if view.domain in ("", "ai.onnx"):
            _check(view, RULES)
        _check_indices(view)
        if node.graph is model.graph:
            if view.domain in ("", "ai.onnx"):
                _check(view, EXTENTS)
            _check_extents(view)


def _check(view: NodeView, rules: Mapping[str, Sequence[Rule]]) -> None:
    for rule in rules.get(view.op_type, ()):
        try:
            fault = rule(view)
        except NONSENSE as error:
            fault = f"its attributes and inputs are not of the types and ranks that ONNX says ({error})"
        if fault is not None:
            raise ModelError(f"{view.where}: {fault}", node=view.name)


def _check_indices(node: NodeView) -> None:
    with sound(node):
        bounds = index_bounds(node)
    for bound in bounds:
        value = node.input(bound.input)
        array = None if value is None else value.constant
        wrong = None if array is None else bound.fault(array)
        if value is not None and wrong is not None:
            raise ModelError(
                f"{node.where}: index {wrong} in '{value.name}' is out of range: axis {bound.axis} has extent "
                f"{bound.extent}, so that {bound.low} to {bound.high} are legal",
                node=node.name,
                index=wrong,
                axis=bound.axis,
                extent=bound.extent,
            )


def _check_extents(node: NodeView) -> None:
    for value in node.outputs:
        if any(isinstance(extent, int) and extent < 0 for extent in value.shape or ()):
            shown = ",".join(map(str, value.shape or ()))
            raise ModelError(
                f"{node.where}: its result '{value.name}' would have the shape [{shown}]; a window is wider than the "
                "padded image, or more is cut off than there is",
                node=node.name,
            )


# ---- Rules --------------------------------------------------------------------------------------------------------


def rank_of(node: NodeView, number: int) -> int | None:
    """Return the rank of an input, None if it is absent or unknown."""
    value = node.input(number)
    return None if value is None else value.rank


def _outside(name: str, given: int, rank: int, past: int = 0) -> str | None:
    limit = max(rank, 1)
    if -limit <= given < limit + past:
        return None
    return f"{name} {given} is out of range: an axis of a tensor of rank {rank} is in [{-limit}, {limit - 1 + past}]"


def axis(name: str = "axis", *, more: int = 0, past: int = 0, default: int | None = None) -> Rule:
    """The attribute is an axis of the first input, had it ``more`` axes; ``past`` counts legal ones behind the last."""

    def rule(node: NodeView) -> str | None:
        rank, given = rank_of(node, 0), node.attribute(name, default)
        return None if rank is None or given is None else _outside(name, given, rank + more, past)

    return rule


def quantised_axis(node: NodeView) -> str | None:
    """The axis of a scale per slice; it is left aside where there is one scale, in whatever shape."""
    scale = node.input(1)
    return None if scale is not None and scale.static_shape in ((), (1,)) else axis()(node)


def axes(source: str | int, *, more: bool = False) -> Rule:
    """The attribute or constant input holds different axes of the first input, or of it with ``more``: as many more."""

    def rule(node: NodeView) -> str | None:
        rank, given = rank_of(node, 0), _integers(node, source)
        if rank is None or given is None:
            return None
        rank += len(given) if more else 0
        faults = [fault for one in given if (fault := _outside("axis", one, rank)) is not None]
        if faults:
            return faults[0]
        if len({one % max(rank, 1) for one in given}) != len(given):
            return f"axes {given} name one axis twice"
        return None

    return rule


def constant_axis(number: int) -> Rule:
    """The constant input is one axis of the first input."""

    def rule(node: NodeView) -> str | None:
        rank, given = rank_of(node, 0), _integers(node, number)
        return None if rank is None or not given else _outside("axis", given[0], rank)

    return rule


def _integers(node: NodeView, source: str | int) -> list[int] | None:
    if isinstance(source, str):
        given = node.attribute(source)
        return None if given is None else list(given)
    value = node.input(source)
    array = None if value is None else value.constant
    return None if array is None else [int(one) for one in array.reshape(-1)]


def permutation(node: NodeView) -> str | None:
    """``perm`` holds each axis once."""
    rank, given = rank_of(node, 0), node.attribute("perm")
    if rank is None or given is None or sorted(given) == list(range(rank)):
        return None
    return f"perm {list(given)} is no order of the {rank} axes of its input"


def at_least(least: float, *names: str) -> Rule:
    """The attributes, numbers or lists of them, are finite and not less than ``least``."""

    def rule(node: NodeView) -> str | None:
        for name in names:
            given = node.attribute(name)
            for one in given if isinstance(given, list) else [] if given is None else [given]:
                if not (math.isfinite(one) and one >= least):
                    return f"{name} is {given}, where at least {least} is expected"
        return None

    return rule


def one_of(name: str, *choices: str | int) -> Rule:
    """The attribute is one of ``choices``."""

    def rule(node: NodeView) -> str | None:
        given = node.attribute(name)
        if given is None or given in choices:
            return None
        return f"{name} is {given!r}, where one of {', '.join(map(repr, choices))} is expected"

    return rule


def windows(spatial: Callable[[NodeView], int | None], *names: str) -> Rule:
    """Strides and the like have one number per spatial axis, pads two."""

    def rule(node: NodeView) -> str | None:
        rank = spatial(node)
        for name in names:
            given = node.attribute(name)
            wanted = None if rank is None else 2 * rank if name == "pads" else rank
            if given is not None and wanted is not None and len(given) != wanted:
                return f"{name} has {len(given)} numbers, where an image of {rank} axes needs {wanted}"
        return None

    return rule


def groups(node: NodeView) -> str | None:
    """The channels fall into ``group`` equal parts, and the weights are for such a part."""
    group = node.attribute("group", 1)
    number = 3 if node.op_type == "QLinearConv" else 1
    image, weights = node.input(0), node.input(number)
    if group < 1:
        return f"group is {group}, where at least 1 is expected"
    if image is None or weights is None or not image.shape or not weights.shape or len(image.shape) < 2:
        return None
    channels, parts, each = image.shape[1], weights.shape[0], weights.shape[1]
    if isinstance(channels, int) and channels % group:
        return f"group {group} does not divide the {channels} channels of its input"
    transposed = node.op_type == "ConvTranspose"
    if not transposed and isinstance(parts, int) and parts % group:
        return f"group {group} does not divide the {parts} channels of its result"
    needed = parts if transposed else each * group if isinstance(each, int) else None
    if isinstance(channels, int) and isinstance(needed, int) and channels != needed:
        return f"its weights are for {needed} channels, its input has {channels}"
    return None


def divides(name: str, input_axis: int, of: Callable[[int], int] = lambda number: number) -> Rule:
    """The attribute, or ``of`` it, is positive and divides the extent of an axis of the first input."""

    def rule(node: NodeView) -> str | None:
        given, value = node.attribute(name), node.input(0)
        if given is None:
            return None
        if given < 1:
            return f"{name} is {given}, where at least 1 is expected"
        shape = None if value is None else value.shape
        extent = None if shape is None or len(shape) <= input_axis else shape[input_axis]
        if isinstance(extent, int) and extent % of(given):
            return f"{name} {given} does not fit axis {input_axis} of extent {extent}, which {of(given)} must divide"
        return None

    return rule


def batch_dimensions(node: NodeView) -> str | None:
    """GatherND: the leading axes that data and indices share leave an axis of both."""
    given, ranks = node.attribute("batch_dims", 0), (rank_of(node, 0), rank_of(node, 1))
    least = min((rank for rank in ranks if rank is not None), default=None)
    if least is None or 0 <= given < least:
        return None
    shown = f"data and indices of ranks {ranks[0]} and {ranks[1]} allow 0 to {least - 1}"
    return f"batch_dims {given} is out of range: {shown}"


def reversed_axes(node: NodeView) -> str | None:
    """ReverseSequence: batch and time are the first two axes, each one of them."""
    found = node.attribute("batch_axis", 1), node.attribute("time_axis", 0)
    if sorted(found) == [0, 1]:
        return None
    return f"batch_axis {found[0]} and time_axis {found[1]}; one of them is 0, the other 1"


def largest_count(node: NodeView) -> str | None:
    """TopK: a constant k is not larger than the axis."""
    value, k = node.input(0), _integers(node, 1)
    if value is None or value.shape is None or not k or not value.shape:
        return None
    along = node.attribute("axis", -1)
    extent = value.shape[along]
    if isinstance(extent, int) and not 0 <= k[0] <= extent:
        return f"k is {k[0]}, but axis {along} has extent {extent}"
    return None


def _spatial(node: NodeView) -> int | None:
    rank = rank_of(node, 0)
    return None if rank is None else rank - 2


def heads(*names: str) -> Rule:
    """Attention over ``[batch, position, head * feature]`` says how many heads, which divide the last axis."""

    def rule(node: NodeView) -> str | None:
        for number, name in enumerate(names):
            value, given = node.input(number), node.attribute(name, 0)
            last = None if value is None or value.rank != 3 or value.shape is None else value.shape[-1]
            if isinstance(last, int) and (given < 1 or last % given):
                return f"{name} is {given}, which does not divide the last axis of '{_name(value)}', of extent {last}"
        return None

    return rule


def _name(value: ValueView | None) -> str:
    return "" if value is None else value.name


AUTO_PAD = one_of("auto_pad", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
WINDOWS: Sequence[Rule] = (
    at_least(1, "kernel_shape", "strides", "dilations"),
    at_least(0, "pads", "output_padding"),
    windows(_spatial, "kernel_shape", "strides", "dilations", "pads", "output_padding"),
    AUTO_PAD,
)
RECURRENT: Sequence[Rule] = (
    at_least(1, "hidden_size"),
    at_least(0, "clip"),
    one_of("direction", "forward", "reverse", "bidirectional"),
    one_of("layout", 0, 1),
)
AXIS: Sequence[Rule] = (axis(),)
REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
EPSILON = at_least(0, "epsilon")
SCATTER = one_of("reduction", "none", "add", "mul", "min", "max")
LOSS = one_of("reduction", "none", "sum", "mean")
IMAGE_ORDER = one_of("mode", "DCR", "CRD")
COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)  # fmt: skip

RULES: dict[str, Sequence[Rule]] = {
    "ArgMax": AXIS,
    "ArgMin": AXIS,
    "Attention": (
        heads("q_num_heads", "kv_num_heads", "kv_num_heads"),
        one_of("qk_matmul_output_mode", 0, 1, 2, 3),
    ),
    "AveragePool": WINDOWS,
    "BatchNormalization": (EPSILON,),
    "BitShift": (one_of("direction", "LEFT", "RIGHT"),),
    "Cast": (one_of("round_mode", "up", "down", "nearest"),),
    "CenterCropPad": (axes("axes"),),
    "Col2Im": (at_least(1, "strides", "dilations"), at_least(0, "pads")),
    "Compress": AXIS,
    "Concat": AXIS,
    "Conv": (*WINDOWS, groups),
    "ConvInteger": (*WINDOWS, groups),
    "ConvTranspose": (*WINDOWS, groups),
    "CumProd": (constant_axis(1),),
    "CumSum": (constant_axis(1),),
    "DFT": (constant_axis(2),),
    "DeformConv": (*WINDOWS, at_least(1, "group", "offset_group")),
    "DepthToSpace": (divides("blocksize", 1, lambda block: block * block), IMAGE_ORDER),
    "DequantizeLinear": (quantised_axis, at_least(0, "block_size")),
    "Flatten": (axis(past=1),),
    "GRU": RECURRENT,
    "Gather": AXIS,
    "GatherElements": AXIS,
    "GatherND": (batch_dimensions,),
    "Gelu": (one_of("approximate", "none", "tanh"),),
    "GlobalLpPool": (at_least(1, "p"),),
    "GridSample": (
        one_of("mode", "linear", "nearest", "cubic", "bilinear", "bicubic"),
        one_of("padding_mode", "zeros", "border", "reflection"),
    ),
    "GroupNormalization": (divides("num_groups", 1), EPSILON),
    "Hardmax": AXIS,
    "InstanceNormalization": (EPSILON,),
    "LRN": (at_least(1, "size"),),
    "LSTM": RECURRENT,
    "LayerNormalization": (axis(), EPSILON),
    "LogSoftmax": AXIS,
    "LpNormalization": (axis(), one_of("p", 1, 2)),
    "LpPool": (*WINDOWS, at_least(1, "p")),
    "MaxPool": (*WINDOWS, one_of("storage_order", 0, 1)),
    "MaxRoiPool": (at_least(1, "pooled_shape"),),
    "MaxUnpool": (at_least(1, "kernel_shape", "strides"), at_least(0, "pads")),
    "MeanVarianceNormalization": (axes("axes"),),
    "NegativeLogLikelihoodLoss": (LOSS,),
    "OneHot": (axis(more=1),),
    "Pad": (one_of("mode", "constant", "reflect", "edge", "wrap"), axes(3)),
    "QLinearConv": (*WINDOWS, groups),
    "QuantizeLinear": (quantised_axis, at_least(0, "block_size")),
    "RMSNormalization": (axis(), EPSILON),
    "RNN": RECURRENT,
    **dict.fromkeys(REDUCTIONS, (axes(1),)),
    "Resize": (
        one_of("mode", "nearest", "linear", "cubic"),
        one_of("keep_aspect_ratio_policy", "stretch", "not_larger", "not_smaller"),
        one_of("nearest_mode", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple"),
        one_of("coordinate_transformation_mode", *COORDINATES),
        axes("axes"),
    ),
    "ReverseSequence": (reversed_axes,),
    "RoiAlign": (
        at_least(1, "output_height", "output_width"),
        at_least(0, "sampling_ratio"),
        one_of("mode", "avg", "max"),
        one_of("coordinate_transformation_mode", "half_pixel", "output_half_pixel"),
    ),
    "RotaryEmbedding": (at_least(0, "rotary_embedding_dim"), heads("num_heads")),
    "Scatter": AXIS,
    "ScatterElements": (axis(), SCATTER),
    "ScatterND": (SCATTER,),
    "Slice": (axes(3),),
    "Softmax": AXIS,
    "SoftmaxCrossEntropyLoss": (LOSS,),
    "SpaceToDepth": (divides("blocksize", 2), divides("blocksize", 3), IMAGE_ORDER),
    "Split": (axis(), at_least(1, "num_outputs")),
    "SplitToSequence": AXIS,
    "Squeeze": (axes(1),),
    "TensorScatter": (axis(), one_of("mode", "linear", "circular")),
    "TopK": (axis(), largest_count),
    "Transpose": (permutation,),
    "Unique": AXIS,
    "Unsqueeze": (axes(1, more=True),),
    "Upsample": (one_of("mode", "nearest", "linear"),),
}
"""By operator, what its attributes must fulfil in the opset that models are brought to."""
