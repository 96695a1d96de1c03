"""From scalar loops to vector code: ``vector`` and ``unrolled`` loops are replaced by what they stand for.

Schedules write scalar loops and mark them; these functions give the vectors. After `lower_loops` a function has only
``serial`` and ``parallel`` loops left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from graft.core.lazy import Lazy
from graft.core.machine.instructions import DOTS
from graft.core.schedule.primitives.step import bounded, combine
from graft.core.tensor_ir import ir, visit
from graft.core.tensor_ir.rewriting.algebra import splat_value
from graft.core.tensor_ir.rewriting.simplify import LARGEST, Simplifier, simplify, simplify_statement
from graft.core.types import INT64, Type


def vectorize_expression(
    expression: ir.Expression, values: Mapping[ir.Variable, ir.Expression], mask: ir.Expression | None = None
) -> ir.Expression:
    """Return the expression with variables replaced by vectors: operands that stay scalar are broadcast where needed.

    ``values`` maps variables to vectors (a `Ramp`, a vector variable) or to scalars. ``mask`` is added to every `Load`:
    lanes that are off are not read.
    """
    return vectorizer(values, mask)(expression)


def guarded(expression: ir.Expression, mask: ir.Expression | None, moving: Collection[ir.Variable]) -> ir.Expression:
    """Return the expression with a mask at each `Load` whose place depends on one of the variables ``moving``."""

    def rule(node: ir.Expression) -> ir.Expression:
        if isinstance(node, ir.Load) and not visit.free_variables(*node.indices).isdisjoint(moving):
            return replace(node, mask=both(node.mask, mask))
        return node

    return visit.ExpressionMap(rule)(expression)


def vectorizer(values: Mapping[ir.Variable, ir.Expression], mask: ir.Expression | None = None) -> visit.ExpressionMap:
    """Return the map behind `vectorize_expression`, to be applied to several expressions that share parts."""

    def rule(node: ir.Expression) -> ir.Expression:
        if isinstance(node, ir.Variable):
            return values.get(node, node)
        if isinstance(node, ir.Load):
            return vector_load(node, mask)
        return align(node)

    return visit.ExpressionMap(rule)


def align(node: ir.Expression) -> ir.Expression:
    """Broadcast the scalar operands of an operation that has a vector operand."""
    operands = visit.children(node)
    if isinstance(node, ir.Intrinsic) and node.name in DOTS:
        return _align_groups(node, operands)
    lanes = max((operand.type.lanes for operand in operands), default=1)
    if lanes == 1:
        return node
    if any(operand.type.lanes != lanes for operand in operands):
        if isinstance(node, ir.Binary) and node.operator == "add":  # one operand alone has lanes
            scalar, vector = sorted(operands, key=lambda operand: operand.type.lanes)
            if isinstance(vector, ir.Ramp):
                return replace(vector, base=combine("add", scalar, vector.base))
        assert not isinstance(node, ir.Horizontal | ir.Shuffle | ir.Ramp), (
            f"a {type(node).__name__} cannot become wider"
        )
        operands = tuple(broadcast(operand, lanes) for operand in operands)
    return visit.in_lanes(node, operands, lanes)


def _align_groups(node: ir.Intrinsic, operands: tuple[ir.Expression, ...]) -> ir.Expression:
    """Return a dot product in as many lanes as its sum or its operands have groups: others are words in all lanes."""
    total, *groups = operands
    width = DOTS[node.name].width
    lanes = max(total.type.lanes, *(one.type.lanes // width for one in groups))
    wide: list[ir.Expression] = [broadcast(total, lanes)]
    for one in groups:
        if one.type.lanes != width * lanes:
            assert isinstance(one, ir.Bitcast), f"{one.type} cannot become {lanes} groups"
            one = replace(one, value=broadcast(one.value, lanes))
        wide.append(one)
    return ir.Intrinsic(node.name, tuple(wide), node.type.with_lanes(lanes))


def broadcast(expression: ir.Expression, lanes: int) -> ir.Expression:
    """Return the expression in ``lanes`` lanes: itself if it has them, else the broadcast of the scalar."""
    if expression.type.lanes == lanes:
        return expression
    assert expression.type.lanes == 1, f"{expression.type} cannot become {lanes} lanes"
    return ir.Broadcast(expression, lanes)


def both(left: ir.Expression | None, right: ir.Expression | None) -> ir.Expression | None:
    """Return the conjunction of two masks, either of which may be absent or scalar."""
    if left is None or right is None:
        return left if right is None else right
    return align(ir.Binary("and", left, right))


def vector_load(load: ir.Load, mask: ir.Expression | None = None) -> ir.Expression:
    """Return a load whose indices are vectors now, with its mask, and ``mask``, in as many lanes."""
    switch = both(load.mask, mask)
    lanes = max((index.type.lanes for index in load.indices), default=1)
    if switch is None:
        return load
    if lanes > 1:
        return ir.Load(load.buffer, load.indices, broadcast(switch, lanes))
    if switch.type.lanes == 1:
        return ir.Load(load.buffer, load.indices, switch)
    # One element for many lanes: read it once if any lane wants it.
    scalar = ir.Load(load.buffer, load.indices, ir.Horizontal("or", switch))
    if load.mask is None:  # lanes that are off take no part: their values are nobody's, and what is scalar stays so
        return scalar
    zero = zero_of(scalar.type)
    lanes = switch.type.lanes
    return ir.Select(switch, ir.Broadcast(scalar, lanes), ir.Broadcast(zero, lanes))


def zero_of(kind: Type) -> ir.Constant:
    """Return the scalar zero of an element type."""
    if kind.dtype == "bool":
        return ir.Constant(False, kind.with_lanes(1))
    return ir.Constant(0.0 if kind.is_float else 0, kind.with_lanes(1))


class _Lanes:
    """A vector loop's body for all lanes at once; ``known`` gives the bounds of the loops around."""

    def __init__(self, variable: ir.Variable, count: int, known: Lazy[Simplifier]) -> None:
        self.known = known
        self.lanes = ir.Ramp(ir.Constant(0, INT64), 1, count)
        self.values: dict[ir.Variable, ir.Expression] = {variable: self.lanes}
        self.private: dict[ir.Buffer, tuple[ir.Buffer, ir.Expression | None]] = {}
        """What lanes have for themselves: the buffer with a place for each, and the mask where it is allocated."""
        self.maps: dict[int, tuple[ir.Expression | None, visit.ExpressionMap]] = {}
        self.wide: dict[ir.Variable, ir.Variable] = {}
        """What a variable that is the same in all lanes is as a vector, which is made once, where it is bound ..."""
        self.used: set[ir.Variable] = set()
        """... if it is used."""

    def _map(self, mask: ir.Expression | None) -> visit.ExpressionMap:
        """Return the map of expressions that are evaluated under a mask."""

        def rule(node: ir.Expression) -> ir.Expression:
            if isinstance(node, ir.Variable):
                return self.values.get(node, node)
            if isinstance(node, ir.Load):
                buffer, indices = self._place(node)
                # Registers that are there for each lane can be read by all, so that they can stay registers.
                is_open = buffer.memory == "register" or self._is_own(node.buffer, mask)
                return vector_load(ir.Load(buffer, indices, node.mask), self._mask(is_open, buffer, indices, mask))
            return align(self._widened(node))

        return self.maps.setdefault(id(mask), (mask, visit.ExpressionMap(rule)))[1]

    def _widened(self, node: ir.Expression) -> ir.Expression:
        """Return an operation on vectors that reads what is the same in all lanes as vectors, too."""
        operands = visit.children(node)
        wide = [self.wide.get(one) if isinstance(one, ir.Variable) else None for one in operands]
        if not any(wide) or all(one.type.lanes == 1 for one in operands):
            return node
        self.used.update(one for one in wide if one is not None)
        return visit.with_children(node, tuple(new or old for new, old in zip(wide, operands, strict=True)))

    def _place(self, access: ir.Load | ir.Store) -> tuple[ir.Buffer, tuple[ir.Expression, ...]]:
        if access.buffer not in self.private:
            return access.buffer, access.indices
        return self.private[access.buffer][0], (*access.indices, self.lanes)

    def _is_own(self, buffer: ir.Buffer, mask: ir.Expression | None) -> bool:
        """Whether each lane has memory of its own in which lanes that are off were so when it was allocated."""
        return buffer in self.private and self.private[buffer][1] is mask

    def _mask(
        self, is_open: bool, buffer: ir.Buffer, indices: Sequence[ir.Expression], mask: ir.Expression | None
    ) -> ir.Expression | None:
        """Return the mask of an access: none to memory open to lanes that are off, if they stay inside of it."""
        if mask is None or not is_open:
            return mask
        simplifier = self.known.value
        for index, extent in zip(indices, buffer.shape, strict=True):
            bounds = simplifier.interval(simplifier(index))
            if bounds is None or bounds[0] < 0 or not isinstance(extent, ir.Constant) or bounds[1] >= extent.value:
                return mask
        return None

    def statement(self, statement: ir.Statement, mask: ir.Expression | None = None) -> ir.Statement:
        """Return the statement for all lanes.

        ``mask`` switches off loads and stores; an `If` on a vector condition becomes masks. A store whose place does
        not depend on the lanes must not store a vector, unless it is to memory that each lane has for itself.
        """
        vector = self._map(mask)
        match statement:
            case ir.Store():
                mapped = visit.with_parts(statement, vector, self.statement)
                assert isinstance(mapped, ir.Store), mapped
                home, places = self._place(mapped)
                own = self._mask(self._is_own(mapped.buffer, mask), home, places, mask)
                stored = replace(mapped, buffer=home, indices=places)
                if home.memory == "register" and self._mask(True, home, places, own) is not own:
                    return _kept(stored, own)
                return _vector_store(stored, own)
            case ir.Let(variable, value, body):
                bound = vector(value)
                fresh = self.values[variable] = ir.Variable(variable.name, bound.type)
                if bound.type.lanes > 1 or not bound.type.is_float:
                    return ir.Let(fresh, bound, self.statement(body, mask))
                wide = self.wide[fresh] = ir.Variable(variable.name, bound.type.with_lanes(self.lanes.lanes))
                inner = self.statement(body, mask)
                if wide in self.used:
                    inner = ir.Let(wide, ir.Broadcast(fresh, self.lanes.lanes), inner)
                return ir.Let(fresh, bound, inner)
            case ir.For(variable, extent):
                assert vector(extent).type.lanes == 1, f"the extent of loop '{variable.name}' differs from lane to lane"
            case ir.If(condition, then_body, else_body) if (test := vector(condition)).type.lanes > 1:
                then = self.statement(then_body, both(mask, test))
                if else_body is None:
                    return then
                return ir.Block((then, self.statement(else_body, both(mask, ir.Unary("not", test)))))
            case ir.Allocate(buffer, body):
                row = replace(buffer, shape=(*buffer.shape, ir.Constant(self.lanes.lanes, INT64)))
                self.private[buffer] = (row, mask)
                return ir.Allocate(row, self.statement(body, mask))
        if isinstance(statement, ir.CallExtern | ir.Barrier | ir.Issue | ir.Push | ir.Pop):
            raise AssertionError(f"a {type(statement).__name__} cannot be vectorised")
        return visit.with_parts(statement, vector, lambda inner: self.statement(inner, mask))


