"""Steps of training: Adagrad, Adam and Momentum, one tensor after another, element by element."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from graft.core.affine.equations import Equation
from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.operators.definition import demands as demand
from graft.core.operators.definition.cost import per_output
from graft.core.operators.definition.table import LowerFunction, Lowering, Trait, define
from graft.core.operators.elementwise.arithmetic import bound
from graft.core.tensor_ir.ir import Buffer, Expression, Stage

DOMAIN = "ai.onnx.preview.training"
Step = Callable[[Lowering, Sequence[Expression]], Sequence[Expression]]
"""The new tensor and the new state of an element and its gradient and state."""


def _lower(step: Step, state: int) -> LowerFunction:
    """Lower to a stage for each result: tensors come one kind after another, then their gradients and states."""

    def lower(lowering: Lowering) -> tuple[Stage, ...]:
        count = (len(lowering.inputs) - 2) // (2 + state)
        stages: list[Stage] = []
        for place in range((1 + state) * count):
            target = lowering.optional_output(place)
            kind, number = divmod(place, count)
            sources = [lowering.input(2 + number + count * which) for which in range(2 + state)]
            if target is None:
                continue

            def value(
                i: Sequence[Expression], kind: int = kind, sources: Sequence[Buffer] = tuple(sources)
            ) -> Expression:
                return step(lowering, [b.load(source, *i) for source in sources])[kind]

            stages.append(b.compute(target, value))
        return tuple(stages)

    return lower


def _scalars(lowering: Lowering, kind: str) -> tuple[Expression, Expression]:
    """The rate and the number of steps before this one."""
    return b.cast(bound(lowering, 0), kind), b.cast(bound(lowering, 1), kind)


def _regularized(lowering: Lowering, x: Expression, gradient: Expression) -> Expression:
    return b.add(b.multiply(x, lowering.node.attribute("norm_coefficient", 0.0)), gradient)


def _adagrad(lowering: Lowering, given: Sequence[Expression]) -> Sequence[Expression]:
    x, gradient, squares = given
    rate, steps = _scalars(lowering, x.type.dtype)
    node = lowering.node
    rate = b.divide(rate, b.add(b.multiply(steps, node.attribute("decay_factor", 0.0)), 1.0))
    gradient = _regularized(lowering, x, gradient)
    total = b.add(squares, b.multiply(gradient, gradient))
    root = b.add(b.unary("sqrt", total), node.attribute("epsilon", 0.0))
    return b.subtract(x, b.divide(b.multiply(rate, gradient), root)), total


def _adam(lowering: Lowering, given: Sequence[Expression]) -> Sequence[Expression]:
    x, gradient, mean, squares = given
    rate, steps = _scalars(lowering, x.type.dtype)
    node = lowering.node
    alpha, beta = node.attribute("alpha", 0.9), node.attribute("beta", 0.999)
    gradient = _regularized(lowering, x, gradient)
    mean = b.add(b.multiply(mean, alpha), b.multiply(gradient, 1 - alpha))
    squares = b.add(b.multiply(squares, beta), b.multiply(b.multiply(gradient, gradient), 1 - beta))

    def left(base: float) -> Expression:
        return b.subtract(b.constant(1.0, x.type.dtype), b.intrinsic("pow", b.constant(base, x.type.dtype), steps))

    corrected = b.divide(b.multiply(rate, b.unary("sqrt", left(beta))), left(alpha))
    rate = b.select(b.greater(steps, 0.0), corrected, rate)
    root = b.add(b.unary("sqrt", squares), node.attribute("epsilon", 0.0))
    moved = b.subtract(x, b.multiply(rate, b.divide(mean, root)))
    return b.multiply(moved, 1 - node.attribute("norm_coefficient_post", 0.0)), mean, squares


def _momentum(lowering: Lowering, given: Sequence[Expression]) -> Sequence[Expression]:
    x, gradient, velocity = given
    rate, steps = _scalars(lowering, x.type.dtype)
    node = lowering.node
    alpha, gradient = node.attribute("alpha"), _regularized(lowering, x, gradient)
    beta = b.select(b.greater(steps, 0.0), b.constant(node.attribute("beta"), x.type.dtype), 1.0)
    velocity = b.add(b.multiply(velocity, alpha), b.multiply(beta, gradient))
    direction = velocity
    if node.attribute("mode") == "nesterov":
        direction = b.add(gradient, b.multiply(velocity, alpha))
    return b.subtract(x, b.multiply(rate, direction)), velocity


def _demands(node: NodeView) -> Iterator[Equation]:
    """Gradients and states are as large as the tensors that are trained."""
    count = len(node.outputs) // (3 if node.op_type == "Adam" else 2)
    for number in range(2 + count, len(node.inputs)):
        yield from demand.alike(number, 2 + (number - 2) % count)(node)


TRAINING = frozenset({Trait.INJECTIVE})
define("Adagrad", TRAINING, _lower(_adagrad, 1), per_output(8), domain=DOMAIN, demands=_demands)
define("Adam", TRAINING, _lower(_adam, 2), per_output(16), domain=DOMAIN, demands=_demands)
define("Momentum", TRAINING, _lower(_momentum, 1), per_output(8), domain=DOMAIN, demands=_demands)
