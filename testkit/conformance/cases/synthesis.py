"""A model that a pattern matches, made from the pattern: top down, from the shape of its result to those of its inputs.

The shapes of operands follow from the operator, by the table `OPERANDS`; every other operator reads values of its
result's shape. Alternatives are taken one at a time. What this cannot say (bodies, dominators, regions) is
`Unwritable`: the scorecard says so, and the vendor gives a model of his own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import Trait
from graft.patterns import language
from graft.patterns.value_constraints import Attributes, DtypeIs
from graft.testkit.conformance.cases.outcome import Trial
from graft.testkit.models.net import model_proto, typed

Shape = tuple[int, ...]
OPSET = 24
ROOTS: tuple[Shape, ...] = ((4, 6), (2, 8, 6, 6), (2, 3, 8), (5,))
"""The shapes of results that are tried, one after another."""
DEPTH = 40


class Unwritable(Exception):
    """No model can be written for a pattern; the text says why."""


def convolution(shape: Shape) -> list[Shape]:
    """Return the shapes of a convolution's operands that keep the image's size, with four input channels."""
    n, c, *sizes = _image(shape)
    return [(n, 4, *sizes), (c, 4, *(3 for _ in sizes)), (c,)]


def _image(shape: Shape) -> Shape:
    if len(shape) < 3:
        raise Unwritable(f"no image has the shape {list(shape)}")
    return shape


def _matrix(shape: Shape) -> Shape:
    if len(shape) < 2:
        raise Unwritable(f"no product has the shape {list(shape)}")
    return shape


def _has(op_type: str, *traits: Trait) -> bool:
    row = OPERATORS.get(op_type)
    return row is not None and not row.traits.isdisjoint(traits)


OPERANDS: dict[str, Callable[[Shape], list[Shape]]] = {
    "MatMul": lambda shape: [(*_matrix(shape)[:-1], 5), (5, shape[-1])],
    "Gemm": lambda shape: [(_matrix(shape)[0], 5), (5, shape[1]), (shape[1],)],
    "BatchNormalization": lambda shape: [shape, *([_matrix(shape)[1:2]] * 4)],
    "LayerNormalization": lambda shape: [shape, shape[-1:], shape[-1:]],
    "GlobalAveragePool": lambda shape: [(*_image(shape)[:2], *(5 for _ in shape[2:]))],
    "GlobalMaxPool": lambda shape: [(*_image(shape)[:2], *(5 for _ in shape[2:]))],
    "MaxPool": lambda shape: [_image(shape)],
    "AveragePool": lambda shape: [_image(shape)],
    "Transpose": lambda shape: [shape[::-1]],
    "Reshape": lambda shape: [(int(np.prod(shape)),)],
    "Clip": lambda shape: [shape, (), ()],
    "DequantizeLinear": lambda shape: [shape, (), ()],
    "QuantizeLinear": lambda shape: [shape, (), ()],
}
"""The shapes of operands by that of the result."""
CONTENTS: dict[tuple[str, int], Callable[[Shape], npt.ArrayLike]] = {
    ("Reshape", 1): lambda shape: np.array(shape, np.int64),
    ("Clip", 1): lambda _: np.float32(0.0),
    ("Clip", 2): lambda _: np.float32(6.0),
    ("Pow", 1): lambda _: np.float32(2.0),
}
"""What operands hold that are no numbers to compute with."""


def attributes_of(op_type: str, shape: Shape) -> dict[str, Any]:
    """Return the attributes with which the operands of `OPERANDS` give the result's shape."""
    spatial = len(shape) - 2
    if _has(op_type, Trait.CONVOLUTION, Trait.POOLING):
        return {"pads": [1] * (2 * spatial), "kernel_shape": [3] * spatial}
    if op_type == "Transpose":
        return {"perm": list(range(len(shape)))[::-1]}
    return {}


