"""Sites: which tensors of a model are quantised. Traits of the operator table say which operators take them.

An activation is quantised where it is made, for those of its readers that take quantised inputs. Operators that hand
elements on (Reshape, MaxPool) give codes for codes: their operands share the scale of their result.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import onnx
import onnx_ir as ir

from graft.core.graph.view import constant_tensor
from graft.core.operators.definition.table import Trait
from graft.core.rewriting.node_rewrite import channels_of_weights, hands_on, has_trait, is_operator, moved_inputs
from graft.datatypes import conversion
from graft.errors import RecipeError
from graft.quantization.caches import Cache, caches_made, caches_of
from graft.quantization.recipe import Recipe, Scaling

X, WEIGHTS, BIAS = 0, 1, 2
"""The inputs of a product."""
LIMITS = ("Relu", "Clip")
"""Operators that clamp: codes that saturate can stand for them."""
Readers = dict[ir.Value, list[tuple[ir.Node, int]]]
"""Activations, each with the readers that are to get it quantised, by node and input."""


@dataclass(frozen=True, slots=True)
class Product:
    """A node that multiplies an activation by constant weights: the axes of its channels and of its sums in them.

    ``scaling`` is how a recipe scales its weights; None where none is looked at.
    """

    node: ir.Node
    channels: int
    terms: int
    scaling: Scaling | None = None

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

    scaling: Scaling
    readers: Readers = field(default_factory=dict)
    sources: list[ir.Value] = field(default_factory=list)


@dataclass(slots=True)
class Sites:
    """What of a model is quantised; ``caches`` has a group, seen as a whole, for each cache."""

    products: list[Product]
    groups: list[Group]
    caches: list[tuple[Cache, Group]] = field(default_factory=list)

    def group_of(self, value: ir.Value | None) -> Group | None:
        """Return the group that an activation is in."""
        return next((group for group in self.groups if value in group.readers), None)


def sites_of(model: ir.Model, recipe: Recipe) -> Sites:
    """Return the tensors of the main graph that a recipe quantises; raise RecipeError for patterns that fit nothing."""
    products: list[Product] = []
    reading: dict[Scaling, list[ir.Node]] = {}
    for node in chosen(model, recipe):
        own = recipe_of_node(node, recipe)
        weights, activations = own.weights, own.activations
        product = product_of(node)
        if product is not None and weights is not None:
            products.append(replace(product, scaling=weights))
        if activations is not None:
            reading.setdefault(activations, []).append(node)
    groups = [group for scaling, nodes in reading.items() for group in _groups_of(model, nodes, scaling, recipe)]
    return Sites(products, groups, _caches(model, recipe.caches))


def _caches(model: ir.Model, scaling: Scaling | None) -> list[tuple[Cache, Group]]:
    found = [] if scaling is None else list(caches_of(model.graph))
    if scaling is not None and not found:
        raise RecipeError(
            "the recipe quantises caches, but no output of this model is a float32 input with new rows behind it (by "
            "Concat, TensorScatter or Attention)"
        )
    return [(one, Group(scaling, sources=[one.present])) for one in found if scaling is not None]


def recipe_of_node(node: ir.Node, recipe: Recipe) -> Recipe:
    """Return the recipe of a node: the last one of layers that fits, or the whole."""
    return next((one for pattern, one in reversed(recipe.layers) if matches(node, (pattern,))), recipe)


def _groups_of(model: ir.Model, nodes: list[ir.Node], scaling: Scaling, recipe: Recipe) -> list[Group]:
    """Return the activations that some nodes read, and what they make with ``recipe.results``, by scale."""
    readers: Readers = {}
    for node in nodes:
        for place in _operands(node):
            readers.setdefault(node.inputs[place], []).append((node, place))  # type: ignore[arg-type]
    if recipe.results:
        _add_results(model, [node for node in nodes if _operands(node)], readers, recipe)
    return _grouped(readers, scaling, recipe)


def chosen(model: ir.Model, recipe: Recipe) -> Iterator[ir.Node]:
    """Yield the nodes of the main graph that a recipe quantises the inputs of; raise RecipeError as `sites_of` does."""
    graph = model.graph
    for pattern in (*recipe.nodes, *recipe.keep, *(pattern for pattern, _ in recipe.layers)):
        fitting = [node for node in graph if matches(node, (pattern,))]
        if not fitting and onnx.defs.has(pattern):
            continue  # an operator that this model has not
        if not fitting:
            names = {node.name or "" for node in graph} | {node.op_type for node in graph}
            near = difflib.get_close_matches(pattern, names, 1)
            hint = f"did you mean '{near[0]}'" if near else "graft plan lists the nodes"
            raise RecipeError(f"no node's name or operator matches '{pattern}'; {hint}", pattern=pattern)
        if pattern not in recipe.keep and not any(_takes_scales(node, recipe) for node in fitting):
            raise RecipeError(
                f"'{pattern}' matches {fitting[0].op_type} (node '{fitting[0].name}'), which has no form with scaled "
                "inputs; name products, Add or average pooling",
                pattern=pattern,
            )
    for node in graph:
        wanted = not recipe.nodes or matches(node, recipe.nodes)
        if wanted and _takes_scales(node, recipe) and not matches(node, recipe.keep):
            yield node


def matches(node: ir.Node, patterns: Iterable[str]) -> bool:
    """Whether a pattern fits the name or the operator of a node."""
    return any(conversion.matches(node, pattern) for pattern in patterns)


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


def _takes_scales(node: ir.Node, recipe: Recipe) -> bool:
    if not has_trait(node, Trait.QUANTIZABLE):
        floats = any(_is_activation(value) for value in node.inputs) and node.outputs[0].dtype is ir.DataType.FLOAT
        return is_operator(node, *recipe.operators) and floats and not _is_function_of_one(node)
    return all(value is None or value.dtype is ir.DataType.FLOAT for value in (*node.inputs, *node.outputs))


def _is_activation(value: ir.Value | None) -> bool:
    return value is not None and value.dtype is ir.DataType.FLOAT and not _is_constant(value)


def _is_function_of_one(node: ir.Node) -> bool:
    """Whether several operands are elementwise functions of one tensor: hardware has one table for the whole."""
    found = [value for value in node.inputs if _is_activation(value)]
    origins = set(map(_origin, found))
    return len(found) > 1 and len(set(found)) > 1 and len(origins) == 1 and has_trait(node, Trait.ELEMENTWISE)


def _origin(value: ir.Value | None) -> ir.Value | None:
    """Return what a chain of elementwise operators of one tensor each begins with."""
    while value is not None and (node := value.producer()) is not None and has_trait(node, Trait.ELEMENTWISE):
        others = [one for one in node.inputs if _is_activation(one)]
        if len(others) != 1:
            break
        value = others[0]
    return value


def _operands(node: ir.Node) -> list[int]:
    """Return which inputs are activations to quantise; none if another operand is a constant that is no weight.

    Operators that a recipe adds may have constants beside them.
    """
    if product_of(node) is not None:
        return [X]
    if not has_trait(node, Trait.QUANTIZABLE):
        return [place for place, value in enumerate(node.inputs) if _is_activation(value)]
    places = [place for place, value in enumerate(node.inputs[:BIAS]) if value is not None]
    return [] if any(_is_constant(node.inputs[place]) for place in places) else places


def _is_constant(value: ir.Value | None) -> bool:
    return value is not None and constant_tensor(value) is not None


def added_bias(product: Product) -> tuple[ir.Node, int] | None:
    """Return node and place of a constant row that alone is added to a product whose operator has no bias."""
    output = product.node.outputs[0]
    users = [use.node for use in output.uses()]
    if product.channels_have_bias or len(users) != 1 or not is_operator(users[0], "Add") or output.is_graph_output():
        return None
    places = [place for place, value in enumerate(users[0].inputs) if value is not None and is_row(value)]
    return (users[0], places[0]) if places else None


def is_row(value: ir.Value) -> bool:
    """Whether a value is a constant of one axis."""
    tensor = constant_tensor(value)
    return tensor is not None and len(tensor.shape) == 1


def _add_results(model: ir.Model, nodes: list[ir.Node], readers: Readers, recipe: Recipe) -> None:
    """Let all readers of what quantised nodes make have codes, and those of what is handed on of codes."""
    for node in nodes:
        value = _result(node)
        readers[value] = [(use.node, use.idx) for use in value.uses()]
    for node in model.graph:
        moved = _handed_on(node, recipe)
        if moved and all(value in readers for value in moved):
            value = node.outputs[0]
            readers[value] = [(use.node, use.idx) for use in value.uses()]


def _handed_on(node: ir.Node, recipe: Recipe) -> list[ir.Value | None]:
    """Return the operands whose codes a node gives as they are; none for one that is kept, or that makes a cache."""
    if not hands_on(node) or matches(node, recipe.keep) or (recipe.caches is not None and any(caches_made(node))):
        return []
    return list(moved_inputs(node))


def _result(node: ir.Node) -> ir.Value:
    """Return what a quantised node makes: behind its bias and the limits (Relu, Clip) that alone read it."""
    product, value = product_of(node), node.outputs[0]
    bias = None if product is None else added_bias(product)
    if bias is not None:
        value = bias[0].outputs[0]
    while not value.is_graph_output() and len(uses := tuple(value.uses())) == 1:
        reader = uses[0].node
        if not is_operator(reader, *LIMITS) or reader.graph is not node.graph:
            break
        value = reader.outputs[0]
    return value


# ---- Groups that share a scale ------------------------------------------------------------------------------------


def _grouped(readers: Readers, scaling: Scaling, recipe: Recipe) -> list[Group]:
    """Return the activations by scale, following those that are only handed on back to where they are computed.

    What a node of ``recipe.shared`` makes has the scale of its operands, and is seen, as they are.
    """
    leader: dict[ir.Value, ir.Value] = {value: value for value in readers}
    sources: dict[ir.Value, None] = {}

    def find(value: ir.Value) -> ir.Value:
        while leader[value] is not value:
            value = leader[value]
        return value

    for value in list(readers):
        joined = _shared_by(value, recipe)
        if joined is not None:
            for place in _operands(joined):
                operand = joined.inputs[place]
                if operand in leader:
                    leader[find(operand)] = find(value)
    waiting = list(readers)
    while waiting:
        value = waiting.pop()
        origin = value.producer()
        moved = [] if origin is None else _handed_on(origin, recipe)
        if origin is None or not moved or any(map(_is_constant, moved)):
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
        group = groups.setdefault(find(value), Group(scaling))
        group.readers[value] = uses
        if value in sources:
            group.sources.append(value)
    return list(groups.values())


def _shared_by(value: ir.Value, recipe: Recipe) -> ir.Node | None:
    """Return the node of ``recipe.shared`` that makes a value, limits left aside."""
    node = value.producer()
    while node is not None and is_operator(node, *LIMITS) and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node if node is not None and matches(node, recipe.shared) else None
