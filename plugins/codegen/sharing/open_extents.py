"""Kernels over extents that are arguments, so that those which differ in nothing else are one function.

Axes that every tensor of a kernel has side by side are one axis: what is elementwise over tensors of one shape goes
along a single axis, whatever their rank. Its extent is then that of a view which a call passes, and no number in the
kernel. Axes that elements are looked up along in another way (mirrored, shifted, padded) stay, and their extents
numbers, where there are few elements: of many, loops of numbers are up to twice as fast.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import frexp, prod

import numpy as np

from graft.core.machine.machine import Machine
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.column_reduction import CACHED_SHARE
from graft.core.schedule.loops.inline import constant_shape, map_stage, stage_expressions
from graft.core.schedule.loops.tiled_transpose import LARGEST_TILE
from graft.core.tensor_ir.ir import Axis, Binary, Buffer, Constant, Expression, Load, Stage, Variable
from graft.core.tensor_ir.visit import ExpressionMap, free_variables, loads
from graft.core.types import element_bits, storage_dtype
from graft.plugins.codegen.lowered_groups import Lowered
from graft.plugins.codegen.sharing.kernel_structure import structure_of

LEAST, LEAST_INNER = 16, 128
"""What an extent is at least to become an argument, and that of loops inside of others: short ones want to know it."""
FEW = 64
"""Sums that threads share as they are; fewer are split (`graft.core.schedule.strategies.nests.split_reduction`)."""
FEW_TRANSPOSED = 1 << 19
"""Elements of a matrix up to which its extents become arguments where it is transposed."""
FEW_LOOKED_UP = 1 << 14
"""Elements of a kernel that looks some up, up to which its other axes become arguments."""
DIVISORS = ("float32", "float64")
"""Types of numbers that become arguments where something is divided by them."""
Place = tuple[Buffer | Variable, int]
"""An axis of a buffer, or the one of a reduction that a variable counts."""


def with_open_extents(kernels: Sequence[Lowered], machine: Machine) -> list[Lowered]:
    """Return kernels with extents as arguments where that makes one function of at least two."""
    found = [opened(one, machine) for one in kernels]
    arguments = dict[str, set[Hashable]]()
    for one in found:
        if one is not None:
            numbers = (array.tobytes() for array in one.made.values() if array.ndim == 0)
            arguments.setdefault(one.structure, set()).add((*one.shapes.values(), *numbers))
    return [
        one if changed is None or len(arguments[changed.structure]) < 2 else changed
        for one, changed in zip(kernels, found, strict=True)
    ]


def opened(lowered: Lowered, machine: Machine) -> Lowered | None:
    """Return a kernel with its extents as arguments, None where its loops are planned by numbers.

    The shapes that tell the extents are among the result's ``shapes``.
    """
    kernel = lowered.kernel
    if kernel.anchor not in (Trait.ELEMENTWISE, Trait.INJECTIVE, Trait.REDUCTION) or lowered.offsets:
        return None
    axes = _Axes.of(kernel)
    groups = None if axes is None else axes.groups()
    if axes is None or not groups or any(axes.wants_numbers(stage, groups, machine) for stage in kernel.stages):
        return None
    return _Opening(axes, groups).lowered(lowered)


@dataclass(slots=True)
class _Axes:
    """Which axes of a kernel's stages and buffers are the same loop, by union-find."""

    kernel: Kernel
    extents: dict[Place, int] = field(default_factory=dict)
    closed: set[Place] = field(default_factory=set)
    """The loops whose extents stay numbers: elements are looked up along them, or they are read as numbers."""
    _parents: dict[Place, Place] = field(default_factory=dict)

    @classmethod
    def of(cls, kernel: Kernel) -> _Axes | None:
        """Return the axes, None where a stage has an order of its own, or a buffer is not plain."""
        axes = cls(kernel)
        if not all(map(axes._joined, kernel.stages)):
            return None
        axes.closed = set(map(axes.root, axes.closed))
        return axes

    def root(self, place: Place) -> Place:
        """Return the axis that stands for all that are the same."""
        while (parent := self._parents.get(place, place)) != place:
            place = parent
        return place

    def loops(self, buffer: Buffer) -> tuple[Place, ...]:
        """Return the loops that go through a buffer, outermost first."""
        places = ((buffer, number) for number in range(len(buffer.shape)))
        return tuple(self.root(place) for place in places if self.extents[place] > 1)

    def reduced(self, stage: Stage) -> tuple[Place, ...]:
        """Return the loops of a stage's reduction."""
        axes = () if stage.reduction is None else stage.reduction.axes
        places = ((axis.variable, 0) for axis in axes)
        return tuple(self.root(place) for place in places if self.extents[place] > 1)

    def wants_numbers(self, stage: Stage, groups: Sequence[tuple[Place, ...]], machine: Machine) -> bool:
        """Whether loops are planned by numbers: transposing, and of sums of which threads share the terms.

        A matrix of whole tiles is transposed by the same loops whatever its extents, but for blocks of large ones.
        """
        own, reduced = self.loops(stage.buffer), self.reduced(stage)
        read = [self.loops(load.buffer) for load in loads(*stage_expressions(stage))]
        if self.closed and self.size((*own, *reduced)) > FEW_LOOKED_UP:
            return True
        if stage.reduction is None:
            is_transposed = any(set(own[-1:]) & set(loops[:-1]) for loops in read)
            sides = [self.size(group) for group in groups]
            is_even = len(sides) == 2 and not any(side % LARGEST_TILE for side in sides)
            return is_transposed and not (is_even and prod(sides) <= FEW_TRANSPOSED)
        inner = {loops[-1] for loops in read if len(loops) > 1}
        is_split = prod(self.extents[loop] for loop in own) < FEW
        return is_split or not (inner <= set(reduced) or self._stays_cached(stage, own, reduced, machine))

    def _stays_cached(self, stage: Stage, own: Sequence[Place], reduced: Sequence[Place], machine: Machine) -> bool:
        """Whether a sum of few rows is so small that it is no matter in which order memory is read."""
        size = self.size((*own, *reduced)) * element_bits(storage_dtype(stage.value.type.dtype)) // 8
        return self.size(reduced) < LEAST and size <= CACHED_SHARE * machine.working_set(2)

    def size(self, loops: Iterable[Place]) -> int:
        """Return how many elements loops go through together."""
        return prod(self.extents[loop] for loop in loops)

    def _joined(self, stage: Stage) -> bool:
        """Take the axes of a stage and of what it reads; return whether that can be done."""
        if stage.order is not None or not self._known(stage.buffer):
            return False
        places: dict[Expression, Place] = {axis: (stage.buffer, number) for number, axis in enumerate(stage.axes)}
        for axis in () if stage.reduction is None else stage.reduction.axes:
            if not isinstance(axis.extent, Constant):
                return False
            self.extents[axis.variable, 0], places[axis.variable] = int(axis.extent.value), (axis.variable, 0)
        read = loads(*stage_expressions(stage))
        if not all(self._known(load.buffer) for load in read):
            return False
        looked_up = [load.mask for load in read if load.mask is not None]
        for load in read:
            for number, index in enumerate(load.indices):
                place = load.buffer, number
                if self.extents[place] == 1:
                    continue
                if index in places and self.extents[places[index]] == self.extents[place]:
                    self._parents[self.root(place)] = self.root(places[index])
                else:
                    self.closed.add(place)
                    looked_up.append(index)
        beside = map(ExpressionMap(_without_indices), stage_expressions(stage))
        self.closed |= {places[one] for one in free_variables(*looked_up, *beside) if one in places}
        return True

    def _known(self, buffer: Buffer) -> bool:
        shape = constant_shape(buffer)
        if shape is None or 0 in shape or buffer.strides is not None or buffer.memory != "host":
            return False
        self.extents.update({(buffer, number): extent for number, extent in enumerate(shape)})
        return True

    def buffers(self) -> Iterator[Buffer]:
        """Yield the kernel's buffers: those between its stages, too."""
        kernel = self.kernel
        yield from dict.fromkeys((*kernel.outputs, *(stage.buffer for stage in kernel.stages), *kernel.inputs))

    def groups(self) -> list[tuple[Place, ...]] | None:
        """Return the loops, of which those that are side by side everywhere are together; None if one is twice."""
        rows = [*map(self.loops, self.buffers()), *map(self.reduced, self.kernel.stages)]
        if any(len(set(row)) < len(row) for row in rows):
            return None
        behind: dict[Place, set[Place | None]] = {}
        before: dict[Place, set[Place | None]] = {}
        for row in rows:
            for left, right in zip((None, *row), (*row, None), strict=True):
                if left is not None:
                    behind.setdefault(left, set()).add(right)
                if right is not None:
                    before.setdefault(right, set()).add(left)
        groups: list[list[Place]] = []
        for loop in dict.fromkeys(loop for row in rows for loop in row):
            last = groups[-1][-1] if groups else None
            is_open = self.closed.isdisjoint((last, loop))
            if last is not None and is_open and behind[last] == {loop} and before[loop] == {last}:
                groups[-1].append(loop)
            else:
                groups.append([loop])
        return [tuple(group) for group in groups]