@dataclass(slots=True)
class Writer:
    """A model while it is written; ``choices`` says which option of the n-th alternative is taken."""

    choices: Mapping[int, int]
    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    options: list[int] = field(default_factory=list)
    """How many options each alternative had that was met."""
    known: dict[int, str] = field(default_factory=dict)
    """The values of patterns: one pattern is one value, wherever it stands."""

    def value(
        self, pattern: language.Pattern, shape: Shape, place: tuple[str, int], attributes: Mapping[str, Any], depth: int
    ) -> str:
        """Write what a pattern matches and return its name."""
        if id(pattern) not in self.known:
            name = self._written(pattern, shape, place, attributes, depth)
            self.known[id(pattern)] = name
        return self.known[id(pattern)]

    def _written(
        self, pattern: language.Pattern, shape: Shape, place: tuple[str, int], attributes: Mapping[str, Any], depth: int
    ) -> str:
        if depth > DEPTH:
            raise Unwritable("the pattern is deeper than the kit writes")

        def go_on(inner: language.Pattern, **more: Any) -> str:
            return self.value(inner, shape, place, {**attributes, **more}, depth + 1)

        match pattern:
            case language.Wildcard(target=None) | language.InputPattern():
                return self.operand(shape, place)
            case language.Wildcard(target=target) if target is not None:
                return go_on(target)
            case language.Absent():
                return ""
            case language.ConstantPattern(value=value):
                return self.constant(value, shape, place)
            case language.Named(pattern=inner) | language.Output(node=inner, index=0):
                return go_on(inner)
            case language.Constrained(pattern=inner, constraint=Attributes(wanted=wanted)):
                return go_on(inner, **dict(wanted))
            case language.Constrained(pattern=inner, constraint=constraint):
                if isinstance(constraint, DtypeIs) and "float32" not in constraint.dtypes:
                    raise Unwritable(f"a value of type {' or '.join(constraint.dtypes)} is wanted")
                return go_on(inner)
            case language.Alternative(options=options):
                chosen = self.choices.get(len(self.options), 0)
                self.options.append(len(options))
                return go_on(options[min(chosen, len(options) - 1)])
            case language.Both(left=left):
                return go_on(left)
            case language.Not():
                return self.operand(shape, place)
            case language.Operator():
                return self.node(pattern, shape, attributes, depth)
            case _:
                raise Unwritable(f"the kit cannot write a {type(pattern).__name__} pattern")

    def node(self, pattern: language.Operator, shape: Shape, attributes: Mapping[str, Any], depth: int) -> str:
        """Write an operator's node; raise Unwritable where the kit knows too little of it."""
        if pattern.key or pattern.domain not in ("", "ai.onnx"):
            raise Unwritable(f"'{pattern.title}' is no operator of ONNX")
        chosen = self.choices.get(len(self.options), 0)
        self.options.append(len(pattern.names))
        op_type = pattern.names[min(chosen, len(pattern.names) - 1)]
        schema = onnx.defs.get_schema(op_type, OPSET)
        wanted: Sequence[language.Pattern] = pattern.arguments or ()
        count = max(len(wanted), schema.min_input)
        like = convolution if _has(op_type, Trait.CONVOLUTION) else OPERANDS.get(op_type)
        shapes = [shape] * count if like is None else like(shape)
        if count > len(shapes):
            raise Unwritable(f"the kit does not know the operands of {op_type}")
        names = []
        for index in range(count):
            place = (op_type, index)
            if index < len(wanted):
                names.append(self.value(wanted[index], shapes[index], place, {}, depth + 1))
            else:
                names.append(self.operand(shapes[index], place))
        result = f"v{len(self.nodes)}"
        given = {**attributes_of(op_type, shape), **attributes}
        self.nodes.append(helper.make_node(op_type, names, [result], name=f"n{len(self.nodes)}", **given))
        return result

    def operand(self, shape: Shape, place: tuple[str, int]) -> str:
        """Return a new input, or the constant that an operator wants there."""
        if place in CONTENTS:
            return self.constant(None, shape, place)
        if place[0] in ("BatchNormalization", "LayerNormalization") and place[1] > 0:
            return self.constant(None, shape, place)
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self.rng.uniform(-2, 2, shape).astype(np.float32)
        return name

    def constant(self, value: float | Sequence[float] | None, shape: Shape, place: tuple[str, int]) -> str:
        """Return a new constant: what the pattern or the operator wants, or noise of a shape that broadcasts."""
        if value is not None:
            array = np.asarray(value, np.float32)
        elif place in CONTENTS:
            array = np.asarray(CONTENTS[place](shape))
        elif place[0] in OPERANDS or _has(place[0], Trait.CONVOLUTION):
            array = self.rng.uniform(0.2, 0.9, shape).astype(np.float32)
        else:  # one number for each channel, as biases are
            channel = (shape[1], *(1 for _ in shape[2:])) if len(shape) > 3 else shape[-1:]
            array = self.rng.uniform(0.2, 0.9, channel).astype(np.float32)
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name


def written(pattern: language.Pattern, shape: Shape, choices: Mapping[int, int]) -> tuple[Trial, list[int]]:
    """Return a model that a pattern matches, with a result of a shape, and how many options each alternative has.

    Raise Unwritable where there is none.
    """
    root = pattern.members[0] if isinstance(pattern, language.Together) else pattern
    if isinstance(pattern, language.Together):
        raise Unwritable("the pattern has several results")
    writer = Writer(choices, np.random.default_rng(len(choices)))
    result = writer.value(root, shape, ("", 0), {}, 0)
    if not writer.nodes:
        raise Unwritable("the pattern matches no operator")
    inputs = [typed(name, array) for name, array in writer.inputs.items()]
    constants = (numpy_helper.from_array(array, name) for name, array in writer.constants.items())
    proto = model_proto(writer.nodes, inputs, [helper.make_empty_tensor_value_info(result)], constants, OPSET)
    try:
        proto = onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
        onnx.checker.check_model(proto)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise Unwritable(f"the model that the kit writes is not valid: {str(error).splitlines()[0]}") from error
    return Trial(proto, writer.inputs), writer.options


def instances(pattern: language.Pattern, most: int = 24) -> Iterator[tuple[str, Trial]]:
    """Give models that a pattern may match, with names: for each shape every option of every alternative in turn.

    Raises Unwritable if there is none.
    """
    reason: Unwritable | None = None
    given = 0
    for shape in ROOTS:
        try:
            first, options = written(pattern, shape, {})
        except Unwritable as error:
            reason = error
            continue
        title = "x".join(map(str, shape))
        yield title, first
        given += 1
        for place, count in enumerate(options):
            for choice in range(1, count):
                if given >= most:
                    break
                try:
                    yield f"{title}-{place}.{choice}", written(pattern, shape, {place: choice})[0]
                    given += 1
                except Unwritable:
                    continue
    if given == 0:
        raise reason or Unwritable("no shape fits")