def _kept(store: ir.Store, mask: ir.Expression | None) -> ir.Store:
    """Return a store to registers that keeps those of lanes that are off: they are stored as they were."""
    full = _vector_store(store, mask)
    if full.mask is None or full.mask.type.lanes == 1:
        return full
    old = ir.Load(full.buffer, full.indices)
    return replace(full, value=ir.Select(full.mask, full.value, old), mask=None)


def _vector_store(store: ir.Store, mask: ir.Expression | None) -> ir.Store:
    lanes = max((index.type.lanes for index in store.indices), default=1)
    switch = both(store.mask, mask)
    if lanes == 1:
        assert store.value.type.lanes == 1, f"all lanes store to one element of '{store.buffer.name}'"
        if switch is not None and switch.type.lanes > 1:
            switch = ir.Horizontal("or", switch)
        return replace(store, mask=switch)
    return replace(
        store, value=broadcast(store.value, lanes), mask=None if switch is None else broadcast(switch, lanes)
    )


def lower_loops(statement: ir.Statement, whole: ir.Statement | None = None) -> ir.Statement:
    """Replace ``vector`` loops by vector code and ``unrolled`` loops by copies of their bodies, innermost first.

    ``whole`` is what the statement is a part of, whose loops say where its places lie.
    """
    known = Lazy(lambda: bounded(whole or statement))

    def rule(inner: ir.Statement) -> ir.Statement:
        if isinstance(inner, ir.For) and inner.kind in ("vector", "unrolled"):
            assert isinstance(inner.extent, ir.Constant), (
                f"the extent of {inner.kind} loop '{inner.variable.name}' varies"
            )
            count = int(inner.extent.value)
            if inner.kind == "vector" and count > 1:
                return _Lanes(inner.variable, count, known).statement(inner.body)
            values = ({inner.variable: ir.Constant(step, INT64)} for step in range(count))
            if any(isinstance(one, ir.For | ir.Let | ir.Allocate) for one in visit.walk_statements(inner.body)):
                return ir.Block(tuple(instantiate(inner.body, one) for one in values))
            return ir.Block(tuple(visit.map_statement(inner.body, visit.substitution(one)) for one in values))
        return inner

    return visit.map_nested(statement, rule)


