"""Gradients of a node's inputs, as nodes of ONNX: what the column ``vjp`` of the table is written in.

    vjp=each(lambda f: f("Mul", f.gradient, f.input(1)), lambda f: f("Mul", f.gradient, f.input(0)))

A rule gets the gradients of the node's outputs and gives those of its inputs, linear in them (a vector-Jacobian
product). What it writes are operators with rules of their own, so second derivatives follow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import TensorProto, helper

from graft.core.graph.protos import captures_of
from graft.core.operators.definition.function_body import OPSET, Body, Function, learn

NARROW = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
ANEW = "graft.anew"
"""The key of the metadata of a node that stays apart from those that compute the same."""
Pull = Callable[[Body, Sequence[onnx.NodeProto], Mapping[str, str], Collection[str]], "dict[str, str]"]
"""Of nodes, and gradients of what they compute: the gradients of the values asked for (`core.differentiation`)."""


class Adjoint(Body):
    """Writes the gradients of the inputs of ``node`` behind what ``around`` has written.

    ``gradients`` are those of values behind the node, ``varied`` the values that a gradient is wanted of, ``pull``
    differentiates other nodes.
    """

    def __init__(
        self, node: onnx.NodeProto, around: Body, gradients: Mapping[str, str], varied: Collection[str], pull: Pull
    ) -> None:
        super().__init__(node, around.types, around.data, around.fresh)
        self.nodes, self._constants = around.nodes, around._constants
        self._gradients, self._varied, self._pull = gradients, varied, pull

    @property
    def gradient(self) -> str:
        """The gradient of the first output."""
        return self.upstream(0)

    def has_gradient(self, number: int) -> bool:
        """Whether an output has a gradient; else it is zero."""
        return self.wants(number) and self.node.output[number] in self._gradients

    def upstream(self, number: int) -> str:
        """Return the gradient of an output: zeros where nobody reads it."""
        if self.has_gradient(number):
            return self._gradients[self.node.output[number]]
        return self.filled(0.0, self.result(number))

    def wanted(self, number: int) -> bool:
        """Whether the gradient of an input is asked for."""
        return self.input(number) in self._varied

    @property
    def captured(self) -> list[str]:
        """What the bodies of the node read from outside: its gradients stand behind those of the inputs.

        What is an input as well is among it, for its gradient is the sum of both.
        """
        return sorted(set(captures_of(self.node)))

    def is_varied(self, name: str) -> bool:
        """Whether the gradient of a value is asked for."""
        return name in self._varied

    def result(self, number: int = 0) -> str:
        """Return an output of the node, which it has from now on."""
        while len(self.node.output) <= number:
            self.node.output.append("")
        if not self.node.output[number]:
            self.node.output[number] = self.fresh(f"{self._stem}/{number}")
            for name in self.node.output:
                self.types.pop(name, None)
            learn(self.node, self.types, self.data, {"": OPSET})
        return str(self.node.output[number])

    def anew(self, operator: str, *inputs: str) -> str:
        """Return what a node computes that is not merged with its like: cheaper to compute twice than to store."""
        value = self(operator, *inputs)
        self.nodes[-1].metadata_props.add(key=ANEW)
        return value

    # ---- Values like others --------------------------------------------------------------------------------------

    def typed(self, value: str, other: str) -> str:
        """Return a value of which it is known that it has type and shape of another."""
        self.types[value] = self.types[other]
        return value

    def filled(self, value: float, other: str) -> str:
        """Return a tensor of one number in the type and shape of another value."""
        return self.typed(self("Expand", self.like(value, other), self("Shape", other)), other)

    def reshaped_like(self, value: str, other: str) -> str:
        """Return the elements of a value in the shape of another."""
        return self.typed(self("Reshape", value, self("Shape", other)), other)

    def masked(self, condition: str, value: str, otherwise: float = 0.0) -> str:
        """Return a value where a condition holds, a number elsewhere."""
        return self("Where", condition, value, self.like(otherwise, value))

    def where(self, condition: str, dtype_of: str) -> str:
        """Return 1 where a condition holds, 0 elsewhere, in the type of a value."""
        return self("Cast", condition, to=self.dtype(dtype_of))

    def wide(self, value: str) -> str:
        """Return a value in a type in which sums are taken: 16-bit floats as float32."""
        return self.cast(value, TensorProto.FLOAT) if self.dtype(value) in NARROW else value

    def numbers(self, name: str) -> list[int] | None:
        """Return a constant of integers as a list, None if it is computed or absent."""
        array = self.contents(name) if name else None
        return None if array is None else [int(one) for one in array.reshape(-1)]

    def extents(self, value: str) -> list[int]:
        """Return a shape that has to be known when the derivative is written."""
        shape = self.shape(value)
        known = [one for one in shape if isinstance(one, int)]
        self.require(len(known) == len(shape), f"its derivative needs the shape of '{value}' in numbers")
        return known

    # ---- Shapes of gradients -------------------------------------------------------------------------------------

    def summed(self, gradient: str, target: str) -> str:
        """Return a gradient summed over the axes along which ``target`` was repeated."""
        wide, narrow = self.shape(gradient), self.shape(target)
        more = len(wide) - len(narrow)
        pairs = list(zip(narrow, wide[more:], strict=True))
        if any(not isinstance(one, int) and (one is None or one != other) for one, other in pairs):
            return self._summed_by_shape(gradient, target, more)
        axes = [*range(more), *(axis for axis, (one, other) in enumerate(pairs, more) if one == 1 and other != 1)]
        if not axes:
            return gradient
        if len(axes) == more:
            if all(one == 1 for one in wide[:more]):
                return self("Squeeze", gradient, self.ints(*axes))
            return self("ReduceSum", gradient, self.ints(*axes), keepdims=0)
        kept = self("ReduceSum", gradient, self.ints(*axes), keepdims=1)
        return self("Squeeze", kept, self.ints(*range(more))) if more else kept

    def _summed_by_shape(self, gradient: str, target: str, more: int) -> str:
        """Find the axes of `summed` when the shapes are there."""
        extents = self("Shape", target)
        narrow = self.concatenated(self.ints(*[1] * more), extents, axis=0) if more else extents
        axes = self("Squeeze", self("NonZero", self("Equal", narrow, self.ints(1))), self.ints(0))
        total = self("ReduceSum", gradient, axes, keepdims=1, noop_with_empty_axes=1)
        return self.typed(self("Reshape", total, extents), target)

    def along(self, value: str, axis: int, places: str, like: str) -> str:
        """Return slices of a value added at ``places`` (a vector) along an axis, in the shape of ``like`` but there.

        It is the gradient of `Gather` by that vector: where a place comes twice, its slices are summed.
        """
        rank, axis = self.rank(value), axis % max(self.rank(value), 1)
        shape = self("Shape", value)
        parts = [self.sliced(shape, 0, 0, axis)] if axis else []
        parts.append(self.extent(like, axis))
        parts += [self.sliced(shape, 0, axis + 1, rank)] if axis + 1 < rank else []
        zeros = self("Expand", self.like(0.0, value), self.concatenated(*parts, axis=0) if rank > 1 else parts[0])
        self._know(zeros, value, axis, like)
        column = self.unsqueezed(places, *range(1, rank - axis)) if rank - axis > 1 else places
        return self("ScatterElements", zeros, self("Expand", column, shape), value, axis=axis, reduction="add")

    def _know(self, zeros: str, value: str, axis: int, like: str) -> None:
        """Say the shape of zeros whose shape is computed of shapes."""
        kind = onnx.TypeProto()
        kind.CopyFrom(self.types[value])
        kind.tensor_type.shape.dim[axis].CopyFrom(self.types[like].tensor_type.shape.dim[axis])
        self.types[zeros] = kind

    # ---- Other nodes ---------------------------------------------------------------------------------------------

    def through(self, function: Function, *, instead: bool = False) -> list[str]:
        """Return the gradients of all inputs, of the node as a function of other operators.

        What the function writes is computed again, of the node's inputs, or ``instead`` of a node that stands in the
        model itself: then its results come from there, and nobody reads its own.
        """
        own = list(self.node.output)
        inner = self.written(function, instead=instead)
        upstream = {
            copy: self._gradients[name]
            for copy, name in zip(inner.node.output, own, strict=True)
            if name in self._gradients
        }
        asked = {name for number, name in enumerate(self.inputs) if self.wanted(number)}
        found = self.pull(inner.nodes, upstream, asked)
        return [
            found.get(name, "") if place == self.inputs.index(name) else "" for place, name in enumerate(self.inputs)
        ]

    def written(self, function: Function, *, instead: bool = False) -> Body:
        """Write the node as a function of other operators, perhaps ``instead`` of it, and return what was written."""
        inner = Body(self._copy(), self.types, self.data, self.fresh)
        function(inner)
        self.nodes += inner.nodes
        if instead and all(one is not self.node for one in self.nodes):
            for number, copy in enumerate(inner.node.output):
                name, self.node.output[number] = self.node.output[number], self.fresh(copy) if copy else ""
                if name:
                    self.add(helper.make_node("Identity", [copy], [name], f"{name}/instead"))
        return inner

    def pull(
        self, nodes: Sequence[onnx.NodeProto], upstream: Mapping[str, str], asked: Collection[str]
    ) -> dict[str, str]:
        """Return the gradients of values that nodes depend on, of gradients of what they compute."""
        return self._pull(self, nodes, upstream, asked)

    def pull_into(
        self, body: Body, nodes: Sequence[onnx.NodeProto], upstream: Mapping[str, str], asked: Collection[str]
    ) -> dict[str, str]:
        """Do what `pull` does, writing behind what another body has."""
        return self._pull(body, nodes, upstream, asked)

    def _copy(self) -> onnx.NodeProto:
        """Return the node with outputs of other names."""
        copy = onnx.NodeProto()
        copy.CopyFrom(self.node)
        del copy.output[:]
        for name in self.node.output:
            copy.output.append(self.fresh(name) if name else "")
        return copy


Vjp = Callable[[Adjoint], Sequence[str]]
"""Gives the gradients of a node's inputs in order, "" for none; those at the end may be left out."""
Gradient = Callable[[Adjoint], str]
"""Gives the gradient of one input."""


