"""What shape rules see and say: shapes with extents, the contents of small integer tensors, one node with both.

A shape is a tuple of extents; an extent that is not known is None, and so is a shape of unknown rank. A rule returns
one shape for each output; what it leaves out, or leaves None, gets a symbol of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np

from graft.core.affine.expressions import Range, Ranges, add, flat, is_at_least, maximum, minimum, multiply
from graft.core.graph.view import NodeView
from graft.runtime.extents import Extent, Operation

Dimension: TypeAlias = "Extent | None"
Shape: TypeAlias = tuple[Dimension, ...]
Known = TypeVar("Known")
MOST_CONTENTS = 64
"""The most elements of a tensor whose contents are followed."""


class UnknownError(Exception):
    """What a rule has to know is not known: it says nothing."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The elements of a small tensor of whole numbers (or truths: 0 and 1), in row-major order; None is unknown.

    Tensors of floats have contents where every element is a whole number.
    """

    shape: tuple[int, ...]
    elements: tuple[Dimension, ...]

    @property
    def known(self) -> tuple[Extent, ...] | None:
        """The elements if all are known."""
        found = tuple(element for element in self.elements if element is not None)
        return found if len(found) == len(self.elements) else None

    def array(self) -> np.ndarray:
        """Return the elements as an array of objects."""
        result = np.empty(len(self.elements), object)
        result[:] = self.elements
        return result.reshape(self.shape)

    @staticmethod
    def of(array: np.ndarray) -> Contents:
        """Return contents from an array of objects or of numbers."""
        elements = (int(one) if isinstance(one, np.generic) else one for one in array.reshape(-1))
        return Contents(array.shape, tuple(elements))


@dataclass(frozen=True, slots=True)
class Facts:
    """A node with what is known of its inputs; both sequences have an entry for each input, absent ones included."""

    view: NodeView
    shapes: Sequence[Shape | None]
    contents: Sequence[Contents | None]
    ranges: Ranges = field(default_factory=dict)
    result: Shape | None = None
    """The shape of the first output, for rules of contents and of identity."""
    output: int = 0
    """The output that a rule of contents is asked for."""

    @property
    def keeps_shape(self) -> bool:
        """Whether the first output has the shape of the first input, and all of it is known."""
        shape = self.shape(0)
        return shape is not None and None not in shape and shape == self.result

    @property
    def outputs(self) -> int:
        """How many outputs the node has."""
        return len(self.view.node.outputs)

    def only(self, index: int) -> Facts:
        """Return the facts as if the node had one input alone."""
        return Facts(
            self.view, self.shapes[index : index + 1], self.contents[index : index + 1], self.ranges, self.result
        )

    def shape(self, index: int) -> Shape | None:
        """Return the shape of input ``index``, None where it is unknown or absent."""
        return self.shapes[index] if index < len(self.shapes) else None

    def known(self, index: int) -> Shape:
        """Return the shape of input ``index``; raise UnknownError where it is unknown or absent."""
        return _given(self.shape(index))

    def extents(self, index: int) -> tuple[Extent, ...]:
        """Return the extents of input ``index``; raise UnknownError where one is unknown or it is absent."""
        shape = self.known(index)
        found = tuple(extent for extent in shape if extent is not None)
        if len(found) < len(shape):
            raise UnknownError
        return found

    def held(self, index: int) -> Contents:
        """Return the contents of input ``index``; raise UnknownError where they are unknown or it is absent."""
        return _given(self.content(index))

    def content(self, index: int) -> Contents | None:
        """Return the contents of input ``index``, None where they are unknown or it is absent."""
        return self.contents[index] if index < len(self.contents) else None

    def has(self, index: int) -> bool:
        """Whether input ``index`` is given."""
        return self.view.input(index) is not None

    def elements(self, index: int, attribute: str = "") -> tuple[Dimension, ...] | None:
        """Return the elements of a small integer input, or else of the attribute that older operators have instead."""
        if self.has(index):
            found = self.content(index)
            return None if found is None else found.elements
        given = self.attribute(attribute) if attribute else None
        return None if given is None else tuple(int(one) for one in np.atleast_1d(given))

    def numbers(self, index: int, attribute: str = "") -> tuple[int, ...] | None:
        """Return the elements of an input, or attribute, if all are numbers."""
        found = self.elements(index, attribute)
        if found is None or not all(isinstance(one, int) for one in found):
            return None
        return tuple(one for one in found if isinstance(one, int))

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute as a Python value."""
        return self.view.attribute(name, default)


