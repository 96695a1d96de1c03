"""Transposed convolutions as convolutions whose results are interleaved."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from graft.core.model.passes.node_rewrite import (
    Names,
    add_constant,
    attribute_of,
    constant_of,
    is_operator,
    known_shape,
    origin_of,
    replace_node,
)
from graft.core.model.shapes import infer_shapes
from graft.core.model.view import ValueView
from graft.core.types import FLOATS

MOST_PARTS = 16
"""Convolutions that one transposed convolution becomes at most, where their kernels differ."""
THE_END = np.iinfo(np.int64).max


@dataclass(frozen=True)
class InterleaveConvolutions:
    """Write ConvTranspose with constant weights as Conv.

    With stride s, element ``s*q + r`` of the result (padding included) is a convolution of the input at q with every
    s-th weight from r on: as many small convolutions as strides along all axes make, whose results are interleaved
    (Shi et al., "Real-Time Single Image and Video Super-Resolution Using an Efficient Sub-Pixel Convolutional Neural
    Network", 2016, read backwards). They are one convolution with as many times the channels where their kernels have
    one size. With stride 1 it is the convolution with the mirrored kernel.

    Left as they are: dilations beside strides, strides beyond the kernel, kernels of many sizes, and pads that follow
    from a stated output shape.
    """

    name: ClassVar[str] = "interleave-convolutions"

    def run(self, model: ir.Model) -> bool:
        """Change ``model`` in place and return whether anything changed."""
        names, changed = None, False
        for node in list(ir.traversal.RecursiveGraphIterator(model.graph)):
            if is_operator(node, "ConvTranspose") and (wish := _wish(node)) is not None:
                names = names or Names(model)
                _rewrite(node, wish, names)
                changed = True
        if changed:
            infer_shapes(model)
        return changed


@dataclass(frozen=True, slots=True)
class _Wish:
    """A ConvTranspose in numbers; ``ends`` are pads behind, less what ``output_padding`` adds."""

    weights: np.ndarray
    """``[channels in, channels out / groups, *kernel]``."""
    groups: int
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def kernel(self) -> tuple[int, ...]:
        return self.weights.shape[2:]

    @property
    def taps(self) -> tuple[int, ...]:
        """The most weights of a part along each axis."""
        return tuple(-(-size // stride) for size, stride in zip(self.kernel, self.strides, strict=True))

    @property
    def is_even(self) -> bool:
        """Whether all parts have kernels of one size."""
        return all(size % stride == 0 for size, stride in zip(self.kernel, self.strides, strict=True))

    def part(self, phase: Sequence[int]) -> np.ndarray:
        """Return the weights of the convolution for one phase: ``[channels out, channels in / groups, *taps]``."""
        steps = tuple(slice(r, None, stride) for r, stride in zip(phase, self.strides, strict=True))
        chosen = self.weights[:, :, *steps]
        mirrored = np.flip(chosen, tuple(range(2, chosen.ndim)))
        split = mirrored.reshape(self.groups, -1, *mirrored.shape[1:])  # [groups, in, out, *taps]
        return np.swapaxes(split, 1, 2).reshape(-1, split.shape[1], *chosen.shape[2:])


def _wish(node: ir.Node) -> _Wish | None:
    """Return what a node asks for, None where it is left as it is."""
    weights, source = constant_of(node.inputs[1]), node.inputs[0]
    if (
        weights is None
        or source is None
        or ValueView(source).dtype not in FLOATS
        or known_shape(source) is None
        or not weights.size
    ):
        return None
    rank = weights.ndim - 2
    mode = attribute_of(node, "auto_pad", "NOTSET")
    if mode not in ("NOTSET", "VALID") or attribute_of(node, "output_shape", None) or rank < 1:
        return None
    ones, none = (1,) * rank, (0,) * rank
    strides, dilations = (tuple(attribute_of(node, key, None) or ones) for key in ("strides", "dilations"))
    pads = tuple(attribute_of(node, "pads", None) or none * 2) if mode == "NOTSET" else none * 2
    more = tuple(attribute_of(node, "output_padding", None) or none)
    ends = tuple(end - extra for end, extra in zip(pads[rank:], more, strict=True))
    wish = _Wish(weights, attribute_of(node, "group", 1), strides, dilations, pads[:rank], ends)
    kernel = wish.kernel
    if any(stride > 1 and dilation > 1 for stride, dilation in zip(strides, dilations, strict=True)):
        return None
    if any(stride > size for stride, size in zip(strides, kernel, strict=True)):
        return None
    if not wish.is_even and math.prod(strides) > MOST_PARTS:
        return None
    return wish


def _rewrite(node: ir.Node, wish: _Wish, names: Names) -> None:
    """Put convolutions, and what interleaves and cuts their results, in the place of a node."""
    source, bias = node.inputs[0], node.inputs[2] if len(node.inputs) > 2 else None
    assert source is not None
    rank, steps = len(wish.strides), _Steps(node, names)
    # along each axis: pads of the convolution, and what is cut of its interleaved result in front and behind
    reach = [(size - 1) * one for size, one in zip(wish.taps, wish.dilations, strict=True)]
    before, after, front, behind = list(reach), list(reach), [0] * rank, [0] * rank
    for axis, (stride, size) in enumerate(zip(wish.strides, wish.kernel, strict=True)):
        least = (size // stride - 1) * wish.dilations[axis]  # what the part with the fewest weights reaches
        left = min(wish.begins[axis] // stride, least)
        before[axis], front[axis] = reach[axis] - left, wish.begins[axis] - left * stride
        rest = wish.taps[axis] * stride - size + wish.ends[axis]
        right = min(rest // stride, reach[axis])
        after[axis], behind[axis] = reach[axis] - right, rest - right * stride
    is_cut = any(front) or any(behind)
    settings: dict[str, Any] = {"dilations": list(wish.dilations), "group": wish.groups, "pads": [*before, *after]}
    phases = list(itertools.product(*map(range, wish.strides)))
    channels = wish.weights.shape[1] * wish.groups
    if len(phases) == 1:
        whole = steps.convolution(source, wish.part(phases[0]), bias, settings)
    else:
        whole = _interleaved(steps, wish, phases, channels, source, bias, settings)
    if is_cut:
        axes = np.arange(2, 2 + rank)
        starts, ends = np.array(front), np.array([-one if one else THE_END for one in behind])
        inputs = [whole, steps.constant("starts", starts), steps.constant("ends", ends), steps.constant("axes", axes)]
        replace_node(node, "Slice", inputs)
    else:
        last = whole.producer()
        assert last is not None
        replace_node(node, last.op_type, list(last.inputs), dict(last.attributes))


def _interleaved(
    steps: _Steps,
    wish: _Wish,
    phases: Sequence[tuple[int, ...]],
    channels: int,
    source: ir.Value,
    bias: ir.Value | None,
    settings: dict[str, Any],
) -> ir.Value:
    """Return the results of all phases, interleaved."""
    rank = len(wish.strides)
    parts = [wish.part(phase) for phase in phases]
    is_depthwise = wish.groups > 1 and wish.weights.shape[0] == wish.groups
    together = wish.is_even and not is_depthwise and (bias is None or constant_of(bias) is not None)
    if together:  # [batch, channels * phases, *size], the phases of a channel side by side
        weights = np.stack(parts, 1).reshape(-1, *parts[0].shape[1:])
        if bias is not None:
            bias = steps.constant("bias", np.repeat(constant_of(bias), len(phases)))  # type: ignore[arg-type]
        found = steps.convolution(source, weights, bias, settings)
        first, second = [channels], list(wish.strides)
        order = [0, 1, *itertools.chain(*((2 + rank + axis, 2 + axis) for axis in range(rank)))]
    else:  # [batch, phases * channels, *size]
        results = []
        for part in parts:
            taps = zip(wish.taps, part.shape[2:], strict=True)
            fewer = [(most - size) * one for (most, size), one in zip(taps, wish.dilations, strict=True)]
            pads = [before - less for before, less in zip(settings["pads"][:rank], fewer, strict=True)]
            results.append(
                steps.convolution(source, part, bias, settings | {"pads": [*pads, *settings["pads"][rank:]]})
            )
        found = steps.add("Concat", results, {"axis": 1})
        first, second = list(wish.strides), [channels]
        order = [0, 1 + rank, *itertools.chain(*((2 + rank + axis, 1 + axis) for axis in range(rank)))]
    size = steps.add("Shape", [found], {"start": 2})
    parts_of = steps.constant("parts", np.array([0, *first, *second]))
    split = steps.add("Reshape", [found, steps.add("Concat", [parts_of, size], {"axis": 0})])
    turned = steps.add("Transpose", [split], {"perm": order})
    large = steps.add("Mul", [size, steps.constant("strides", np.array(wish.strides))])
    kept = steps.constant("kept", np.array([0, channels]))
    return steps.add("Reshape", [turned, steps.add("Concat", [kept, large], {"axis": 0})])


@dataclass(slots=True)
class _Steps:
    """Nodes in front of one that they stand for."""

    node: ir.Node
    names: Names

    def constant(self, name: str, array: np.ndarray) -> ir.Value:
        """Return a constant beside the node."""
        graph = self.node.graph
        assert isinstance(graph, ir.Graph), f"'{self.node.name}' is in no graph"
        return add_constant(graph, self.names.fresh(f"{self.node.name}_{name}"), array)

    def add(
        self, operator: str, inputs: Sequence[ir.Value | None], attributes: dict[str, Any] | None = None
    ) -> ir.Value:
        """Return the result of a new node."""
        graph = self.node.graph
        assert graph is not None, f"'{self.node.name}' is in no graph"
        name = self.names.fresh(f"{self.node.name}_{operator.lower()}")
        step = ir.node(operator, inputs, attributes=attributes or {}, name=name)
        step.metadata_props.update(origin_of(self.node))
        step.outputs[0].name = self.names.fresh(f"{name}_output")
        graph.insert_before(self.node, step)
        return step.outputs[0]

    def convolution(
        self, source: ir.Value, weights: np.ndarray, bias: ir.Value | None, settings: dict[str, Any]
    ) -> ir.Value:
        """Return the convolution with some weights."""
        kernel = {"kernel_shape": list(weights.shape[2:]), "strides": [1] * (weights.ndim - 2)}
        return self.add(
            "Conv", [source, self.constant("weights", weights), *([] if bias is None else [bias])], settings | kernel
        )
