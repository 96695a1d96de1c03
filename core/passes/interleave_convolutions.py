"""Transposed convolutions as convolutions whose results are interleaved."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from graft.core.graph.view import ValueView
from graft.core.operators.images.derivatives import FINITE
from graft.core.rewriting import node_rewrite as rewrite
from graft.core.rewriting.node_pass import Names, NodePass, Rewriter
from graft.core.rewriting.writer import Writer
from graft.core.types import FLOATS

LEFT = "graft.convolves-transposed"
"""The key of the metadata of a ConvTranspose that stays one."""
MOST_PARTS = 32
"""Convolutions that one transposed convolution becomes at most, where their kernels differ."""
FLOAT = int(ir.DataType.FLOAT)
THE_END = np.iinfo(np.int64).max


@dataclass(frozen=True)
class InterleaveConvolutions(NodePass):
    """Write ConvTranspose as Conv.

    With stride s, element ``s*q + r`` of the result (padding included) is a convolution of the input around q with
    those weights k for which ``dilation * k`` leaves r when divided by s: as many small convolutions as strides along
    all axes make, whose results are interleaved (Shi et al., "Real-Time Single Image and Video Super-Resolution Using
    an Efficient Sub-Pixel Convolutional Neural Network", 2016, read backwards).

    1. weights that are known, or that are computed: these are cut at run time
    2. kernels of one size: one convolution with as many times the channels; otherwise one for each size
    3. elements that no weight reaches (strides beyond the kernel, or that share a factor with a dilation): zeros
    4. stride 1: the convolution with the mirrored kernel

    Left as they are: kernels of many sizes, and pads that follow from an output shape where that is not known. Around
    its input a Conv multiplies weights by zeros, where a ConvTranspose has no product. So where a part reads around it,
    known weights that are not all finite are left, too, and with stride 1 computed ones; with other strides an If asks
    whether computed weights are finite, for as they are they take a hundred times as long. What a gradient spreads
    says that they are (`FINITE`).
    """

    name: ClassVar[str] = "interleave-convolutions"
    infers: ClassVar[bool] = True

    def rewrite(self, node: ir.Node, rewriter: Rewriter) -> bool:
        """Rewrite a node as the class says."""
        conv = _transposed(node) if rewrite.is_operator(node, "ConvTranspose") else None
        if conv is None:
            return False
        names = rewriter.names
        _rewrite(_if_finite(node, conv, names) if conv.wants_finite_weights else node, conv, names)
        return True


@dataclass(frozen=True, slots=True)
class _Part:
    """The weights of one phase of an axis: every ``step``-th from ``first`` on; they read ``offset`` places back."""

    first: int
    step: int
    taps: int
    offset: int


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis of a ConvTranspose; ``end`` is the pad behind, less what ``output_padding`` adds."""

    size: int
    stride: int
    dilation: int
    begin: int
    end: int

    @property
    def common(self) -> int:
        """Only every n-th element of the result is reached by a weight."""
        return math.gcd(self.stride, self.dilation)

    @property
    def parts(self) -> list[_Part | None]:
        """One for each phase ``r = common * m``; None where no weight leads there."""
        step = self.stride // self.common
        found: list[_Part | None] = []
        for r in range(0, self.stride, self.common):
            first = next(k for k in range(step) if self.dilation * k % self.stride == r)
            taps = len(range(first, self.size, step))
            found.append(_Part(first, step, taps, (self.dilation * first - r) // self.stride) if taps else None)
        return found

    @property
    def reached(self) -> list[_Part]:
        """The phases that weights lead to."""
        return [part for part in self.parts if part is not None]

    @property
    def spread(self) -> int:
        """The dilation of the parts."""
        return self.dilation // self.common

    @property
    def begins_at(self) -> int:
        """The first place of the input around which the parts are computed."""
        return min(self.begin // self.stride, *(part.offset + (part.taps - 1) * self.spread for part in self.reached))

    @property
    def ends_behind(self) -> int:
        """How many places behind the input's last they are computed around, too."""
        length = self.dilation * (self.size - 1) + 1 - self.end
        return max(-(-length // self.stride) - 1, *(part.offset for part in self.reached))

    def pads(self, part: _Part) -> tuple[int, int]:
        """Return the pads of the convolution of a part."""
        return part.offset + (part.taps - 1) * self.spread - self.begins_at, self.ends_behind - part.offset

    @property
    def cut(self) -> tuple[int, int]:
        """What is cut of the interleaved result in front and behind."""
        behind = (self.ends_behind + 1) * self.stride - self.dilation * (self.size - 1) - 1 + self.end
        return self.begin - self.begins_at * self.stride, behind

    @property
    def is_even(self) -> bool:
        """Whether the parts have kernels of one size, at one place."""
        return len({(part.taps, part.offset) for part in self.reached}) == 1

    @property
    def fits(self) -> bool:
        """Whether phases without weights come last."""
        parts = self.parts
        return None not in parts[: len(self.reached)]


@dataclass(frozen=True, slots=True)
class _Transposed:
    """A ConvTranspose in numbers: ``weights`` are ``[channels in, channels out / groups, *kernel]``."""

    source: ir.Value
    weights: ir.Value
    bias: ir.Value | None
    shape: tuple[int, ...]
    groups: int
    axes: tuple[_Axis, ...]
    is_finite: bool
    """Whether it says that its weights are finite."""

    @property
    def channels(self) -> int:
        """The channels of the result."""
        return self.shape[1] * self.groups

    @property
    def phases(self) -> list[tuple[_Part, ...]]:
        """The parts along all axes."""
        return list(itertools.product(*(axis.reached for axis in self.axes)))

    @property
    def is_even(self) -> bool:
        """Whether all parts have kernels of one size."""
        return all(axis.is_even for axis in self.axes)

    @property
    def reads_around(self) -> bool:
        """Whether a part multiplies weights by zeros around the input."""
        return any(any(axis.pads(part)) for axis in self.axes for part in axis.reached)

    @property
    def wants_finite_weights(self) -> bool:
        """Whether only a call can tell that no product with what is around the input is NaN."""
        return self.reads_around and not self.is_finite and rewrite.constant_of(self.weights) is None

    @property
    def has_gaps(self) -> bool:
        """Whether there are elements of the result that no weight reaches."""
        return any(len(axis.reached) < axis.stride for axis in self.axes)


def _transposed(node: ir.Node) -> _Transposed | None:
    """Return the numbers of a node, None where it is left as it is."""
    source, weights = node.inputs[0], node.inputs[1]
    shape = rewrite.static_shape(weights)
    if LEFT in node.metadata_props or source is None or weights is None or shape is None or 0 in shape:
        return None
    if ValueView(source).dtype not in FLOATS or rewrite.known_shape(source) is None:
        return None
    rank = len(shape) - 2
    ones, none = (1,) * rank, (0,) * rank
    strides, dilations = (tuple(rewrite.attribute_of(node, key, None) or ones) for key in ("strides", "dilations"))
    more = tuple(rewrite.attribute_of(node, "output_padding", None) or none)
    spans = [(size - 1) * one + 1 + extra for size, one, extra in zip(shape[2:], dilations, more, strict=True)]
    pads = _pads(node, strides, spans) if rank else None
    if pads is None:
        return None
    ends = (end - extra for end, extra in zip(pads[rank:], more, strict=True))
    rows = zip(shape[2:], strides, dilations, pads, ends, strict=False)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    groups, axes = rewrite.attribute_of(node, "group", 1), tuple(_Axis(*row) for row in rows)
    conv = _Transposed(source, weights, bias, shape, groups, axes, FINITE in node.metadata_props)
    few = conv.is_even or len(conv.phases) <= MOST_PARTS
    return conv if few and all(axis.fits for axis in conv.axes) and _may_read_around(conv) else None


def _may_read_around(conv: _Transposed) -> bool:
    """Whether weights are finite, or a call asks whether they are; or the input has nothing around it."""
    constant = rewrite.constant_of(conv.weights)
    if conv.is_finite:
        return True
    if constant is not None:
        return not conv.reads_around or bool(np.isfinite(constant.astype(np.float64)).all())
    return any(axis.stride > 1 for axis in conv.axes) or not conv.reads_around


def _pads(node: ir.Node, strides: Sequence[int], spans: Sequence[int]) -> tuple[int, ...] | None:
    """Return the pads in front, then behind; None where they follow from a shape that is not known."""
    mode = rewrite.attribute_of(node, "auto_pad", "NOTSET")
    if mode in ("NOTSET", "VALID") and not rewrite.attribute_of(node, "output_shape", None):
        stated = rewrite.attribute_of(node, "pads", None) if mode == "NOTSET" else None
        return tuple(stated or [0] * (2 * len(spans)))
    totals = [span - stride for stride, span in zip(strides, spans, strict=True)]
    if rewrite.attribute_of(node, "output_shape", None):
        sizes = [(rewrite.known_shape(value) or ())[2:] for value in (node.inputs[0], node.outputs[0])]
        lacks = [
            stride * size - wanted if isinstance(size, int) and isinstance(wanted, int) else None
            for stride, size, wanted in zip(strides, *sizes, strict=False)
        ]
        if None in lacks or len(lacks) != len(spans):
            return None
        totals = [total + lack for total, lack in zip(totals, lacks, strict=True) if lack is not None]
    begins = [total // 2 if mode == "SAME_UPPER" else total - total // 2 for total in totals]
    pads = (*begins, *(total - begin for total, begin in zip(totals, begins, strict=True)))
    return pads if min(pads) >= 0 else None


def _if_finite(node: ir.Node, conv: _Transposed, names: Names) -> ir.Node:
    """Put an If in the place of a node, which is in both branches, and return that of finite weights."""
    steps = Writer(node, names)
    magnitude = steps("ReduceL1", steps("Cast", conv.weights, to=FLOAT), keepdims=0)
    is_finite = steps("Less", magnitude, steps.constant("infinity", np.array(np.inf, np.float32)))
    copies = [_copied(node, names) for _ in range(2)]
    copies[1].metadata_props[LEFT] = ""
    branches = [
        ir.Graph([], copy.outputs, nodes=[copy], name=names.fresh(f"{node.name}_{branch}"))
        for copy, branch in zip(copies, ("finite", "infinite"), strict=True)
    ]
    rewrite.replace_node(node, "If", [is_finite], dict(zip(("then_branch", "else_branch"), branches, strict=True)))
    return copies[0]


def _copied(node: ir.Node, names: Names) -> ir.Node:
    """Return a node of the same inputs and attributes, in no graph."""
    copy = ir.node(
        node.op_type, list(node.inputs), attributes=dict(node.attributes), name=names.fresh(f"{node.name}_if")
    )
    copy.metadata_props.update(rewrite.origin_of(node))
    copy.outputs[0].name = names.fresh(f"{node.outputs[0].name}_if")
    copy.outputs[0].type, copy.outputs[0].shape = node.outputs[0].type, node.outputs[0].shape
    return copy


def _rewrite(node: ir.Node, conv: _Transposed, names: Names) -> None:
    """Put convolutions, and what interleaves and cuts their results, in the place of a node."""
    steps = Writer(node, names)
    if all(axis.stride == 1 for axis in conv.axes):
        found = _convolution(steps, conv, _part(steps, conv, conv.phases[0]), conv.bias, conv.phases[0])
    else:
        found = _interleaved(steps, conv)
    cuts = [axis.cut for axis in conv.axes]
    if any(map(any, cuts)):
        bounds = ([one for one, _ in cuts], [-one if one else THE_END for _, one in cuts], range(2, 2 + len(cuts)))
        found = steps("Slice", found, *(steps.ints(*row) for row in bounds))
    if conv.has_gaps and conv.bias is not None:
        found = steps("Add", found, steps.reshaped(conv.bias, conv.channels, *[1] * len(cuts)))
    last = found.producer()
    assert last is not None
    rewrite.replace_node(node, last.op_type, list(last.inputs), dict(last.attributes))


def _part(steps: Writer, conv: _Transposed, phase: Sequence[_Part]) -> ir.Value:
    """Return the weights of the convolution for one phase: ``[channels out, channels in / groups, *taps]``."""
    constant = rewrite.constant_of(conv.weights)
    if constant is not None:
        return steps.constant("weights", _known_part(constant, conv.groups, phase))
    taps, rank = [part.taps for part in phase], len(phase)  # case 1
    starts = [part.first + (part.taps - 1) * part.step for part in phase]
    ends = [part.first - 1 if part.first else -THE_END for part in phase]
    rows = (starts, ends, range(2, 2 + rank), [-part.step for part in phase])
    inner, is_point = conv.shape[0] // conv.groups, {*conv.shape[2:]} <= {1}
    cut = conv.weights if is_point else steps("Slice", conv.weights, *(steps.ints(*row) for row in rows))
    if conv.groups == 1:
        return steps.transposed(cut, 1, 0, *range(2, 2 + rank))
    groups_apart = steps.reshaped(cut, conv.groups, inner, conv.shape[1], *taps)
    transposed = steps.transposed(groups_apart, 0, 2, 1, *range(3, 3 + rank))
    return steps.reshaped(transposed, conv.channels, inner, *taps)


def _known_part(weights: np.ndarray, groups: int, phase: Sequence[_Part]) -> np.ndarray:
    """Return what `_part` does, of constant weights."""
    cut = weights[:, :, *(slice(part.first, None, part.step) for part in phase)]
    mirrored = np.flip(cut, tuple(range(2, cut.ndim)))
    split = mirrored.reshape(groups, -1, *mirrored.shape[1:])  # [groups, in, out, *taps]
    return np.swapaxes(split, 1, 2).reshape(-1, split.shape[1], *cut.shape[2:])


def _convolution(
    steps: Writer, conv: _Transposed, weights: ir.Value, bias: ir.Value | None, phase: Sequence[_Part]
) -> ir.Value:
    """Return the convolution of the source with some weights, padded for a phase."""
    pads = [axis.pads(part) for axis, part in zip(conv.axes, phase, strict=True)]
    return steps.convolved(
        conv.source,
        weights,
        bias,
        dilations=[axis.spread for axis in conv.axes],
        group=conv.groups,
        pads=[*(before for before, _ in pads), *(after for _, after in pads)],
        kernel_shape=[part.taps for part in phase],
        strides=[1] * len(phase),
    )


def _interleaved(steps: Writer, conv: _Transposed) -> ir.Value:
    """Return the results of all phases, interleaved, with zeros where there are none."""
    phases, rank, channels = conv.phases, len(conv.axes), conv.channels
    bias = None if conv.has_gaps else conv.bias
    is_depthwise = conv.groups > 1 and conv.shape[0] == conv.groups
    weights, shift = rewrite.constant_of(conv.weights), None if bias is None else rewrite.constant_of(bias)
    is_known = weights is not None and (bias is None or shift is not None)
    counts = [extent for axis in conv.axes for extent in (len(axis.reached), 1)]
    if weights is not None and is_known and conv.is_even and not is_depthwise:
        # case 2: [batch, channels * phases, *size], the phases of a channel side by side
        parts = [_known_part(weights, conv.groups, phase) for phase in phases]
        together = np.stack(parts, 1).reshape(-1, *parts[0].shape[1:])
        bias = None if shift is None else steps.constant("bias", np.repeat(shift, len(phases)))
        found = _convolution(steps, conv, steps.constant("weights", together), bias, phases[0])
        first, places = [channels, *counts], list(range(2, 2 + 2 * rank))
        kept = 1
    else:  # [batch, phases * channels, *size]
        found = _apart(steps, conv, bias)
        first, places = [*counts, channels], list(range(1, 1 + 2 * rank))
        kept = 1 + 2 * rank
    size = steps("Shape", found, start=2)
    extents = steps.concatenated(steps.ints(0, *first), size, axis=0)
    order = [0, kept]
    for number in range(rank):
        order += [2 + 2 * rank + number, places[2 * number], places[2 * number + 1]]
    transposed = steps.transposed(steps("Reshape", found, extents), *order)
    if conv.has_gaps:  # case 3
        ends = [0, 0]
        for axis in conv.axes:
            ends += [0, axis.stride // axis.common - len(axis.reached), axis.common - 1]
        transposed = steps("Pad", transposed, steps.ints(*[0] * len(ends), *ends))
    large = steps("Mul", size, steps.ints(*(axis.stride for axis in conv.axes)))
    return steps("Reshape", transposed, steps.concatenated(steps.ints(0, channels), large, axis=0))


def _apart(steps: Writer, conv: _Transposed, bias: ir.Value | None) -> ir.Value:
    """Return the results of all phases, one behind the other along the channels."""
    phases = conv.phases
    weights = [_part(steps, conv, phase) for phase in phases]
    if conv.is_even and conv.groups == 1 and len(phases) > 1:  # case 2, of computed weights
        every = steps.concatenated(*weights, axis=0)
        repeated = None if bias is None else steps.concatenated(*[bias] * len(phases), axis=0)
        return _convolution(steps, conv, every, repeated, phases[0])
    results = [_convolution(steps, conv, one, bias, phase) for one, phase in zip(weights, phases, strict=True)]
    return steps.concatenated(*results, axis=1) if len(results) > 1 else results[0]