def _given(found: Known | None) -> Known:
    if found is None:
        raise UnknownError
    return found


ShapeRule: TypeAlias = Callable[[Facts], "Sequence[Shape | None] | None"]
"""Gives the shapes of the outputs; None, or UnknownError, where nothing is known of them."""
ContentsRule: TypeAlias = Callable[[Facts], "Contents | None"]
IdentityRule: TypeAlias = Callable[[Facts], bool]
"""Whether a node hands on its first input; contents are those of constants alone."""
BoundsRule: TypeAlias = Callable[[Facts, Ranges], "Mapping[Extent, Range]"]
"""Gives the ranges of extents that a node narrows."""


def broadcast(*shapes: Shape | None, ranges: Ranges | None = None) -> Shape | None:
    """Return the shape that operands are brought to; None if the rank of one is unknown."""
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        return None
    rank = max(map(len, known), default=0)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in known]
    return tuple(_joint(column, ranges) for column in zip(*padded, strict=True))


def _joint(extents: Sequence[Dimension], ranges: Ranges | None) -> Dimension:
    result: Dimension = 1
    for extent in extents:
        result = broadcast_extent(result, extent, ranges)
    return result


def broadcast_extent(left: Dimension, right: Dimension, ranges: Ranges | None = None) -> Dimension:
    """Return the extent of an axis that two operands share.

    A number other than 1 is the result. Two extents that are not known to be equal are never taken for one: either may
    be 1 and the other anything, 0 included; the expression says which it is: ``max(a, b)*min(a, b, 1)``. Of more
    operands it has each once, however they are nested. That they fit is checked where it runs.
    """
    for one, other in ((left, right), (right, left)):
        if one == 1:
            return other
        if isinstance(one, int):
            return one
    if left is None or right is None or left == right:
        return left if left == right else None
    if is_at_least(left, 2, ranges):
        return left
    if is_at_least(right, 2, ranges):
        return right
    parts = (*_sharing(left, ranges), *_sharing(right, ranges))
    most, least = maximum(*parts), minimum(*parts)
    if most == least or is_at_least(least, 1, ranges):
        return most
    return multiply(most, minimum(least, 1))


def _sharing(extent: Extent, ranges: Ranges | None) -> tuple[Extent, ...]:
    """Return the extents of which one is that of an axis which they share."""
    match extent:
        case Operation("mul", Operation("max") as most, Operation("min") as least):
            parts, clamped = dict.fromkeys(flat("max", most)), set(flat("min", least)) - {1}
            if clamped <= parts.keys() and all(is_at_least(one, 1, ranges) for one in parts.keys() - clamped):
                return tuple(parts)
    return (extent,)


def total(extents: Sequence[Dimension]) -> Dimension:
    """Return the sum of extents."""
    known = [extent for extent in extents if extent is not None]
    return add(*known) if len(known) == len(extents) else None


def product(extents: Sequence[Dimension]) -> Dimension:
    """Return the product of extents: 0 if one of them is, even where others are unknown."""
    if 0 in extents:
        return 0
    known = [extent for extent in extents if extent is not None]
    return multiply(*known) if len(known) == len(extents) else None


def normal_axis(axis: int, rank: int) -> int:
    """Return an axis counted from the front."""
    return axis + rank if axis < 0 else axis


def replaced(shape: Shape, axis: int, extent: Dimension) -> Shape:
    """Return a shape with another extent along an axis."""
    return (*shape[:axis], extent, *shape[axis + 1 :])
