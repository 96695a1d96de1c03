"""Sites: which tensors of a model are quantised. Traits of the operator table say which operators take them.

An activation is quantised where it is made, for those of its readers that take quantised inputs. Operators that hand
elements on (Reshape, MaxPool) give codes for codes: their operands share the scale of their result.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import onnx
import onnx_ir as ir

from graft.core.graph.view import constant_tensor
from graft.core.operators.definition.table import Trait
from graft.core.rewriting.node_rewrite import channels_of_weights, has_trait, moved_inputs
from graft.errors import RecipeError
from graft.quantization.recipe import Recipe

X, WEIGHTS, BIAS = 0, 1, 2
"""The inputs of a product."""


@dataclass(frozen=True, slots=True)
class Product:
    """A node that multiplies an activation by constant weights: the axes of its channels and of its sums in them."""

    node: ir.Node
    channels: int
    terms: int

    @property
    def weights(self) -> ir.Value:
        """The value of the weights."""
        value = self.node.inputs[WEIGHTS]
        assert value is not None, self.node.name
        return value

    @property
    def bias(self) -> ir.Value | None:
        """The value of the bias, if the node has one."""
        return self.node.inputs[BIAS] if len(self.node.inputs) > BIAS else None

    @property
    def channels_have_bias(self) -> bool:
        """Whether the operator has a bias as its third input, given or not."""
        schema = onnx.defs.get_schema(self.node.op_type)
        return len(schema.inputs) > BIAS


@dataclass(slots=True)
class Group:
    """Activations that share a scale, each with the readers that are to get it quantised; observed at its sources."""

    readers: dict[ir.Value, list[tuple[ir.Node, int]]] = field(default_factory=dict)
    sources: list[ir.Value] = field(default_factory=list)


@dataclass(slots=True)
class Sites:
    """What of a model is quantised."""

    products: list[Product]
    groups: list[Group]

    def group_of(self, value: ir.Value | None) -> Group | None:
        """Return the group that an activation is in."""
        return next((group for group in self.groups if value in group.readers), None)


def sites_of(model: ir.Model, recipe: Recipe) -> Sites:
    """Return the tensors of the main graph that a recipe quantises; raise RecipeError for patterns that fit nothing."""
    nodes = list(chosen(model, recipe))
    products = [product for node in nodes if (product := product_of(node)) is not None]
    if recipe.activations is None:
        return Sites(products if recipe.weights is not None else [], [])
    readers: dict[ir.Value, list[tuple[ir.Node, int]]] = {}
    for node in nodes:
        for place in _operands(node):
            readers.setdefault(node.inputs[place], []).append((node, place))  # type: ignore[arg-type]
    return Sites(products if recipe.weights is not None else [], _grouped(readers, recipe))


def chosen(model: ir.Model, recipe: Recipe) -> Iterator[ir.Node]:
    """Yield the nodes of the main graph that a recipe quantises the inputs of; raise RecipeError as `sites_of` does."""
    graph = model.graph
    for pattern in (*recipe.nodes, *recipe.keep):
        fitting = [node for node in graph if matches(node, (pattern,))]
        if not fitting:
            names = {node.name or "" for node in graph} | {node.op_type for node in graph}
            near = difflib.get_close_matches(pattern, names, 1)
            hint = f"did you mean '{near[0]}'" if near else "graft plan lists the nodes"
            raise RecipeError(f"no node's name or operator matches '{pattern}'; {hint}", pattern=pattern)
        if pattern in recipe.nodes and not any(map(_takes_scales, fitting)):
            raise RecipeError(
                f"'{pattern}' matches {fitting[0].op_type} (node '{fitting[0].name}'), which has no form with scaled "
                "inputs; name products, Add or average pooling",
                pattern=pattern,
            )
    for node in graph:
        wanted = not recipe.nodes or matches(node, recipe.nodes)
        if wanted and _takes_scales(node) and not matches(node, recipe.keep):
            yield node


def matches(node: ir.Node, patterns: Iterable[str]) -> bool:
    """Whether a pattern fits the name or the operator of a node."""
    return any(
        fnmatch.fnmatchcase(node.name or "", pattern) or fnmatch.fnmatchcase(node.op_type, pattern)
        for pattern in patterns
    )


def product_of(node: ir.Node) -> Product | None:
    """Return a node as a product by constant weights, None if it is none."""
    channels = channels_of_weights(node)
    weights = node.inputs[WEIGHTS] if len(node.inputs) > WEIGHTS else None
    tensor = None if weights is None else constant_tensor(weights)
    if channels is None or tensor is None or len(tensor.shape) < 2 or _is_constant(node.inputs[X]):
        return None
    rank = len(tensor.shape)
    other = {0: 1, 1: 0, -1: -2}[channels]
    return Product(node, channels % rank, other % rank)


def _takes_scales(node: ir.Node) -> bool:
    return has_trait(node, Trait.QUANTIZABLE) and all(
        value is None or value.dtype is ir.DataType.FLOAT for value in (*node.inputs, *node.outputs)
    )


def _operands(node: ir.Node) -> list[int]:
    """Return which inputs are activations to quantise; none if another operand is a constant that is no weight."""
    if product_of(node) is not None:
        return [X]
    places = [place for place, value in enumerate(node.inputs[:BIAS]) if value is not None]
    return [] if any(_is_constant(node.inputs[place]) for place in places) else places


def _is_constant(value: ir.Value | None) -> bool:
    return value is not None and constant_tensor(value) is not None


# ---- Groups that share a scale ------------------------------------------------------------------------------------


def hands_on(node: ir.Node | None) -> bool:
    """Whether the codes of a node's result are codes of its operands: it moves elements, or takes the largest."""
    if node is None or node.graph is None or not isinstance(node.graph, ir.Graph):
        return False
    return has_trait(node, Trait.DATA_MOVEMENT) or (has_trait(node, Trait.POOLING) and has_trait(node, Trait.SELECTING))


def _grouped(readers: dict[ir.Value, list[tuple[ir.Node, int]]], recipe: Recipe) -> list[Group]:
    """Return the activations by scale, following those that are only handed on back to where they are computed."""
    leader: dict[ir.Value, ir.Value] = {value: value for value in readers}
    sources: dict[ir.Value, None] = {}

    def find(value: ir.Value) -> ir.Value:
        while leader[value] is not value:
            value = leader[value]
        return value

    waiting = list(readers)
    while waiting:
        value = waiting.pop()
        origin = value.producer()
        moved = list(moved_inputs(origin)) if origin is not None and hands_on(origin) else []
        if origin is None or not moved or any(map(_is_constant, moved)) or matches(origin, recipe.keep):
            sources[value] = None
            continue
        for place, operand in enumerate(moved):
            if operand is None:
                continue
            if operand not in leader:
                leader[operand] = operand
                readers[operand] = []
                waiting.append(operand)
            if (origin, place) not in readers[operand]:
                readers[operand].append((origin, place))
            leader[find(operand)] = find(value)
    groups: dict[ir.Value, Group] = {}
    for value, uses in readers.items():
        group = groups.setdefault(find(value), Group())
        group.readers[value] = uses
        if value in sources:
            group.sources.append(value)
    return list(groups.values())
