"""What a stage is: a closed set of structures that lowerings state and schedules read.

A stage says by itself what it computes; its structure says what that is called and which axis plays which part, as
plain data. So nobody finds out again by rebuilding an expression and comparing. Parts are given by numbers of axes:
whoever permutes axes permutes the numbers (`Window.with_image`, `Window.with_result`), whoever changes more than that
weakens the structure (a `Window` whose image is read through something else is still a `Contraction`).

Invariants, checked by `verify_stages`:

1. `Contraction` and `Window`: a reduction by ``add`` of a product, whose operands are the factors. An axis that only
   one factor depends on is a row or a column, one that both do is of a batch; the reduction's are the terms.
2. `Window`: the axes of the stage are those of ``result``, those of its reduction those of ``reduced``, with the
   extents that ``windows``, ``groups``, ``inputs`` and ``outputs`` give.
3. `Pooling`: a reduction over the window's axes. `RowReduction`: a reduction. `Elementwise`: none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

Side = Literal["left", "right"]
FEW_INPUTS = 4
"""So many channels, as those of a picture, fill no vector."""
LARGER = 4
"""How many times more elements than a result has pixels windows have that outweigh it."""
VARIES = -1
"""The extent of a spatial dimension that is known only when a kernel runs."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows over the spatial dimensions: extents of input, kernel and output, strides, dilations, leading pads.

    Everything counts elements; ``ends`` are the trailing pads as the node gives them. Extents of input and output may
    be `VARIES`; there ``ends`` are how far windows reach behind the input at the most.
    """

    source: tuple[int, ...]
    kernel: tuple[int, ...]
    target: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def rank(self) -> int:
        """The number of spatial dimensions."""
        return len(self.source)

    def last(self, d: int) -> int:
        """Return the largest position that any window reads in dimension ``d``."""
        return (self.target[d] - 1) * self.strides[d] + (self.kernel[d] - 1) * self.dilations[d] - self.begins[d]

    def varies(self, d: int) -> bool:
        """Whether an extent of dimension ``d`` is known only when a kernel runs."""
        return VARIES in (self.source[d], self.target[d])

    @property
    def is_open(self) -> bool:
        """Whether any extent is known only when a kernel runs."""
        return any(map(self.varies, range(self.rank)))

    def passes(self, d: int, pad: int = 0) -> bool:
        """Whether a window may read behind the input and ``pad`` elements more in dimension ``d``."""
        return self.ends[d] > pad if self.varies(d) else self.last(d) >= self.source[d] + pad

    @property
    def leaves(self) -> bool:
        """Whether some window leaves the input."""
        return any(self.begins[d] > 0 or self.passes(d) for d in range(self.rank))

    @property
    def are_points(self) -> bool:
        """Whether each window is the element in its own place."""
        return all(
            (self.kernel[d], self.strides[d], self.begins[d]) == (1, 1, 0) and not self.passes(d)
            for d in range(self.rank)
        )


@dataclass(frozen=True, slots=True)
class Contraction:
    """A sum of products of two factors."""


@dataclass(frozen=True, slots=True)
class Window:
    """A sum of products of weights and of what windows see of an image.

    An image has a batch, channels, and the spatial axes, whose numbers are 0, 1, and 2 and more. ``layout`` lists these
    numbers in the order in which the buffer of the image has the axes: ``(0, 2, 3, 1)`` is NHWC; ``result`` in that of
    the stage's axes. ``image`` is the factor that reads the image; the other one reads the weights, by output channel,
    input channel of the group, and position in the window. ``reduced`` lists the reduction's axes: 0 is the input
    channel of a group, 1 and more are the window's. ``inputs`` and ``outputs`` count the channels of one group.
    """

    image: Side
    windows: Windows
    groups: int
    inputs: int
    outputs: int
    layout: tuple[int, ...]
    result: tuple[int, ...]
    reduced: tuple[int, ...]

    @property
    def is_depthwise(self) -> bool:
        """Whether each output channel is computed from the one input channel of its number."""
        return self.inputs == self.outputs == 1

    @property
    def is_pointwise(self) -> bool:
        """Whether each pixel is computed from the one in its place, from all its channels."""
        return self.groups == 1 and self.windows.are_points

    @property
    def is_first(self) -> bool:
        """Whether all of few channels are summed, as by the first convolution of a network."""
        return self.groups == 1 and self.inputs <= FEW_INPUTS

    @property
    def reads_channels_last(self) -> bool:
        """Whether the image is NHWC (or has one, or three, spatial axes before its channels)."""
        return self.layout == _channels_last(len(self.layout))

    @property
    def reads_channels_first(self) -> bool:
        """Whether the image is NCHW."""
        return self.layout == tuple(range(len(self.layout)))

    @property
    def stores_channels_last(self) -> bool:
        """Whether the result is NHWC."""
        return self.result == _channels_last(len(self.result))

    @property
    def stores_channels_first(self) -> bool:
        """Whether the result is NCHW."""
        return self.result == tuple(range(len(self.result)))

    @property
    def extents(self) -> tuple[int, ...]:
        """The extents of the reduction's axes."""
        every = (self.inputs, *self.windows.kernel)
        return tuple(every[axis] for axis in self.reduced)

    def with_image(self, order: Sequence[int]) -> Window:
        """Return the window over an image whose axis ``i`` was ``order[i]`` before."""
        return replace(self, layout=tuple(self.layout[axis] for axis in order))

    def with_result(self, order: Sequence[int]) -> Window:
        """Return the window into a result whose axis ``i`` was ``order[i]`` before."""
        return replace(self, result=tuple(self.result[axis] for axis in order))


@dataclass(frozen=True, slots=True)
class Pooling:
    """A reduction of what windows see of an image ``[n, c, ...]``, each channel by itself."""

    windows: Windows


@dataclass(frozen=True, slots=True)
class RowReduction:
    """A reduction over whole axes of a tensor: ``axes`` are their numbers there."""

    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Elementwise:
    """Each element is computed from elements at its own (broadcast) index."""


Structure: TypeAlias = Contraction | Window | Pooling | RowReduction | Elementwise
STRUCTURES: dict[str, type[Structure | Windows]] = {
    "contraction": Contraction,
    "window": Window,
    "pooling": Pooling,
    "row_reduction": RowReduction,
    "elementwise": Elementwise,
    "windows": Windows,
}
"""The structures, and what they are made of, by their names in the text form."""


def outweighs(kernel: Sequence[int], target: Sequence[int]) -> bool:
    """Whether a window has by far more elements than the result has pixels: what patches of it would hold, then."""
    return math.prod(kernel) >= LARGER * math.prod(target)


def weakened(structure: Structure | None) -> Structure | None:
    """Return what is left of a structure when axes are joined, or an image is read through something else."""
    return Contraction() if isinstance(structure, Window) else structure


def _channels_last(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1)
