"""Attention and RotaryEmbedding (opset 23): what Transformers do between their products with weights.

Attention is a product of queries and keys, a bias, Softmax, and a product with the values, in stages of the form that
`graft.core.schedule.strategies.attention.fused_attention` takes whole: axes are batch, head, query, then key or
feature.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from graft.core.affine import expressions, text
from graft.core.affine.equations import Equation
from graft.core.graph.view import NodeView, ValueView
from graft.core.operators.definition import build as b
from graft.core.operators.definition import checks as check
from graft.core.operators.definition import demands as demand
from graft.core.operators.definition import index_bounds
from graft.core.operators.definition.cost import elements, per_output, traffic
from graft.core.operators.definition.shape_rules import LIKE_FIRST
from graft.core.operators.definition.table import Cost, Lowering, Trait, define
from graft.core.operators.definition.varying import varying_axis
from graft.core.operators.movement.indexing import position
from graft.core.operators.movement.manipulation import INJECTIVE
from graft.core.operators.products import derivatives as derivative
from graft.core.operators.products import shapes
from graft.core.operators.products.contraction import shape_of
from graft.core.operators.reductions.normalization import exp_of_nonpositive
from graft.core.operators.reductions.reduction import rows, trailing
from graft.core.reject import Reject
from graft.core.tensor_ir.ir import Buffer, Expression, Stage
from graft.core.types import FLOATS, is_custom
from graft.runtime.extents import Extent

Indices = Sequence[Expression]
DTYPES = FLOATS
"""The element types of Attention that are lowered; those of 16 bits are computed in float32 and rounded once."""

# ---- Attention ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Heads:
    """One of the inputs Q, K and V as ``[batch, head, position, feature]``, behind a cache if there is one."""

    source: Buffer
    past: Buffer | None
    heads: int

    @cached_property
    def before(self) -> b.Extent:
        """The number of positions in the cache."""
        return 0 if self.past is None else b.extents(self.past)[2]

    @cached_property
    def shape(self) -> tuple[b.Extent, int, Expression, int]:
        """Batch, heads, positions with those of the cache, features."""
        shape = b.extents(self.source)
        place = len(shape) - 2
        length = b.add(b.extent(shape[place]), self.before)
        (features,) = b.numbers(self.source, place + 1)
        if place == 2:
            return shape[0], b.numbers(self.source, 1, 2)[0], length, features
        return shape[0], self.heads, length, features // self.heads

    @cached_property
    def count(self) -> b.Count:
        """The positions with those of the cache, as a number where they are one."""
        return b.counted(self.shape[2])

    def element(self, batch: Expression, head: Expression, place: Expression, feature: Expression) -> Expression:
        """Return an element."""
        if self.past is None:
            return self._new(batch, head, place, feature)
        before = b.extent(self.before)
        if isinstance(self.before, int):
            old = b.load(self.past, batch, head, b.minimum(place, self.before - 1), feature)
        else:  # there may be none
            old = b.masked_load(self.past, [batch, head, place, feature], [b.less(place, before)])
        new = self._new(batch, head, b.maximum(b.subtract(place, before), 0), feature)
        return b.select(b.less(place, before), old, new)

    def _new(self, batch: Expression, head: Expression, place: Expression, feature: Expression) -> Expression:
        if len(self.source.shape) == 4:
            return b.load(self.source, batch, head, place, feature)
        return b.load(self.source, batch, place, b.add(b.multiply(head, self.shape[3]), feature))


class _Attention:
    """The lowering of one node."""

    def __init__(self, lowering: Lowering) -> None:
        node = self.node = lowering.node
        self.lowering = lowering
        heads = node.attribute("q_num_heads", 0), node.attribute("kv_num_heads", 0)
        self.queries = _Heads(lowering.input(0), None, heads[0])
        self.keys = _Heads(lowering.input(1), lowering.optional(4), heads[1])
        self.values = _Heads(lowering.input(2), lowering.optional(5), heads[1])
        self.group = self.queries.shape[1] // self.keys.shape[1]
        self.kind = b.wide(lowering.input(0).dtype)
        batch, count, length = self.queries.shape[0], self.queries.shape[1], self.queries.count
        self.shape = (batch, count, length, self.keys.count)

    def stages(self) -> tuple[Stage, ...]:
        """Return all stages; optional outputs after those that they are made of."""
        shape, lowering = self.shape, self.lowering
        products = lowering.temporary(self.kind, shape)
        stages = [b.contract(products, [self.queries.shape[3]], self._product)]
        capped = b.compute(lowering.temporary(self.kind, shape), lambda i: self._capped(self._scaled(products, i)))
        biased = b.compute(lowering.temporary(self.kind, shape), lambda i: self._biased(b.load(capped.buffer, *i), i))
        stages += [capped, biased]
        axes = trailing(shape, 3)
        top, total = lowering.temporary(self.kind, axes.kept), lowering.temporary(self.kind, axes.kept)
        weights = lowering.temporary(self.kind, shape)

        def power(i: Indices) -> Expression:
            return exp_of_nonpositive(b.subtract(b.load(biased.buffer, *i), b.load(top, *axes.row(i))))

        # A query that attends to no key has weights of 0, not of 0 / 0.
        stages += [
            rows(top, "max", axes, lambda i: b.load(biased.buffer, *i), lambda t: _or(t, -math.inf, 0)),
            rows(total, "add", axes, power, lambda t: _or(t, 0, 1)),
            b.compute(weights, lambda i: b.divide(power(i), b.load(total, *axes.row(i)))),
        ]
        shown = (lambda i: self._scaled(products, i)), capped.buffer, biased.buffer, weights
        return (
            *stages,
            *self._result(weights),
            *self._optional(shown[self.node.attribute("qk_matmul_output_mode", 0)]),
        )

    def _product(self, axes: Indices, k: Indices) -> Expression:
        batch, head, query, key = axes
        left = self.queries.element(batch, head, query, k[0])
        right = self.keys.element(batch, b.divide(head, self.group), key, k[0])
        return b.multiply(b.cast(left, self.kind), b.cast(right, self.kind))

    def _scaled(self, products: Buffer, i: Indices) -> Expression:
        scale = self.node.attribute("scale", 1 / math.sqrt(self.queries.shape[3]))
        return b.multiply(b.load(products, *i), scale)

    def _capped(self, score: Expression) -> Expression:
        cap = self.node.attribute("softcap", 0.0)
        return b.multiply(b.intrinsic("tanh", b.divide(score, cap)), cap) if cap > 0 else score

    def _biased(self, score: Expression, i: Indices) -> Expression:
        batch, _, query, key = i
        lengths = self.lowering.optional(6)
        offset = b.extent(self.keys.before)
        conditions = []
        if lengths is not None:
            length = b.cast(b.load(lengths, batch), "int64")
            conditions.append(b.less(key, length))
            if self.keys.past is None:
                offset = b.subtract(length, self.shape[2])
        left, right = (self.node.attribute(f"{side}_window_size", -1) for side in ("left", "right"))
        own = b.add(query, offset)
        if self.node.attribute("is_causal", 0):
            conditions.append(b.less_equal(key, own))
        if left >= 0:
            conditions.append(b.less_equal(b.subtract(own, key), left))
        if right >= 0:
            conditions.append(b.less_equal(b.subtract(key, own), right))
        return self._masked(score, i, conditions)

    def _masked(self, score: Expression, i: Indices, conditions: list[Expression]) -> Expression:
        """The score with the mask added (of a bool one: chosen), and minus infinity where a condition fails.

        A mask that is shorter than there are keys goes on with minus infinity, one of a single key too.
        """
        mask = self.lowering.optional(3)
        if mask is not None:
            width = b.extents(mask)[-1]
            place = [*i]
            if not _masks_all_keys(self.node):
                conditions.append(b.less(i[3], b.extent(width)))
                place[3] = b.minimum(i[3], b.subtract(b.extent(width), 1))
            entry = b.broadcast(mask, place, (*self.shape[:3], width))
            if mask.dtype == "bool":
                conditions.append(entry)
            else:
                score = b.add(score, b.cast(entry, self.kind))
        allowed = b.all_of(conditions)
        return score if allowed is None else b.select(allowed, score, -math.inf)

    def _result(self, weights: Buffer) -> list[Stage]:
        batch, heads, length, _ = self.shape
        size, target = self.values.shape[3], self.lowering.output()

        def value(axes: Indices, k: Indices) -> Expression:
            of = self.values.element(axes[0], b.divide(axes[1], self.group), k[0], axes[3])
            return b.multiply(b.load(weights, *axes[:3], *k), b.cast(of, self.kind))

        whole = len(target.shape) == 4
        sums = (
            target
            if whole and target.dtype == self.kind
            else self.lowering.temporary(self.kind, (batch, heads, length, size))
        )
        stages = [b.contract(sums, [self.shape[3]], value)]
        if not whole:
            stages.append(
                b.compute(target, lambda i: b.load(sums, i[0], b.divide(i[2], size), i[1], b.modulo(i[2], size)))
            )
        elif sums is not target:
            stages.append(b.compute(target, lambda i: b.load(sums, *i)))
        return stages

    def _optional(self, scores: Buffer | Callable[[Indices], Expression]) -> list[Stage]:
        """The caches with the new keys and values, and the scores in the form that the node asks for."""
        stages = []
        for number, source in ((1, self.keys), (2, self.values)):
            present = self.lowering.optional_output(number)
            if present is not None:
                stages.append(b.compute(present, lambda i, of=source: of.element(*i)))  # type: ignore[misc]
        shown = self.lowering.optional_output(3)
        if shown is not None:
            stages.append(b.compute(shown, lambda i: b.load(scores, *i) if isinstance(scores, Buffer) else scores(i)))
        return stages


def _or(value: Expression, number: float, instead: float) -> Expression:
    return b.select(b.equal(value, number), b.constant(instead, value.type.dtype), value)


def _lower_attention(lowering: Lowering) -> tuple[Stage, ...]:
    return _Attention(lowering).stages()


def _attention_cost(node: NodeView) -> Cost:
    queries, keys = shape_of(node.input(0)), shape_of(node.input(1))
    terms = keys[-2] + (shape_of(node.input(4))[2] if node.input(4) is not None else 0)
    heads = queries[1] if len(queries) == 4 else node.attribute("q_num_heads")
    scores = elements(node.input(0)) * terms + elements(node.outputs[0]) * terms
    return Cost(2 * scores + 20 * queries[0] * heads * queries[-2] * terms, traffic(node))


def _accept_attention(node: NodeView) -> Reject | None:
    dtypes = {value.dtype for value in (*node.inputs[:3], node.outputs[0]) if value is not None}
    if len(dtypes) != 1 or not (dtypes <= DTYPES or all(map(is_custom, dtypes))):
        listed = ", ".join(sorted(dtypes))
        return Reject("dtype", f"Attention of {listed}; floats or a custom type throughout are lowered")
    return None


def _attention_varies(node: NodeView) -> Reject | None:
    """Take any batch and lengths; heads and their sizes are numbers."""
    shapes = {
        number: value.shape or () for number, value in enumerate(node.inputs) if value is not None and value.shape
    }
    for number in {0, 1, 2, 4, 5} & shapes.keys():
        value, shape = node.inputs[number], shapes[number]
        assert value is not None, node.where
        for axis in (*([1] if len(shape) == 4 else []), len(shape) - 1):
            if not isinstance(shape[axis], int):
                return varying_axis(node, value, axis)
    return None


def _masks_all_keys(node: NodeView) -> bool:
    """Whether the mask surely has an entry for each key, those of the cache among them."""
    mask, new, past = (None if one is None else one.shape for one in map(node.input, (3, 1, 4)))
    if not mask or not new:
        return False
    return mask[-1] == (_sum_of(past[2], new[-2]) if past else new[-2])


def _sum_of(left: int | str | None, right: int | str | None) -> int | str | None:
    """Return the sum of two dimensions as shape inference writes it."""
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    both = [text.parsed(str(one)) for one in (left, right)]
    known = [one for one in both if one is not None]
    return text.text(expressions.add(*known)) if len(known) == 2 else None


def _attention_demands(node: NodeView) -> Iterator[Equation]:
    """One batch, keys with values, heads of one size, shared by whole groups, and a mask that fits the scores."""
    whole = [demand.rank_of(node.input(number)) == 4 for number in range(3)]
    heads = [node.attribute(name, 0) or None for name in ("q_num_heads", "kv_num_heads")]
    yield from _grouped(*(demand.operand(node, number, 1) if whole[number] else heads[number] for number in range(2)))
    yield from demand.all_of(demand.same(1, 0, 0, 0), demand.same(2, 0, 0, 0), demand.same(2, -2, 1, -2))(node)
    if all(whole):
        yield from demand.all_of(demand.same(2, 1, 1, 1), demand.same(1, 3, 0, 3))(node)
    elif not any(whole):
        key, query = demand.operand(node, 1, 2), demand.operand(node, 0, 2)
        yield from demand.equation(demand.times(key, heads[0]), demand.times(query, heads[1]))
    yield from demand.all_of(
        demand.same(4, 0, 0, 0), demand.same(5, 0, 0, 0), demand.same(5, 1, 4, 1), demand.same(5, 2, 4, 2),
        demand.same(6, 0, 0, 0),
    )(node)  # fmt: skip
    for past, given in ((4, 1), (5, 2)):
        if whole[given]:
            yield from demand.all_of(demand.same(past, 1, given, 1), demand.same(past, 3, given, 3))(node)
        elif heads[1]:
            features = demand.times(demand.operand(node, past, 3), heads[1])
            yield from demand.counted(past, 1, heads[1])(node)
            yield from demand.equation(features, demand.operand(node, given, 2))
    total = demand.operand(node, 1, -2)
    if node.input(4) is not None:
        total = demand.plus(demand.operand(node, 4, 2), total)
    if not _masks_all_keys(node):
        yield from demand.equation(1, demand.operand(node, 3, -1), "at most")
        yield from demand.equation(demand.operand(node, 3, -1), total, "at most")
    for axis, wanted in (
        (-2, demand.operand(node, 0, -2)),
        (-3, demand.operand(node, 0, 1) if whole[0] else heads[0]),
        (-4, demand.operand(node, 0, 0)),
    ):
        yield from demand.equation(demand.operand(node, 3, axis), wanted, "expand")


def _grouped(queries: Extent | None, keys: Extent | None) -> Iterator[Equation]:
    """Each head of keys belongs to as many heads of queries."""
    if queries is not None and keys is not None:
        groups = expressions.floordiv(queries, expressions.maximum(keys, 1))
        says = "queries have ", " heads, which keys share in groups: ", " would be a multiple of theirs"
        yield Equation(queries, expressions.multiply(keys, groups), says=says)


def _heads(*names: str) -> check.Fault:
    """Attention over ``[batch, position, head * feature]`` says how many heads, which divide the last axis."""

    def rule(node: NodeView) -> str | None:
        for number, name in enumerate(names):
            value, given = node.input(number), node.attribute(name, 0)
            last = None if value is None or value.rank != 3 or value.shape is None else value.shape[-1]
            if value is not None and isinstance(last, int) and (given < 1 or last % given):
                return f"{name} is {given}, which does not divide the last axis of '{value.name}', of extent {last}"
        return None

    return rule


def _cache_lengths(node: NodeView) -> Iterable[index_bounds.IndexBound]:
    """The lengths of caches are within them."""
    if node.input(6) is not None:
        past = 0 if node.input(4) is None else index_bounds.extent_of(node, 4, 2)
        extent = index_bounds.plus(past, index_bounds.extent_of(node, 1, -2))
        yield index_bounds.IndexBound(6, -2 % len(index_bounds.extents(node, 1)), extent, 0, extent)


define(
    "Attention",
    frozenset({Trait.ATTENTION}),
    _lower_attention,
    _attention_cost,
    _accept_attention,
    varies=_attention_varies,
    demands=_attention_demands,
    shapes=shapes.attention,
    attributes=(
        _heads("q_num_heads", "kv_num_heads", "kv_num_heads"),
        check.one_of("qk_matmul_output_mode", 0, 1, 2, 3),
    ),
    asked_when_loaded=True,
    indices=_cache_lengths,
)

# ---- Rotary embedding ---------------------------------------------------------------------------------------------


def _lower_rotary(lowering: Lowering) -> tuple[Stage, ...]:
    """Pairs ``(x, y)`` of features become ``(cos x - sin y, sin x + cos y)`` by the angle of their position."""
    source, cosines, sines, places = lowering.input(0), lowering.input(1), lowering.input(2), lowering.optional(3)
    node, rank = lowering.node, len(source.shape)
    (features,) = b.numbers(source, rank - 1)
    size = features if rank == 4 else features // node.attribute("num_heads")
    rotated = node.attribute("rotary_embedding_dim", 0) or size
    interleaved, half = bool(node.attribute("interleaved", 0)), rotated // 2
    kind = b.wide(source.dtype)

    def angle(cache: Buffer, i: Indices, pair: Expression) -> Expression:
        if places is None:
            return b.cast(b.load(cache, *_shared(cache, source, i[0], i[-2]), pair), kind)
        chosen = position(b.load(places, *_shared(places, source, i[0], i[-2])), b.extents(cache)[0])
        return b.cast(b.load(cache, chosen, pair), kind)

    def value(i: Indices) -> Expression:
        feature = i[3] if rank == 4 else b.modulo(i[2], size)
        start = b.subtract(i[-1], feature)
        inside = b.minimum(feature, rotated - 1)
        pair = b.divide(inside, 2) if interleaved else b.modulo(inside, half)
        second = b.equal(b.modulo(inside, 2), 1) if interleaved else b.greater_equal(inside, half)
        first_at = b.multiply(pair, 2) if interleaved else pair

        def of(place: Expression) -> Expression:
            return b.cast(b.load(source, *i[:-1], b.add(start, place)), kind)

        x, y = of(first_at), of(b.add(first_at, 1 if interleaved else half))
        cosine, sine = angle(cosines, i, pair), angle(sines, i, pair)
        real = b.subtract(b.multiply(cosine, x), b.multiply(sine, y))
        imaginary = b.add(b.multiply(sine, x), b.multiply(cosine, y))
        result = b.cast(b.select(second, imaginary, real), source.dtype)
        return result if rotated == size else b.select(b.less(feature, rotated), result, b.load(source, *i))

    return (b.compute(lowering.output(), value),)


def _shared(buffer: Buffer, source: Buffer, batch: Expression, place: Expression) -> tuple[Expression, ...]:
    """Return where angles or positions lie: those of one batch, or of one place, are those of all."""
    extents = b.extents(source)
    triples = zip(b.extents(buffer), (extents[0], extents[-2]), (batch, place), strict=False)
    return tuple(b.index(0) if own == 1 else b.broadcast_place(own, wanted, axis) for own, wanted, axis in triples)


def _name(node: NodeView) -> str:
    source = node.input(0)
    return "" if source is None else source.name


def _accept_rotary(node: NodeView) -> Reject | None:
    """Take angles or positions for each batch and place, or for all."""
    for value, axis, own, wanted in _rotary_extents(node):
        if isinstance(own, int) and isinstance(wanted, int) and own not in (1, wanted):
            return Reject("shape", f"axis {axis} of '{value.name}' is {own} where '{_name(node)}' has {wanted}")
    return None


def _rotary_extents(node: NodeView) -> Iterator[tuple[ValueView, int, int | str | None, int | str | None]]:
    """Yield the batch and the length of angles or positions beside those of the input."""
    source, places = node.input(0), node.input(3)
    shape = (source.shape or ()) if source is not None else ()
    for value in (places,) if places is not None else (node.input(1), node.input(2)):
        if value is not None and value.shape is not None and shape:
            for axis, wanted in enumerate((shape[0], shape[-2])):
                yield value, axis, value.shape[axis], wanted


def _rotary_varies(node: NodeView) -> Reject | None:
    """Take any batch and length; features are numbers."""
    for number, value in enumerate(node.inputs):
        own = () if value is None or value.shape is None else value.shape
        if value is not None and number != 3 and own and not isinstance(own[-1], int):
            return varying_axis(node, value, len(own) - 1)
    return None


def _rotary_demands(node: NodeView) -> Iterator[Equation]:
    """Cosines with sines, one for each pair of features that is rotated; theirs or positions for each place, or all."""
    yield from demand.alike(2, 1)(node)
    size = demand.operand(node, 0, -1)
    rotated, heads = int(node.attribute("rotary_embedding_dim", 0)), int(node.attribute("num_heads", 0))
    pairs = demand.times(demand.operand(node, 1, -1), 2)
    if rotated or demand.rank_of(node.input(0)) == 4:
        yield from demand.equation(pairs, rotated or size)
    elif heads:
        yield from demand.equation(demand.times(pairs, heads), size)
    for number in (3,) if node.input(3) is not None else (1, 2):
        yield from demand.equation(demand.operand(node, number, 0), demand.operand(node, 0, 0), "expand")
        yield from demand.equation(demand.operand(node, number, 1), demand.operand(node, 0, -2), "expand")


def _positions(node: NodeView) -> Iterable[index_bounds.IndexBound]:
    """Positions lie in the table of cosines."""
    if node.input(3) is not None:
        extent = index_bounds.extent_of(node, 1, 0)
        yield index_bounds.IndexBound(3, 0, extent, 0, index_bounds.plus(extent, -1))


define(
    "RotaryEmbedding", INJECTIVE, _lower_rotary, per_output(6), _accept_rotary, varies=_rotary_varies,
    demands=_rotary_demands, shapes=LIKE_FIRST,
    attributes=(check.at_least(0, "rotary_embedding_dim"), _heads("num_heads")), indices=_positions,
    vjp=derivative.rotated,
)  # fmt: skip