def lowered(function: ir.Function) -> ir.Function:
    """Return a function with vectors and copies in the place of such loops, simplified."""
    return replace(function, body=simplify_statement(lower_loops(simplify_statement(function.body))))


def finished(body: ir.Statement, parameters: Iterable[ir.Buffer] = ()) -> ir.Statement:
    """Return `lower_loops` of a statement, simplified, with variables and buffers of its own in each copy.

    ``parameters`` are the buffers whose extents occur in it: none is negative.
    """
    symbols = visit.free_variables(*(extent for buffer in parameters for extent in buffer.shape))
    return instantiate(simplify_statement(lower_loops(body), dict.fromkeys(symbols, (0, LARGEST - 1))), {})


def instantiate(
    statement: ir.Statement,
    values: Mapping[ir.Variable, ir.Expression],
    buffers: Mapping[ir.Buffer, ir.Buffer] | None = None,
) -> ir.Statement:
    """Return a copy with variables and buffers replaced; those that are bound inside get fresh identities."""
    homes = buffers or {}

    def rule(node: ir.Expression) -> ir.Expression:
        if isinstance(node, ir.Variable):
            return values.get(node, node)
        if isinstance(node, ir.Load) and node.buffer in homes:
            return replace(node, buffer=homes[node.buffer])
        return node

    def bound(variable: ir.Variable) -> ir.Variable:
        nonlocal values
        fresh = ir.Variable(variable.name, variable.type)
        values = {**values, variable: fresh}
        return fresh

    def home(buffer: ir.Buffer) -> ir.Buffer:
        nonlocal homes
        if isinstance(statement, ir.Allocate):
            homes = {**homes, buffer: replace(buffer, shape=tuple(map(expression, buffer.shape)))}
        return homes.get(buffer, buffer)

    expression = visit.ExpressionMap(rule)
    return visit.with_parts(statement, expression, lambda inner: instantiate(inner, values, homes), bound, home)


