"""Convolutions of small images by computed weights as one product for all images (im2col over the batch).

A convolution reads its weights once for each image, which is what takes the time where an image has few pixels and
weights are more than a core's cache holds: in the step of a training, say. Constant weights are packed, and stay.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graft.core.machine.machine import Machine
from graft.core.operators.definition.table import Trait
from graft.core.operators.images.windows import patch_places
from graft.core.rewriting.node_pass import Names
from graft.core.rewriting.node_rewrite import attribute_of, constant_of, has_trait, static_shape
from graft.core.rewriting.writer import Writer
from graft.core.tensor_ir.anchors import outweighs

NAME = "patches"
"""The switch (`graft.core.machine.target.OPTIMISATIONS`)."""
CACHES = 4
"""Weights are worth one product from so many times a core's cache on: each thread reads a part of them."""
MOST_PIXELS = 64
"""Pixels of a result's image up to which weights, and not patches, are what is read."""
FLOAT = ir.DataType.FLOAT


@dataclass(frozen=True, slots=True)
class Convolution:
    """Extents of a convolution without groups: ``source`` is the image, padded, ``target`` the result."""

    source: tuple[int, ...]
    weights: tuple[int, ...]
    target: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]


def small_convolutions(nodes: Iterable[ir.Node], machine: Machine) -> list[tuple[ir.Node, Convolution]]:
    """Return the convolutions that are to be products on a machine."""
    if machine.is_device or not machine.caches:
        return []
    least = CACHES * machine.working_set(2)
    return [(node, found) for node in nodes if (found := _convolution(node, least)) is not None]


def gather_patches(model: ir.Model, wanted: Iterable[tuple[ir.Node, Convolution]]) -> None:
    """Put products in the place of convolutions of a model."""
    names = Names(model)
    for node, found in wanted:
        _rewrite(Writer(node, names), found)


def _convolution(node: ir.Node, least: int) -> Convolution | None:
    """Return the extents of a convolution of small images by at least so many bytes of computed weights."""
    is_plain = has_trait(node, Trait.CONVOLUTION) and node.domain in ("", "ai.onnx")
    if not is_plain or node.outputs[0].dtype != FLOAT or constant_of(node.inputs[1]) is not None:
        return None
    image, weights, result = map(static_shape, (node.inputs[0], node.inputs[1], node.outputs[0]))
    mode, groups = attribute_of(node, "auto_pad", "NOTSET"), attribute_of(node, "group", 1)
    if image is None or weights is None or result is None or mode != "NOTSET" or groups != 1:
        return None
    if outweighs(weights[2:], result[2:]):
        return None
    if image[0] < 2 or not 0 < math.prod(result[2:]) <= MOST_PIXELS or 4 * math.prod(weights) < least:
        return None
    rank = len(image) - 2
    pads = tuple(attribute_of(node, "pads", None) or [0] * (2 * rank))
    strides, dilations = (tuple(attribute_of(node, key, None) or [1] * rank) for key in ("strides", "dilations"))
    sides = zip(image[2:], pads[:rank], pads[rank:], strict=True)
    padded = (*image[:2], *(extent + begin + end for extent, begin, end in sides))
    return Convolution(padded, weights, result, strides, dilations, pads)


def _rewrite(steps: Writer, conv: Convolution) -> None:
    """Put the product of the weights and the patches of all images in the place of a convolution."""
    image, weights, *bias = steps.node.inputs
    (batch, channels), outputs = conv.source[:2], conv.weights[0]
    rank, terms, columns = len(conv.strides), math.prod(conv.weights[1:]), batch * math.prod(conv.target[2:])

    def shaped(value: ir.Value, *shape: int) -> ir.Value:
        return steps.emit("Reshape", [value, steps.ints(*shape)], FLOAT, shape)

    def exchanged(value: ir.Value, shape: tuple[int, ...]) -> ir.Value:
        """Return a value of a shape with its first two axes exchanged."""
        order = [1, 0, *range(2, 2 + rank)]
        return steps.emit("Transpose", [value], FLOAT, [shape[axis] for axis in order], perm=order)

    assert image is not None and weights is not None
    if any(conv.pads):
        sides = steps.ints(0, 0, *conv.pads[:rank], 0, 0, *conv.pads[rank:])
        image = steps.emit("Pad", [image, sides], FLOAT, conv.source)
    patches = shaped(exchanged(image, conv.source), channels, batch * math.prod(conv.source[2:]))
    extents = conv.source[2:], conv.weights[2:], conv.target[2:]
    places = patch_places(batch, *extents, conv.strides, conv.dilations).reshape(-1)
    if not np.array_equal(places, np.arange(batch * math.prod(conv.source[2:]))):
        patches = steps.emit(
            "Gather", [patches, steps.constant("places", places)], FLOAT, [channels, places.size], axis=1
        )
    found = steps.emit(
        "MatMul", [shaped(weights, outputs, terms), shaped(patches, terms, columns)], FLOAT, [outputs, columns]
    )
    if bias and bias[0] is not None:
        found = steps.emit("Add", [found, shaped(bias[0], outputs, 1)], FLOAT, [outputs, columns])
    whole = outputs, batch, *conv.target[2:]
    steps.replace(exchanged(shaped(found, *whole), whole))
