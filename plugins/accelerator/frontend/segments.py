"""Layers in groups, each of which is one program: what one reads in another form than it is made goes through the host.

Inside a program every tensor lies in DRAM in one form. The right-hand side of a product lies as weights do, and
a tensor that a layer reads with other extents or another scale than its maker's is another one: such a reader goes to
a later program, whose border packs the tensor anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from graft.plugins.accelerator.frontend.layers import Activation, Addition, Concatenation, Layer, Product, inputs_of


@dataclass(frozen=True, slots=True)
class Segment:
    """The layers of one program; ``inputs`` are names in it with the tensors that they are, ``outputs`` tensors."""

    layers: tuple[Layer, ...]
    inputs: Mapping[str, str]
    outputs: tuple[str, ...]


def segments_of(layers: Sequence[Layer], wanted: Iterable[str]) -> list[Segment]:
    """Return the layers, in order, in as few groups as can be; ``wanted`` tensors are outputs of the whole."""
    numbers: dict[str, int] = {}
    made: dict[str, Activation] = {}
    groups: list[list[Layer]] = []
    for layer in layers:
        number = max((_number(layer, one, made, numbers) for one in inputs_of(layer)), default=0)
        numbers[layer.output.name], made[layer.output.name] = number, layer.output
        groups.extend([] for _ in range(number + 1 - len(groups)))
        groups[number].append(layer)
    found, needed = [], set(wanted)
    for group in reversed(groups):
        segment = _segment(group, needed)
        needed |= set(segment.inputs.values())
        found.append(segment)
    return found[::-1]


def _number(layer: Layer, one: Activation, made: Mapping[str, Activation], numbers: Mapping[str, int]) -> int:
    maker = made.get(one.name)
    if maker is None:
        return 0
    is_weights = isinstance(layer, Product) and isinstance(layer.right, Activation) and layer.right == one
    return numbers[one.name] + int(is_weights or maker != one)


@dataclass(slots=True)
class _Names:
    """Names inside a program: a tensor from outside that is read in two forms has two."""

    inside: frozenset[str]
    forms: dict[str, list[Activation]] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)

    def of(self, one: Activation) -> Activation:
        """Return a tensor under the name that it has in the program."""
        if one.name in self.inside:
            return one
        forms = self.forms.setdefault(one.name, [])
        if one not in forms:
            forms.append(one)
        number = forms.index(one)
        name = f"{one.name}~{number}" if number else one.name
        self.inputs[name] = one.name
        return replace(one, name=name)


def _segment(group: Sequence[Layer], needed: set[str]) -> Segment:
    names = _Names(frozenset(layer.output.name for layer in group))
    layers = tuple(_renamed(layer, names) for layer in group)
    outputs = tuple(layer.output.name for layer in group if layer.output.name in needed)
    return Segment(layers, names.inputs, outputs)


def _renamed(layer: Layer, names: _Names) -> Layer:
    match layer:
        case Product(left=left, right=Activation() as right):
            return replace(layer, left=names.of(left), right=names.of(right))
        case Product(left=left):
            return replace(layer, left=names.of(left))
        case Concatenation(inputs=inputs):
            return replace(layer, inputs=tuple(names.of(one) for one in inputs))
        case Addition():
            return replace(layer, left=names.of(layer.left), right=names.of(layer.right))
        case _:
            return replace(layer, input=names.of(layer.input))
