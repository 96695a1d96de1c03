"""Random sums of products for the template: products and convolutions of many forms, with extents known or open."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Lowering, Trait
from graft.core.operators.products.contraction import element, product
from graft.core.schedule.kernel import Kernel
from graft.core.tensor_ir.interpreting.interpreter import static_value
from graft.core.tensor_ir.ir import Buffer, Stage, Variable


@dataclass
class Case:
    """A kernel, and what its open extents may be together."""

    kernel: Kernel
    values: list[dict[Variable, int]]

    def shape(self, buffer: Buffer, values: dict[Variable, int]) -> tuple[int, ...]:
        """Return the shape of a buffer where the open extents have these values."""
        return tuple(static_value(extent, values) for extent in buffer.shape)


def _buffer(name: str, shape: list[int | Variable]) -> Buffer:
    return Buffer(name, "float32", tuple(one if isinstance(one, Variable) else b.index(one) for one in shape))


def _kernel(
    draw: random.Random, stages: list[Stage], inputs: list[Buffer], out: Buffer, trait: Trait, node: NodeView | None
) -> Kernel:
    """Return a kernel of stages, the last of which is the sum; something may be fused behind it."""
    anchor, result = len(stages) - 1, out
    if draw.random() < 0.5:
        result, other = Buffer("result", "float32", out.shape), Buffer("other", "float32", out.shape)
        heavy = draw.random() < 0.3

        def behind(i: list[Variable]) -> object:
            total = b.add(b.load(out, *i), b.load(other, *i))
            return b.intrinsic("tanh", b.intrinsic("exp", total)) if heavy else b.maximum(total, 0)

        stages, inputs = [*stages, b.compute(result, behind)], [*inputs, other]
    weights = inputs[1]
    is_known = not any(isinstance(one, Variable) for one in weights.shape) and draw.random() < 0.7
    numbers = np.random.default_rng(draw.randrange(1000)).integers(-3, 4, b.dims(weights)) if is_known else None
    constants = {} if numbers is None else {weights: numbers.astype(np.float32)}
    return Kernel("kernel", tuple(inputs), (result,), tuple(stages), trait, node, anchor, constants)


def random_product(draw: random.Random, is_open: bool) -> Case:
    """Return a product of matrices, perhaps of several, of which rows and their number may be open."""
    m, batch = Variable("m"), Variable("batch")
    rows: int | Variable = m if is_open else draw.randint(1, 9)
    many: list[int | Variable] = draw.choice([[], [], [draw.randint(1, 3)], [batch if is_open else 2]])
    depth, columns = draw.randint(1, 9), draw.randint(1, 21)
    left = _buffer("x", [*many, rows, depth])
    right = _buffer("w", [*draw.choice([many, []]), depth, columns])
    out = _buffer("y", [*many, rows, columns])
    sums = product(
        out, (b.extents(left), element(left, "float32")), (b.extents(right), element(right, "float32")), "float32"
    )
    kernel = _kernel(draw, [sums], [left, right], out, Trait.CONTRACTION, None)
    return Case(kernel, [{m: 0, batch: 2}, {m: 1, batch: 1}, {m: 5, batch: 0}, {m: 7, batch: 3}] if is_open else [{}])


def random_convolution(draw: random.Random, is_open: bool) -> Case:
    """Return a convolution of one to three axes; the number of images and the first axis may be open."""
    rank, groups = draw.randint(1, 3), draw.choice([1, 1, 1, 2, 3])
    own = 1 if groups > 1 and draw.random() < 0.5 else draw.randint(1, 3)
    channels, filters = groups * own, groups * draw.randint(1, 4 if groups > 1 else 9)
    window = [draw.choice([1, 2, 3, 5]) for _ in range(rank)]
    dilations = [draw.choice([1, 1, 2]) for _ in range(rank)]
    strides = [draw.choice([1, 1, 2]) for _ in range(rank - 1)] + [1]
    begins, ends = ([draw.randint(0, size - 1) for size in window] for _ in range(2))
    reach = [dilation * (size - 1) + 1 for dilation, size in zip(dilations, window, strict=True)]
    source = [
        max(1, size - begin - end) + draw.randint(0, 6) for size, begin, end in zip(reach, begins, ends, strict=True)
    ]

    def results(extents: list[int]) -> list[int]:
        padded = [extent + begin + end for extent, begin, end in zip(extents, begins, ends, strict=True)]
        return [(whole - size) // step + 1 for whole, size, step in zip(padded, reach, strides, strict=True)]

    images, height, high = Variable("images"), Variable("height"), Variable("high")
    number: int | Variable = images if is_open else draw.randint(1, 2)
    opened = is_open and rank > 1 and draw.random() < 0.7
    given, made = list[int | Variable](source), list[int | Variable](results(source))
    if opened:
        given[0], made[0] = height, high
    attributes = {"pads": begins + ends, "dilations": dilations, "strides": strides, "group": groups}
    proto = onnx.helper.make_node("Conv", ["x", "w"], ["y"], name="conv", **attributes)
    node = NodeView(ir.from_proto(proto))
    x, w = _buffer("x", [number, channels, *given]), _buffer("w", [filters, own, *window])
    y = _buffer("y", [number, filters, *made])
    operator = OPERATORS.get("Conv")
    assert operator is not None and operator.lower is not None
    kernel = _kernel(draw, list(operator.lower(Lowering(node, (x, w), (y,)))), [x, w], y, Trait.CONVOLUTION, node)
    heights = [source[0] + more for more in (0, 1, 4)]
    values = [
        {images: count, height: tall, high: results([tall, *source[1:]])[0]}
        for count, tall in zip((2, 0, 1), heights, strict=True)
    ]
    return Case(kernel, values if is_open else [{}])


def random_sum(draw: random.Random) -> Case:
    """Return a random kernel, of which extents are open in half of all."""
    return draw.choice([random_product, random_convolution, random_convolution])(draw, draw.random() < 0.5)
