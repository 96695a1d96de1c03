"""Simplification: constants folded, index arithmetic shortened by what the extents of loops say.

Results are interned: within one `Simplifier` two equal subexpressions become one object, so what comes out shares as
much as it can. Floating-point values never change, not even in the last bit or in the sign of zero.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace

from graft.core.affine.linear import Interval, Linear, divide
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.rewriting.algebra import binary_bounds, decide, fold, identity, splat_value, unbroadcast
from graft.core.tensor_ir.statements import bind
from graft.core.tensor_ir.visit import (
    ExpressionMap,
    chain_of_lets,
    children,
    map_statement,
    structural_key,
)
from graft.core.types import BOOL, INT64, Type

LARGEST = 1 << 40
"""More than any extent or index is."""
_LIMITS = {"bool": (0, 1), "int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535),
           "int32": (-(1 << 31), (1 << 31) - 1), "uint32": (0, (1 << 32) - 1)}  # fmt: skip
_EXACT_IN = {"float16": ("float32", "float64"), "bfloat16": ("float32", "float64"), "float32": ("float64",)}


def simplify(expression: ir.Expression, ranges: Mapping[ir.Variable, Interval] | None = None) -> ir.Expression:
    """Return an equal, smaller expression; ``ranges`` bounds variables, both ends included."""
    return Simplifier(ranges)(expression)


def simplify_function(function: ir.Function) -> ir.Function:
    """Return the function with its body simplified."""
    body = simplify_statement(function.body)
    return replace(function, body=body)


def simplify_statement(statement: ir.Statement, ranges: Mapping[ir.Variable, Interval] | None = None) -> ir.Statement:
    """Return an equal statement: expressions simplified, loops of one iteration and dead branches gone."""
    return _simplify_statement(statement, Simplifier(ranges))


def _simplify_statement(statement: ir.Statement, simplifier: Simplifier) -> ir.Statement:
    def walk(inner: ir.Statement) -> ir.Statement:
        return _simplify_statement(inner, simplifier)

    match statement:
        case ir.For(variable, extent, kind, body, binding):
            count = simplifier(extent)
            bounds = simplifier.interval(count)
            if bounds is not None and bounds[1] <= 0:
                return ir.Block(())
            inner = simplifier.with_range(variable, (0, (LARGEST if bounds is None else bounds[1]) - 1))
            new_body = _simplify_statement(body, inner)
            if new_body == ir.Block(()) or (count == ir.Constant(1, INT64) and not binding):
                return new_body
            return ir.For(variable, count, kind, new_body, binding)
        case ir.If(condition, then_body, else_body):
            test = simplifier(condition)
            if isinstance(test, ir.Constant):
                return walk(then_body) if test.value else ir.Block(()) if else_body is None else walk(else_body)
            return ir.If(test, walk(then_body), None if else_body is None else walk(else_body))
        case ir.Let():
            return _simplify_lets(statement, simplifier)
        case ir.Allocate(buffer, body):
            return ir.Allocate(buffer, walk(body))
        case ir.Block(statements):
            flat: list[ir.Statement] = []
            for new in map(walk, statements):
                flat.extend(new.statements if isinstance(new, ir.Block) else [new])
            return flat[0] if len(flat) == 1 else ir.Block(tuple(flat))
        case ir.Store(buffer, indices, value, mask):
            switch = None if mask is None else simplifier(mask)
            if switch is not None and splat_value(switch) is not None:
                if not splat_value(switch):
                    return ir.Block(())
                switch = None if access_is_vector(indices, simplifier) or switch.type.lanes == 1 else switch
            return ir.Store(buffer, tuple(map(simplifier, indices)), simplifier(value), switch)
        case _:
            return map_statement(statement, simplifier)


def _simplify_lets(statement: ir.Statement, simplifier: Simplifier) -> ir.Statement:
    chain, inner = chain_of_lets(statement)
    kept = []
    for one in chain:
        bound = simplifier(one.value)
        if isinstance(bound, ir.Constant | ir.Variable):
            simplifier = simplifier.with_value(one.variable, bound)
            continue
        kept.append((one.variable, bound))
        bounds = simplifier.interval(bound) if bound.type == INT64 else None
        simplifier = simplifier.with_range(one.variable, bounds)
    return bind(kept, _simplify_statement(inner, simplifier))


def access_is_vector(indices: tuple[ir.Expression, ...], simplifier: Simplifier) -> bool:
    """Whether the simplified indices still hold a vector, so that a mask is not needed to say the lanes."""
    return any(simplifier(index).type.lanes > 1 for index in indices)


class Simplifier(ExpressionMap):
    """Simplifies expressions under bounds on variables; remembers results by identity."""

    def __init__(self, ranges: Mapping[ir.Variable, Interval] | None = None) -> None:
        self._known = {}
        self.ranges: dict[ir.Variable, Interval | None] = dict(ranges or {})
        self.values: dict[ir.Variable, ir.Expression] = {}
        self._interned: dict[Hashable, ir.Expression] = {}
        self._forms: dict[int, tuple[ir.Expression, Linear[int]]] = {}
        self._atoms: list[ir.Expression] = []
        self._numbers: dict[int, int] = {}
        self._bounds: dict[int, Interval | None] = {}

    def with_range(self, variable: ir.Variable, bounds: Interval | None) -> Simplifier:
        """Return a simplifier that knows the bounds of a variable: this one, unless it knew others."""
        if variable in self.ranges or variable in self.values:
            if self.ranges.get(variable) == bounds and variable not in self.values:
                return self
            ranges = {**self.ranges, variable: bounds}
            other = Simplifier({key: value for key, value in ranges.items() if value is not None})
            other.values = {key: value for key, value in self.values.items() if key is not variable}
            return other
        self.ranges[variable] = bounds
        return self

    def with_value(self, variable: ir.Variable, value: ir.Expression) -> Simplifier:
        """Return a simplifier that replaces a variable."""
        other = self.with_range(variable, None)
        other.values[variable] = value
        return other

    def rule(self, expression: ir.Expression) -> ir.Expression:
        """Return an expression whose operands are simplified in its simplest form, which is its own."""
        result = self._intern(self._rule(expression))
        self._known.setdefault(id(result), (result, result))
        return result

    def interval(self, expression: ir.Expression) -> Interval | None:
        """Return the bounds of a simplified int64 expression, None if it has none."""
        return self.form(expression).interval(self._atom_interval)

    def atom(self, number: int) -> ir.Expression:
        """Return the atom of that number in a linear form."""
        return self._atoms[number]

    # ---- Interning

    def _intern(self, expression: ir.Expression) -> ir.Expression:
        return self._interned.setdefault(structural_key(expression), expression)

    # ---- Linear forms

    def form(self, expression: ir.Expression) -> Linear[int]:
        """Return the linear form of an int64 expression."""
        known = self._forms.get(id(expression))
        if known is None:
            known = self._forms[id(expression)] = (expression, self._form(expression))
        return known[1]

    def _form(self, expression: ir.Expression) -> Linear[int]:
        lanes = expression.type.lanes
        match expression:
            case ir.Constant(value):
                return Linear(int(value), lanes=lanes)
            case ir.Broadcast(value):
                return Linear[int](lanes=lanes).plus(self.form(value))
            case ir.Ramp(base, stride):
                return Linear[int](lane=stride, lanes=lanes).plus(self.form(base))
            case ir.Binary("add", left, right):
                return self.form(left).plus(self.form(right))
            case ir.Binary("sub", left, right):
                return self.form(left).plus(self.form(right), -1)
            case ir.Binary("mul", left, right) if (factor := splat_value(right)) is not None:
                return self.form(left).times(int(factor))
            case ir.Binary("mul", left, right) if (factor := splat_value(left)) is not None:
                return self.form(right).times(int(factor))
            case _:
                number = self._numbers.get(id(expression))
                if number is None:
                    number = self._numbers[id(expression)] = len(self._atoms)
                    self._atoms.append(expression)
                return Linear(terms={number: 1}, lanes=lanes)

    def build(self, form: Linear[int]) -> ir.Expression:
        """Return the expression of a linear form: large coefficients first, a constant last."""
        form = self._recombine(form)
        terms = sorted(form.terms.items(), key=lambda term: (-abs(term[1]), term[0]))
        scalar = [(self._atoms[atom], factor) for atom, factor in terms if self._atoms[atom].type.lanes == 1]
        result = self._sum(None, scalar, form.constant, 1)
        if form.lanes == 1:
            return result
        vector = [(self._atoms[atom], factor) for atom, factor in terms if self._atoms[atom].type.lanes > 1]
        if form.lane:
            return self._sum(self._intern(ir.Ramp(result, form.lane, form.lanes)), vector, 0, form.lanes)
        if vector and result == ir.Constant(0, INT64):
            return self._sum(None, vector, 0, form.lanes)
        return self._sum(self._intern(ir.Broadcast(result, form.lanes)), vector, 0, form.lanes)

    def _sum(
        self, start: ir.Expression | None, terms: list[tuple[ir.Expression, int]], constant: int, lanes: int
    ) -> ir.Expression:
        result = start
        # A positive term first, so that no negation is needed.
        for atom, factor in sorted(terms, key=lambda term: term[1] < 0) if start is None else terms:
            size = abs(factor)
            term = atom if size == 1 else self._intern(ir.Binary("mul", atom, self._number(size, lanes)))
            if result is None:
                result = term if factor > 0 else self._intern(ir.Binary("sub", self._number(0, lanes), term))
            else:
                result = self._intern(ir.Binary("add" if factor > 0 else "sub", result, term))
        if result is None:
            return self._number(constant, lanes)
        if constant:
            operator = "add" if constant > 0 else "sub"
            result = self._intern(ir.Binary(operator, result, self._number(abs(constant), lanes)))  # type: ignore[arg-type]
        return result

    def _number(self, value: int, lanes: int) -> ir.Expression:
        scalar = self._intern(ir.Constant(value, INT64))
        return scalar if lanes == 1 else self._intern(ir.Broadcast(scalar, lanes))

    def _recombine(self, form: Linear[int]) -> Linear[int]:
        """Replace ``k * c * (x / c) + k * (x % c)`` by ``k * x``."""
        for number, coefficient in form.terms.items():
            atom = self._atoms[number]
            if (
                not isinstance(atom, ir.Binary)
                or atom.operator != "mod"
                or (divisor := splat_value(atom.right)) is None
            ):
                continue
            quotient = self._rule_interned(ir.Binary("div", atom.left, atom.right))  # of a quotient: one quotient
            partner = self._numbers.get(id(quotient))
            if partner is not None and form.terms.get(partner) == coefficient * divisor:
                rest = {key: value for key, value in form.terms.items() if key not in (number, partner)}
                without = Linear(form.constant, rest, form.lane, form.lanes)
                return self._recombine(without.plus(self.form(atom.left), coefficient))
        return form

    def _atom_interval(self, number: int) -> Interval | None:
        if number not in self._bounds:
            bounds = self._bounds_of(self._atoms[number])
            if isinstance(self._atoms[number], ir.Variable):
                return bounds
            self._bounds[number] = bounds
        return self._bounds[number]

    def _bounds_of(self, expression: ir.Expression) -> Interval | None:
        match expression:
            case ir.Variable():
                return self.ranges.get(expression)
            case ir.Cast(value, "int64"):
                return _LIMITS.get(value.type.dtype)
            case ir.Select(_, on_true, on_false):
                first, second = self.interval(on_true), self.interval(on_false)
                return (min(first[0], second[0]), max(first[1], second[1])) if first and second else None
            case ir.Binary(operator, left, right):
                first, second = self.interval(left), self.interval(right)
                return binary_bounds(operator, first, second) if first and second else None
            case _:
                return None

    # ---- Rules

    def _rule(self, expression: ir.Expression) -> ir.Expression:
        own = _RULES.get(type(expression))
        if own is not None:
            return own(self, expression)
        operands = children(expression)
        if all(isinstance(operand, ir.Constant) for operand in operands):
            return fold(expression)
        if expression.type.lanes > 1 and isinstance(expression, _BY_LANE):
            scalar = unbroadcast(expression, operands)
            if scalar is not None:
                return ir.Broadcast(self._intern(self._rule(scalar)), expression.type.lanes)
        return _ALGEBRA.get(type(expression), _as_it_is)(self, expression)

    def _variable(self, variable: ir.Variable) -> ir.Expression:
        if variable in self.values:
            return self.values[variable]
        bounds = self.ranges.get(variable)
        return ir.Constant(bounds[0], INT64) if bounds is not None and bounds[0] == bounds[1] else variable

    def _load(self, load: ir.Load) -> ir.Expression:
        lanes = load.type.lanes
        if lanes > 1:
            indices = tuple(index.value if isinstance(index, ir.Broadcast) else index for index in load.indices)
            vector = any(index.type.lanes > 1 for index in indices)
            if vector:
                load = ir.Load(load.buffer, indices, load.mask)
            elif load.mask is None or isinstance(load.mask, ir.Broadcast):
                mask = load.mask.value if isinstance(load.mask, ir.Broadcast) else None
                return ir.Broadcast(self._rule_interned(ir.Load(load.buffer, indices, mask)), lanes)
        switch = None if load.mask is None else splat_value(load.mask)
        if switch is None or load.mask is None:
            return load
        if not switch:
            zero = ir.Constant(False if load.buffer.dtype == "bool" else 0, Type(load.buffer.dtype))
            if zero.type.is_float:
                zero = ir.Constant(0.0, zero.type)
            return zero if load.type.lanes == 1 else ir.Broadcast(self._intern(zero), load.type.lanes)
        unmasked = ir.Load(load.buffer, load.indices)
        return unmasked if unmasked.type == load.type else load

    def _binary(self, node: ir.Binary) -> ir.Expression:
        if node.left.type.dtype == "int64":
            return self._index(node)
        return identity(node.operator, node.left, node.right) or node

    def _index(self, expression: ir.Binary) -> ir.Expression:
        operator, left, right = expression.operator, expression.left, expression.right
        if operator in ("add", "sub") or (
            (operator == "mul" and splat_value(left) is not None)
            or (splat_value(right) is not None and operator == "mul")
        ):
            return self.build(self.form(expression))
        divisor = splat_value(right)
        if operator in ("div", "mod") and divisor is not None and divisor > 0:
            return self._divide(expression, int(divisor))
        if operator in ir.COMPARISONS or operator in ("min", "max"):
            return self._compare(expression)
        return identity(operator, left, right) or expression

    def _divide(self, expression: ir.Binary, divisor: int) -> ir.Expression:
        left, lanes = expression.left, expression.type.lanes
        is_quotient = expression.operator == "div"
        if divisor == 1:
            return left if is_quotient else self._number(0, lanes)
        found = divide(self.form(left), divisor, self._atom_interval)
        if found is not None:
            outside = found.quotient if is_quotient else found.rest
            if found.pending_divisor == 1:
                return self.build(outside)
            operand, count = self.build(found.pending), self._number(found.pending_divisor, lanes)
            part = self._rule_interned(ir.Binary(expression.operator, operand, count))
            return self.build(outside.plus(self.form(part), 1 if is_quotient else found.scale))
        if isinstance(left, ir.Binary) and left.operator == expression.operator:
            inner = splat_value(left.right)
            if inner is not None and inner > 0 and is_quotient:
                return ir.Binary("div", left.left, self._number(int(inner) * divisor, lanes))
            if inner is not None and inner > 0 and int(inner) % divisor == 0:
                return ir.Binary("mod", left.left, expression.right)
        return expression

    def _rule_interned(self, expression: ir.Expression) -> ir.Expression:
        return self._intern(self._rule(expression))

    def _compare(self, expression: ir.Binary) -> ir.Expression:
        left, right, lanes = expression.left, expression.right, expression.type.lanes
        if self.interval(left) is None or self.interval(right) is None:
            return expression
        difference = self.form(left).plus(self.form(right), -1).interval(self._atom_interval)
        assert difference is not None, "the difference of bounded forms is bounded"
        low, high = difference
        if expression.operator in ("min", "max"):
            smaller = left if high <= 0 else right if low >= 0 else None
            larger = right if high <= 0 else left if low >= 0 else None
            return (smaller if expression.operator == "min" else larger) or expression
        holds = decide(expression.operator, low, high)
        if holds is None:
            return expression
        answer = self._intern(ir.Constant(holds, BOOL))
        return answer if lanes == 1 else ir.Broadcast(answer, lanes)


def _as_it_is(_: Simplifier, node: ir.Expression) -> ir.Expression:
    return node


def _select(_: Simplifier, node: ir.Select) -> ir.Expression:
    if node.on_true is node.on_false:
        return node.on_true
    switch = splat_value(node.condition)
    return node if switch is None else node.on_true if switch else node.on_false


def _cast(_: Simplifier, node: ir.Cast) -> ir.Expression:
    value, dtype = node.value, node.dtype
    if value.type.dtype == dtype:
        return value
    is_inverse = isinstance(value, ir.Cast) and value.value.type.dtype == dtype
    return (
        value.value if isinstance(value, ir.Cast) and is_inverse and value.dtype in _EXACT_IN.get(dtype, ()) else node
    )


def _unary(_: Simplifier, node: ir.Unary) -> ir.Expression:
    inner = node.value
    is_twice = isinstance(inner, ir.Unary) and inner.operator == node.operator and node.operator in ("not", "neg")
    return inner.value if isinstance(inner, ir.Unary) and is_twice else node


_BY_LANE = (ir.Unary, ir.Binary, ir.Select, ir.Cast, ir.Intrinsic)
_RULES: dict[type, Callable[..., ir.Expression]] = {
    ir.Constant: _as_it_is,
    ir.Variable: Simplifier._variable,
    ir.Ramp: lambda self, node: self.build(self.form(node)),
    ir.Load: Simplifier._load,
}
"""What is not computed from the values of its operands alone."""
_ALGEBRA: dict[type, Callable[..., ir.Expression]] = {
    ir.Binary: Simplifier._binary, ir.Select: _select, ir.Cast: _cast, ir.Unary: _unary,
}  # fmt: skip
"""Identities of operations that are neither constant nor the same in all lanes."""
