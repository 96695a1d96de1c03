"""The extents of a node's inputs that must agree, where neither inference nor ONNX's checker compares them.

One row per operator: what it wants of the shapes of its inputs beside each other. Extents that are no numbers are left
aside, and so are inputs of unknown rank. A kernel reads as far as the first input says: a shorter one would be
read beyond its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from graft.core.graph.view import NodeView

Extent = int | str | None
Wanted = tuple[int, tuple[Extent, ...]]
"""An input and the shape that it must have; None is any extent."""
Rule = Callable[[NodeView], str | None]


def _shape(node: NodeView, number: int) -> tuple[Extent, ...]:
    """Return the shape of an input, () where it is absent or of unknown rank."""
    value = node.input(number)
    return () if value is None or value.shape is None else tuple(value.shape)


def _agree(wanted: Callable[[NodeView], Iterator[Wanted]]) -> Rule:
    """Return the rule that inputs have the shapes that ``wanted`` yields."""

    def rule(node: NodeView) -> str | None:
        for number, shape in wanted(node):
            value, own = node.input(number), _shape(node, number)
            if value is None or value.shape is None:
                continue
            if len(own) != len(shape) or any(_differ(one, other) for one, other in zip(own, shape, strict=True)):
                return f"'{value.name}' has shape {_text(own)} where its other inputs want {_text(shape)}"
        return None

    return rule


def _differ(one: Extent, other: Extent) -> bool:
    return isinstance(one, int) and isinstance(other, int) and one != other


def _text(shape: Sequence[Extent]) -> str:
    return f"[{','.join('?' if extent is None else str(extent) for extent in shape)}]"


def _times(extent: Extent, factor: int) -> Extent:
    return extent * factor if isinstance(extent, int) else None


# ---- Operators ----------------------------------------------------------------------------------------------------


def _bias(number: int, weights: int) -> Callable[[NodeView], Iterator[Wanted]]:
    """A bias has an element for each output channel of the weights."""

    def wanted(node: NodeView) -> Iterator[Wanted]:
        if shape := _shape(node, weights):
            yield number, (shape[0],)

    return wanted


def _transposed(node: NodeView) -> Iterator[Wanted]:
    if len(shape := _shape(node, 1)) > 1:
        yield 2, (_times(shape[1], node.attribute("group", 1)),)


def _channels(node: NodeView) -> Iterator[Wanted]:
    """Scale and bias of a normalisation have an element for each channel."""
    if len(shape := _shape(node, 0)) > 1:
        yield from ((1, (shape[1],)), (2, (shape[1],)))


def _deformed(node: NodeView) -> Iterator[Wanted]:
    image, weights = _shape(node, 0), _shape(node, 1)
    if image and len(weights) > 2:
        window: Extent = node.attribute("offset_group", 1)
        for extent in weights[2:]:
            window = window * extent if isinstance(window, int) and isinstance(extent, int) else None
        places = [None] * (len(image) - 2)
        yield 2, (image[0], _times(window, len(image) - 2), *places)
        yield 3, (weights[0],)
        yield 4, (image[0], window, *places)


def _recurrent(gates: int) -> Callable[[NodeView], Iterator[Wanted]]:
    """Weights, bias, lengths, states and peepholes of a recurrent layer."""

    def wanted(node: NodeView) -> Iterator[Wanted]:
        image, weights = _shape(node, 0), _shape(node, 1)
        if len(image) != 3 or len(weights) != 3:
            return
        by_batch = bool(node.attribute("layout", 0))
        batch, directions = image[0 if by_batch else 1], weights[0]
        rows, hidden = weights[1], weights[1] // gates if isinstance(weights[1], int) else None
        state = (batch, directions, hidden) if by_batch else (directions, batch, hidden)
        yield 1, (directions, _times(hidden, gates), image[2])
        yield 2, (directions, rows, hidden)
        yield 3, (directions, _times(rows, 2))
        yield 4, (batch,)
        yield 5, state
        yield 6, state
        yield 7, (directions, _times(hidden, 3))

    return wanted


def _reversed(node: NodeView) -> Iterator[Wanted]:
    if len(shape := _shape(node, 0)) > 1:
        yield 1, (shape[node.attribute("batch_axis", 1)],)


def _updates(node: NodeView) -> Iterator[Wanted]:
    if shape := _shape(node, 1):
        yield 2, shape


def _attended(node: NodeView) -> Iterator[Wanted]:
    """Batches of queries, keys and values agree, and so do heads and lengths of keys and values."""
    queries, keys = _shape(node, 0), _shape(node, 1)
    if len(queries) == len(keys) == 4:
        yield 1, (queries[0], None, None, queries[3])
        yield 2, (queries[0], keys[1], keys[2], None)
    elif len(queries) == len(keys) == 3:
        yield 1, (queries[0], None, None)
        yield 2, (queries[0], keys[1], None)


def _sum_of_product(node: NodeView) -> str | None:
    """The third operand of Gemm broadcasts to the product of the others."""
    a, c, shape = _shape(node, 0), _shape(node, 1), _shape(node, 2)
    if len(a) != 2 or len(c) != 2 or node.input(2) is None:
        return None
    product = (a[1 if node.attribute("transA", 0) else 0], c[0 if node.attribute("transB", 0) else 1])
    tail = product[2 - len(shape) :] if len(shape) <= 2 else ()
    if len(shape) > 2 or any(one != 1 and _differ(one, other) for one, other in zip(shape, tail, strict=True)):
        return f"its third input has shape {_text(shape)}, which does not broadcast to {_text(product)}"
    return None


def _chosen(node: NodeView) -> str | None:
    """Indices of GatherElements reach no further than the data along any axis but its own."""
    data, places = _shape(node, 0), _shape(node, 1)
    axis = node.attribute("axis", 0) % max(len(data), 1)
    for number, (extent, most) in enumerate(zip(places, data, strict=False)):
        if number != axis and isinstance(extent, int) and isinstance(most, int) and extent > most:
            return f"its indices have shape {_text(places)}, more along axis {number} than the data, {_text(data)}"
    return None


def _scaled(node: NodeView) -> str | None:
    """A scale for each position along an axis has as many elements as that."""
    data, scale = _shape(node, 0), _shape(node, 1)
    if len(scale) != 1 or scale[0] == 1 or not data or node.attribute("block_size", 0):
        return None
    axis = node.attribute("axis", 1) % len(data)
    if _differ(scale[0], data[axis]):
        return f"it has {scale[0]} scales for axis {axis} of extent {data[axis]}"
    return None


EXTENTS: dict[str, tuple[Rule, ...]] = {
    "Attention": (_agree(_attended),),
    "Conv": (_agree(_bias(2, 1)),),
    "ConvTranspose": (_agree(_transposed),),
    "DeformConv": (_agree(_deformed),),
    "DequantizeLinear": (_scaled,),
    "GRU": (_agree(_recurrent(3)),),
    "GatherElements": (_chosen,),
    "Gemm": (_sum_of_product,),
    "GroupNormalization": (_agree(_channels),),
    "InstanceNormalization": (_agree(_channels),),
    "LSTM": (_agree(_recurrent(4)),),
    "QLinearConv": (_agree(_bias(8, 3)),),
    "QuantizeLinear": (_scaled,),
    "RNN": (_agree(_recurrent(1)),),
    "ReverseSequence": (_agree(_reversed),),
    "ScatterElements": (_agree(_updates),),
}
"""By operator, what the shapes of its inputs must fulfil beside each other."""
