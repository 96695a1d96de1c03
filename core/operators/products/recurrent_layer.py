"""What a recurrent node says: sizes, directions, activation functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.operators.elementwise import activation
from graft.core.tensor_ir.ir import Buffer, Expression

Activation = Callable[[Expression], Expression]
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
NEED_ALPHA = {
    "LeakyRelu": 0.01,
    "ThresholdedRelu": 1.0,
    "Elu": 1.0,
    "HardSigmoid": 0.2,
    "Affine": 1.0,
    "ScaledTanh": 1.0,
}
NEED_BETA = {"HardSigmoid": 0.5, "Affine": 0.0, "ScaledTanh": 1.0}
PLAIN = frozenset({"Relu", "Tanh", "Sigmoid", "Softsign", "Softplus"})


@dataclass(frozen=True, slots=True)
class Layer:
    """A recurrent node: its sizes, buffers and functions per direction."""

    kind: str
    dtype: str
    steps: b.Extent
    batch: b.Extent
    features: int
    hidden: int
    reverse: tuple[bool, ...]
    functions: tuple[tuple[Activation, ...], ...]
    clip: float | None
    batch_first: bool
    linear_before_reset: bool
    couple: bool
    inputs: tuple[Buffer | None, ...]
    outputs: tuple[Buffer | None, ...]

    @property
    def gates(self) -> int:
        """The number of gates."""
        return GATES[self.kind]

    def input(self, number: int) -> Buffer:
        """Return the buffer of an input that must be present."""
        buffer = self.optional(number)
        assert buffer is not None, f"input {number} is absent"
        return buffer

    def optional(self, number: int) -> Buffer | None:
        """Return the buffer of an optional input, None when it is absent."""
        return self.inputs[number] if number < len(self.inputs) else None

    def output(self, number: int) -> Buffer | None:
        """Return the buffer of an output, None when nobody wants it."""
        return self.outputs[number] if number < len(self.outputs) else None

    @property
    def last(self) -> Expression:
        """The last step; -1 where there is none."""
        return b.subtract(b.extent(self.steps), 1)

    def sequence(self, step: Expression, row: Expression) -> tuple[Expression, Expression]:
        """Return the leading indices of X for one step of one batch row."""
        return (row, step) if self.batch_first else (step, row)

    def time(self, direction: int, step: Expression, row: Expression) -> tuple[Expression, Expression | None]:
        """Return the position in the sequence at a step, and whether the row still runs (None: always)."""
        lengths, backward = self.optional(4), self.reverse[direction]
        if lengths is None:
            return (b.subtract(self.last, step) if backward else step), None
        length = b.minimum(b.cast(b.load(lengths, row), "int64"), self.steps)
        place = b.maximum(b.subtract(b.subtract(length, 1), step), 0) if backward else step
        return place, b.less(step, length)

    def apply(self, direction: int, function: int, x: Expression) -> Expression:
        """Return a gate's function of its sum, which is clipped first."""
        if self.clip is not None:
            x = b.minimum(b.maximum(x, -self.clip), self.clip)
        return self.functions[direction][function](x)

    def state(self, direction: int, row: Expression) -> tuple[Expression, Expression]:
        """Return the leading indices of an initial or final state."""
        d = b.index(direction)
        return (row, d) if self.batch_first else (d, row)

    def result(self, step: Expression, direction: int, row: Expression) -> tuple[Expression, ...]:
        """Return the leading indices of Y."""
        d = b.index(direction)
        return (row, step, d) if self.batch_first else (step, d, row)


def _activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    canonical = next((known for known in (*PLAIN, *NEED_ALPHA) if known.lower() == name.lower()), name)
    a = NEED_ALPHA.get(canonical, 0.0) if alpha is None else alpha
    c = NEED_BETA.get(canonical, 0.0) if beta is None else beta
    table: dict[str, Activation] = {
        "Relu": activation.relu,
        "Tanh": lambda x: b.intrinsic("tanh", x),
        "Sigmoid": activation.sigmoid,
        "Softsign": lambda x: b.divide(x, b.add(b.unary("abs", x), 1)),
        "Softplus": activation.softplus,
        "LeakyRelu": activation.leaky_relu(a),
        "ThresholdedRelu": lambda x: b.select(b.greater(x, a), x, 0),
        "Elu": activation.elu(a),
        "HardSigmoid": activation.hard_sigmoid(a, c),
        "Affine": lambda x: b.add(b.multiply(x, a), c),
        "ScaledTanh": lambda x: b.multiply(b.intrinsic("tanh", b.multiply(x, c)), a),
    }
    return table[canonical]


def activations(node: NodeView, directions: int) -> tuple[tuple[Activation, ...], ...]:
    """Return the functions of each direction; ``activation_alpha`` and ``_beta`` go in order to those that take one."""
    names = node.attribute("activations") or DEFAULTS[node.op_type] * directions
    alphas = list(node.attribute("activation_alpha") or [])
    betas = list(node.attribute("activation_beta") or [])
    chosen = []
    for name in names:
        takes = {known.lower() for known in NEED_ALPHA}, {known.lower() for known in NEED_BETA}
        alpha = alphas.pop(0) if alphas and name.lower() in takes[0] else None
        beta = betas.pop(0) if betas and name.lower() in takes[1] else None
        chosen.append(_activation(name, alpha, beta))
    each = len(chosen) // directions
    return tuple(tuple(chosen[d * each : (d + 1) * each]) for d in range(directions))


def layer_of(node: NodeView, inputs: tuple[Buffer | None, ...], outputs: tuple[Buffer | None, ...]) -> Layer:
    """Return the layer that a node describes, over the buffers of its inputs and outputs."""
    source, weights = inputs[0], inputs[2]
    assert source is not None and weights is not None, node.where
    x, (directions, _, hidden), (features,) = b.extents(source), b.dims(weights), b.numbers(source, 2)
    batch_first = bool(node.attribute("layout", 0))
    batch, steps = (x[0], x[1]) if batch_first else (x[1], x[0])
    backward = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    return Layer(
        node.op_type,
        source.dtype,
        steps,
        batch,
        features,
        hidden,
        backward[node.attribute("direction", "forward")],
        activations(node, directions),
        node.attribute("clip"),
        batch_first,
        bool(node.attribute("linear_before_reset", 0)),
        bool(node.attribute("input_forget", 0)),
        inputs,
        outputs,
    )