@dataclass(slots=True)
class _Opening:
    """The change of a kernel to one axis for each group of loops, whose extents are variables."""

    axes: _Axes
    groups: Sequence[tuple[Place, ...]]
    new: dict[Buffer, Buffer] = field(default_factory=dict)
    numbers: dict[Place, int] = field(init=False)
    extents: list[Expression] = field(init=False)
    bound: set[Variable] = field(default_factory=set)
    divisors: dict[Buffer, np.ndarray] = field(default_factory=dict)
    """Arguments in place of numbers, such as that of the elements that a mean is taken of."""

    def __post_init__(self) -> None:
        self.numbers = {loop: number for number, group in enumerate(self.groups) for loop in group}
        sizes = [self._extent(number) for number in range(len(self.groups))]
        inner = {numbers[-1] for one in self.axes.buffers() if len(numbers := self._numbers(one)) > 1}
        least = [LEAST_INNER if number in inner - self._transposed() else LEAST for number in range(len(sizes))]
        self.extents = [
            b.index(size) if size < least[number] or self.is_closed(number) else Variable(f"extent{number}")
            for number, size in enumerate(sizes)
        ]

    def _transposed(self) -> set[int]:
        """Return the groups that are the last of some buffers and not of others."""
        rows = [numbers for one in self.axes.buffers() if (numbers := self._numbers(one))]
        return {row[-1] for row in rows if any(row[-1] in other[:-1] for other in rows)}

    def is_closed(self, number: int) -> bool:
        """Whether the extent of a group stays a number."""
        return not self.axes.closed.isdisjoint(self.groups[number])

    def lowered(self, lowered: Lowered) -> Lowered | None:
        """Return the kernel changed."""
        kernel = lowered.kernel
        stages = tuple(map(self._stage, kernel.stages))
        if any(not self.bound.issuperset(free_variables(*stage_expressions(stage))) for stage in stages):
            return None
        parameters = (*kernel.inputs, *kernel.outputs)
        shapes, seen = dict[Buffer, tuple[int, ...]](), set[int]()
        for buffer in parameters:
            has = {one for one in self._numbers(buffer) if isinstance(self.extents[one], Variable)} - seen
            if has:
                shapes[self.buffer(buffer)] = tuple(map(self._extent, self._numbers(buffer)))
                seen |= has
        if not shapes:
            return None
        made = replace(
            kernel,
            inputs=(*map(self.buffer, kernel.inputs), *self.divisors),
            outputs=tuple(map(self.buffer, kernel.outputs)),
            stages=stages,
            constants=self._reshaped(kernel.constants),
        )
        contents = {**self._reshaped(lowered.made), **self.divisors}
        inputs = (*lowered.inputs, *(lowered.outputs[0] for _ in self.divisors))
        return replace(lowered, kernel=made, inputs=inputs, made=contents, shapes=shapes, structure=structure_of(made))

    def buffer(self, buffer: Buffer) -> Buffer:
        """Return the buffer over the joint axes."""
        if buffer not in self.new:
            shape = tuple(self.extents[number] for number in self._numbers(buffer))
            self.new[buffer] = replace(buffer, shape=shape)
        return self.new[buffer]

    def _numbers(self, buffer: Buffer) -> tuple[int, ...]:
        return tuple(dict.fromkeys(self.numbers[loop] for loop in self.axes.loops(buffer)))

    def _extent(self, number: int) -> int:
        return prod(self.axes.extents[loop] for loop in self.groups[number])

    def _reshaped(self, arrays: Mapping[Buffer, np.ndarray]) -> dict[Buffer, np.ndarray]:
        return {
            self.buffer(one): array.reshape(tuple(map(self._extent, self._numbers(one))))
            for one, array in arrays.items()
        }

    def _stage(self, stage: Stage) -> Stage:
        own = self._numbers(stage.buffer)
        reduced = tuple(dict.fromkeys(self.numbers[loop] for loop in self.axes.reduced(stage)))
        axes = {number: Variable(f"i{number}") for number in (*own, *reduced)}
        loops = self._variables(stage)
        axes |= {
            self.numbers[loop]: one for one, loop in loops.items() if loop in self.axes.closed & self.numbers.keys()
        }
        self.bound |= {*axes.values(), *([] if stage.epilogue_variable is None else [stage.epilogue_variable])}

        def rule(node: Expression) -> Expression:
            if isinstance(node, Variable) and node in loops and self.axes.extents[loops[node]] == 1:
                return b.index(0)
            if isinstance(node, Binary) and node.operator == "div" and isinstance(node.right, Constant):
                return replace(node, right=self._divisor(node.right))
            if not isinstance(node, Load):
                return node
            places = enumerate(node.indices)
            looked_up = (one for number, one in places if self.axes.extents[node.buffer, number] > 1)
            indices = dict(zip(map(self.numbers.__getitem__, self.axes.loops(node.buffer)), looked_up, strict=True))
            found = (indices[one] if self.is_closed(one) else axes[one] for one in self._numbers(node.buffer))
            return Load(self.buffer(node.buffer), tuple(found), node.mask)

        made = map_stage(stage, ExpressionMap(rule))
        if made.reduction is not None:
            over = tuple(Axis(axes[number], self.extents[number]) for number in reduced)
            made = replace(made, reduction=replace(made.reduction, axes=over))
        structure = stage.structure if stage.reduction is None else None
        return replace(
            made, buffer=self.buffer(stage.buffer), axes=tuple(axes[number] for number in own), structure=structure
        )

    def _divisor(self, number: Constant) -> Expression:
        """Return an argument for a divisor, unless dividing by it is a product for code that knows it.

        Factors stay: which product is fused with a sum would depend on whether one is known.
        """
        if number.type.dtype not in DIVISORS or abs(frexp(number.value)[0]) == 0.5:
            return number
        argument = Buffer(f"divisor{len(self.divisors)}", number.type.dtype, ())
        self.divisors[argument] = np.array(number.value, number.type.dtype)
        return Load(argument, ())

    def _variables(self, stage: Stage) -> dict[Variable, Place]:
        """Return which loop each variable of a stage counts."""
        places: dict[Variable, Place] = {axis: (stage.buffer, number) for number, axis in enumerate(stage.axes)}
        places |= {axis.variable: (axis.variable, 0) for axis in (stage.reduction.axes if stage.reduction else ())}
        return {variable: self.axes.root(place) for variable, place in places.items()}


def _without_indices(node: Expression) -> Expression:
    return Load(node.buffer, ()) if isinstance(node, Load) else node
