"""Shapes of sums of products: matrices, Einstein sums, attention, recurrent layers, Fourier transforms."""

from __future__ import annotations

from graft.core.affine.expressions import Ranges, add, floordiv, multiply, subtract
from graft.core.operators.definition.facts import Dimension, Facts, Shape, broadcast, broadcast_extent, total


def matrix_product(left: Shape | None, right: Shape | None, ranges: Ranges) -> Shape | None:
    """Return the shape of a product of stacks of matrices; a vector is a row on the left, a column on the right."""
    if left is None or right is None or not left or not right:
        return None
    rows = left[-2:-1] if len(left) > 1 else ()
    columns = right[-1:] if len(right) > 1 else ()
    stack = broadcast(left[:-2], right[:-2], ranges=ranges)
    return None if stack is None else (*stack, *rows, *columns)


def matmul(facts: Facts) -> list[Shape | None]:
    """A product of stacks of matrices."""
    return [matrix_product(facts.shape(0), facts.shape(1), facts.ranges)]


def quantized_matmul(facts: Facts) -> list[Shape | None]:
    """A product of stacks of matrices with scales and zero points."""
    return [matrix_product(facts.shape(0), facts.shape(3), facts.ranges)]


def gemm(facts: Facts) -> list[Shape | None]:
    """A product of matrices that may be transposed."""
    left, right = facts.shape(0), facts.shape(1)
    if left is None or right is None:
        return [(None, None)]
    return [(left[1 if facts.attribute("transA", 0) else 0], right[0 if facts.attribute("transB", 0) else 1])]


def einsum(facts: Facts) -> list[Shape | None]:
    """The extents of the letters of the result."""
    equation = facts.attribute("equation").replace(" ", "")
    terms, arrow, result = equation.partition("->")
    letters = terms.split(",")
    shapes = [facts.known(number) for number in range(len(facts.shapes))]
    if len(letters) != len(shapes):
        return []
    extents: dict[str, Dimension] = {}
    dots: list[Shape] = []
    for term, shape in zip(letters, shapes, strict=True):
        before, ellipsis, after = term.partition("...")
        middle = len(shape) - len(before) - len(after)
        if ellipsis:
            dots.append(shape[len(before) : len(before) + middle])
        pairs = [*zip(before, shape, strict=False), *zip(after, shape[len(before) + middle :], strict=False)]
        for letter, extent in pairs:
            extents[letter] = broadcast_extent(extents.get(letter, 1), extent, facts.ranges)
    if not arrow:
        result = ("..." if dots else "") + "".join(sorted(one for one in extents if terms.count(one) == 1))
    before, ellipsis, after = result.partition("...")
    stack = broadcast(*dots, ranges=facts.ranges) if ellipsis else ()
    return [] if stack is None else [(*(extents[one] for one in before), *stack, *(extents[one] for one in after))]


def attention(facts: Facts) -> list[Shape | None]:
    """Return the shapes of the result, of present keys and values, and of the scores."""
    query, key, value = facts.known(0), facts.known(1), facts.known(2)
    heads, shared = facts.attribute("q_num_heads"), facts.attribute("kv_num_heads")
    split, keys, values = query, key, value
    if len(query) == 4:
        whole: Shape = (*query[:3], value[3])
    else:
        split, keys, values = _split(query, heads), _split(key, shared), _split(value, shared)
        last = values[3]
        whole = (query[0], query[1], None if last is None else multiply(heads, last))
    past = facts.shape(4)
    if facts.has(4) and past is None:
        return [whole]
    length = total((keys[2], past[2])) if past is not None else keys[2]
    present_key, present_value = (*keys[:2], length, keys[3]), (*values[:2], length, values[3])
    return [whole, present_key, present_value, (*split[:3], length)]


def _split(shape: Shape, heads: int) -> Shape:
    """Return the shape with the heads as an axis of their own, before the positions."""
    batch, length, features = shape
    return batch, heads, length, None if features is None else floordiv(features, heads)


def recurrent(facts: Facts) -> list[Shape | None]:
    """Return the shapes of all hidden states, of the last one, and of the last cell."""
    x, recurrence = facts.known(0), facts.known(2)
    hidden: Dimension = facts.attribute("hidden_size", recurrence[2])
    directions = 2 if facts.attribute("direction", "forward") == "bidirectional" else 1
    if facts.attribute("layout", 0):
        last: Shape = (x[0], directions, hidden)
        return [(x[0], x[1], directions, hidden), last, last]
    last = (directions, x[1], hidden)
    return [(x[0], directions, x[1], hidden), last, last]


def short_time_transform(facts: Facts) -> list[Shape | None]:
    """Return the shape of an STFT: frames that fit into the signal, and the points, or half of them, of each."""
    signal, steps, window, lengths = facts.known(0), facts.numbers(1), facts.shape(2), facts.numbers(3)
    length = lengths[0] if lengths else window[0] if window else None
    if not steps or not isinstance(length, int):
        return []
    count = None if signal[1] is None else add(floordiv(subtract(signal[1], length), steps[0]), 1)
    return [(signal[0], count, length // 2 + 1 if facts.attribute("onesided", 1) else length, 2)]


def fourier_transform(facts: Facts) -> list[Shape | None]:
    """Return the shape of a DFT: its points, or half of them, along the axis, with two parts each, or one."""
    signal, lengths, axes = facts.known(0), facts.elements(1), facts.numbers(2)
    given = facts.view.input(2)
    place = facts.attribute("axis", -2) if given is None else axes[0] if axes else None
    if not isinstance(place, int):
        return []
    place, is_half, is_inverse = place % len(signal), facts.attribute("onesided", 0), facts.attribute("inverse", 0)
    extent = signal[place]
    if facts.view.input(1) is not None:
        length = lengths[0] if lengths else None
    elif extent is not None and is_half and is_inverse:
        length = multiply(2, subtract(extent, 1))
    else:
        length = extent
    if length is not None and is_half and not is_inverse:
        length = add(floordiv(length, 2), 1)
    return [(*signal[:place], length, *signal[place + 1 : -1], 1 if is_half and is_inverse else 2)]