def jammed(statement: ir.Statement, variable: ir.Variable, count: int) -> ir.Statement:
    """Return copies of a statement for the values of a variable below ``count`` side by side: unroll and jam.

    Loops inside run once for all copies, unless their extents differ; what is allocated inside has a place for each.
    """
    return _Jam(variable, count).statement(statement) if count else ir.Block(())


class _Jam:
    def __init__(self, variable: ir.Variable, count: int) -> None:
        self.values: list[dict[ir.Variable, ir.Expression]] = [{variable: ir.Constant(n, INT64)} for n in range(count)]
        self.maps = [visit.ExpressionMap(partial(self._rule, number)) for number in range(count)]
        self.private: dict[ir.Buffer, ir.Buffer] = {}

    def _rule(self, number: int, node: ir.Expression) -> ir.Expression:
        if isinstance(node, ir.Variable):
            return self.values[number].get(node, node)
        if isinstance(node, ir.Load) and node.buffer in self.private:
            return replace(node, buffer=self.private[node.buffer], indices=(ir.Constant(number, INT64), *node.indices))
        return node

    def _copy(self, statement: ir.Statement, number: int) -> ir.Statement:
        def rule(inner: ir.Statement) -> ir.Statement:
            if isinstance(inner, ir.Store) and inner.mask is not None and splat_value(simplify(inner.mask)):
                inner = replace(inner, mask=None)  # all lanes of this copy are on
            if isinstance(inner, ir.Store) and inner.buffer in self.private:
                place = (ir.Constant(number, INT64), *inner.indices)
                return replace(inner, buffer=self.private[inner.buffer], indices=place)
            return inner

        copy = visit.map_statement(statement, self.maps[number], rule)
        return copy if isinstance(copy, ir.Store) else instantiate(copy, {})

    def statement(self, statement: ir.Statement) -> ir.Statement:
        """Return the copies of a statement."""
        if isinstance(statement, ir.Block | ir.For | ir.If | ir.Let) and all(
            copy(one) is one for one in visit.statement_expressions(statement) for copy in self.maps
        ):
            return visit.with_parts(statement, lambda expression: expression, self.statement)
        match statement:
            case ir.Allocate(buffer, body):
                places = (ir.Constant(len(self.maps), INT64), *buffer.shape)
                self.private[buffer] = replace(buffer, shape=places)
                return ir.Allocate(self.private[buffer], self.statement(body))
            case ir.Let(variable, value, body):
                fresh = [ir.Variable(variable.name, variable.type) for _ in self.maps]
                for values, one in zip(self.values, fresh, strict=True):
                    values[variable] = one
                inner = self.statement(body)
                for one, copy in zip(reversed(fresh), reversed(self.maps), strict=True):
                    inner = ir.Let(one, copy(value), inner)
                return inner
        return ir.Block(tuple(self._copy(statement, number) for number in range(len(self.maps))))