def each(*rules: Gradient | None) -> Vjp:
    """Return the rule that gives each input a gradient by itself, None for none."""

    def vjp(f: Adjoint) -> Sequence[str]:
        return [rule(f) if rule and f.wanted(number) else "" for number, rule in enumerate(rules)]

    return vjp


def broadcasting(*rules: Gradient | None) -> Vjp:
    """Return the rule of operands that are broadcast: gradients in the shape of the result are summed to theirs."""

    def vjp(f: Adjoint) -> Sequence[str]:
        found = each(*rules)(f)
        return [one and f.summed(one, f.input(number)) for number, one in enumerate(found)]

    return vjp


def scaled_by(factor: Callable[[Adjoint, str, str], str]) -> Vjp:
    """Return the rule of a function of one number: the gradient times a factor of argument and result."""
    return each(lambda f: f("Mul", f.gradient, factor(f, f.input(0), f.result())))


def divided_by(factor: Callable[[Adjoint, str, str], str]) -> Vjp:
    """Return the rule of a function of one number: the gradient divided by what argument and result make."""
    return each(lambda f: f("Div", f.gradient, factor(f, f.input(0), f.result())))


def passed_where(holds: Callable[[Adjoint, str, str], str]) -> Vjp:
    """Return the rule of a function that hands on its argument where something holds of argument and result."""
    return each(lambda f: f.masked(holds(f, f.input(0), f.result()), f.gradient))


@dataclass(frozen=True, slots=True)
class Through:
    """The rule of an operator that is a function of other operators: see `Adjoint.through`."""

    function: Function
    instead: bool = False

    def __call__(self, f: Adjoint) -> Sequence[str]:
        """Return the gradients of all inputs."""
        return f.through(self.function, instead=self.instead)


def through(function: Function, *, instead: bool = False) -> Vjp:
    """Return the rule of an operator that is a function of other operators, perhaps computed ``instead`` of it."""
    return Through(function, instead)


def nowhere(f: Adjoint) -> Sequence[str]:
    """The rule of a function that is constant wherever it has a derivative (Floor): no gradient comes through."""
    return []


def unchanged(f: Adjoint) -> Sequence[str]:
    """The rule of an operator that hands on its first input."""
    return [f.gradient]


def reshaped(f: Adjoint) -> Sequence[str]:
    """The rule of an operator that gives its first input another shape."""
    return [f.reshaped_like(f.gradient, f.input(0))]
