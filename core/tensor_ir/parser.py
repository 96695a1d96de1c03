"""The reader of the textual form that `graft.core.tensor_ir.printer` describes and prints."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any, get_args

from graft.core.tensor_ir import ir
from graft.core.tensor_ir.anchors import STRUCTURES
from graft.core.tensor_ir.tokens import TokenReader, plain
from graft.core.types import BOOL, INT64, Type, parse_type
from graft.runtime.dtypes import ELEMENT_TYPES

_PRECEDENCE: dict[str, tuple[str, int]] = {
    "|": ("or", 1), "^": ("xor", 2), "&": ("and", 3), "==": ("eq", 4), "!=": ("ne", 4), "<": ("lt", 5),
    "<=": ("le", 5), ">": ("gt", 5), ">=": ("ge", 5), "<<": ("shl", 6), ">>": ("shr", 6), "+": ("add", 7),
    "-": ("sub", 7), "*": ("mul", 8), "/": ("div", 8), "%": ("mod", 8),
}  # fmt: skip
_TYPE = re.compile(rf"(?:{'|'.join(ELEMENT_TYPES)}|custom\[\w+\][0-9]+)(?:x[0-9]+)?")
_LOOP_KINDS = get_args(ir.LoopKind)
_UNARY = get_args(ir.UnaryOperator)


def parse_function(text: str) -> ir.Function:
    """Return the function that a text stands for; raise GraftError with line and column where it cannot be read."""
    parser = _Parser(text)
    function = parser.function()
    parser.end()
    return function


def parse_stages(text: str) -> tuple[ir.Stage, ...]:
    """Return the stages that a text stands for; raise GraftError with line and column where it cannot be read."""
    parser = _Parser(text)
    stages = parser.stages()
    parser.end()
    return stages


class _Parser(TokenReader):
    """Recursive descent with precedence climbing for infix operators."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.variables: dict[str, ir.Variable] = {}
        self.buffers: dict[str, ir.Buffer] = {}
        self.carried: ir.Variable | None = None
        self.declares = False
        """Whether an unknown name is a new symbol."""

    # ---- Functions and stages

    def function(self) -> ir.Function:
        """Read a function."""
        self.expect("function")
        name = self.name()
        self.expect("(")
        inputs = self.many(self.buffer, ")")
        self.expect("->")
        self.expect("(")
        outputs = self.many(self.buffer, ")")
        in_place = tuple(self.many(self.integer)) if self.accept("in_place") else ()
        is_exact = self.accept("exact")
        origin = self.strings() if self.accept("from") else ()
        return ir.Function(name, (*inputs, *outputs), len(outputs), self.block(), origin, in_place, is_exact)

    def buffer(self) -> ir.Buffer:
        """Read the declaration of a buffer; unknown names in its shape or strides become variables."""
        name = self.name()
        self.expect(":")
        dtype = self.take("name")
        shape, strides = self.extents()
        memory, alignment, tensor = "host", 1, None
        if self.accept("in"):
            memory = self.name()
        if self.accept("align"):
            alignment = self.integer()
        if self.accept("of"):
            tensor = ir.Buffer(name, dtype, *self.extents())
        buffer = ir.Buffer(name, dtype, shape, strides, memory, alignment, tensor)
        self.buffers[name] = buffer
        return buffer

    def extents(self) -> tuple[tuple[ir.Expression, ...], tuple[ir.Expression, ...] | None]:
        """Read a shape, and the strides that may stand behind it."""
        self.expect("[")
        shape = tuple(self.many(self.extent, "]"))
        if not self.accept("strides"):
            return shape, None
        self.expect("[")
        return shape, tuple(self.many(self.extent, "]"))

    def extent(self) -> ir.Expression:
        """Read an extent, in which an unknown name is a new symbol."""
        self.declares, before = True, self.declares
        extent = self.expression()
        self.declares = before
        return extent

    def stages(self) -> tuple[ir.Stage, ...]:
        """Read inputs and stages."""
        stages: list[ir.Stage] = []
        while self.peek():
            if self.accept("input") or self.accept("carry"):
                self.buffer()
            else:
                stages.append(self.stage())
        return tuple(stages)

    def stage(self) -> ir.Stage:
        """Read one stage."""
        self.expect("stage")
        carried = self.buffers.get(plain(self.peek()))
        buffer = self.buffer()
        if carried is not None:
            buffer = self.buffers[carried.name] = carried
        self.expect("at")
        self.expect("(")
        axes = tuple(self.many(self.stage_axis, ")"))
        origin = self.strings() if self.accept("from") else ()
        self.expect("=")
        reduction = None
        if self.accept("reduce"):
            operator: Any = self.name()
            self.expect("over")
            reduced = tuple(self.many(self.axis))
            self.expect("from")
            reduction = ir.Reduction(operator, reduced, self.expression())
            self.expect(":")
        order: ir.Order | None = None
        if self.accept("choose"):
            is_largest = self.name() == "largest"
            self.expect("over")
            candidate = self.axis()
            self.expect("by")
            order = ir.Selection(self.known(), candidate, is_largest)
            self.expect(":")
        value = self.expression()
        variable = epilogue = None
        if self.accept("then"):
            variable, epilogue = self.binding()
        structure = self.structure() if self.accept("as") else None
        return ir.Stage(buffer, axes, value, reduction, variable, epilogue, origin, structure, order or self.order())

    def order(self) -> ir.Order | None:
        """Read the order that stands behind a stage, if there is one."""
        if self.accept("scan"):
            self.carried, reverse = self.known(), self.accept("reverse")
            return ir.Scan(self.carried, self.expression() if self.accept("from") else None, reverse)
        if not self.accept("scatter"):
            return None
        operator: Any = self.name()
        axes = tuple(self.many(self.axis)) if self.accept("over") else ()
        self.expect("at")
        self.expect("(")
        indices = tuple(self.many(self.expression, ")"))
        self.expect(":")
        return ir.Scatter(axes, indices, operator, self.expression())

    def structure(self) -> Any:
        """Read a structure: its name, and its fields by name."""
        kind = STRUCTURES.get(self.peek())
        if kind is None:
            raise self.error(f"expected one of {', '.join(STRUCTURES)}")
        start, self.position = self.position, self.position + 1
        self.expect("(")
        known = dict(self.many(self.field, ")"))
        if known.keys() != {one.name for one in fields(kind)}:
            self.position = start
            raise self.error(f"expected {', '.join(one.name for one in fields(kind)) or 'no fields'}")
        return kind(**known)

    def field(self) -> tuple[str, Any]:
        """Read a field of a structure."""
        name = self.name()
        self.expect("=")
        if self.accept("["):
            return name, tuple(self.many(self.integer, "]"))
        if self.peek() in STRUCTURES:
            return name, self.structure()
        return name, self.string() if self.peek()[:1] == '"' else self.integer()

    def axis(self) -> ir.Axis:
        """Read a reduction axis."""
        name = self.name()
        self.expect("<")
        extent = self.expression()
        variable = self.variables[name] = ir.Variable(name)
        return ir.Axis(variable, extent)

    def stage_axis(self) -> ir.Variable:
        """Read the name of a stage's axis: a new variable, unless the scan before carries it."""
        name = self.name()
        carried = self.carried
        self.variables[name] = carried if carried is not None and carried.name == name else ir.Variable(name)
        return self.variables[name]

    def binding(self) -> tuple[ir.Variable, ir.Expression]:
        """Read ``name: type = value``. In an epilogue the value may use the name, elsewhere it has no reason to."""
        name = self.name()
        self.expect(":")
        kind = parse_type(self.take("name"))
        self.expect("=")
        variable = self.variables[name] = ir.Variable(name, kind)
        return variable, self.expression()

    # ---- Statements

    def block(self) -> ir.Statement:
        """Read statements in braces."""
        self.expect("{")
        body = self.sequence()
        self.expect("}")
        return body

    def sequence(self) -> ir.Statement:
        """Read statements up to a closing brace; one statement stands for itself."""
        outer: list[
            tuple[list[ir.Statement], ir.Variable, ir.Expression]
        ] = []  # what stands before a `let` of all the rest
        statements: list[ir.Statement] = []
        while self.peek() not in ("}", ""):
            if not self.accept("let"):
                statements.append(self.statement())
                continue
            variable, value = self.binding()
            if self.peek() == "{":
                statements.append(ir.Let(variable, value, self.block()))
            else:
                outer.append((statements, variable, value))
                statements = []
        body = _sequence(statements)
        for before, variable, value in reversed(outer):
            body = _sequence([*before, ir.Let(variable, value, body)])
        return body

    def statement(self) -> ir.Statement:
        """Read one statement."""
        word = self.peek()
        if word in _LOOP_KINDS:
            return self.loop()
        if self.accept("allocate"):
            buffer = self.buffer()
            return ir.Allocate(buffer, self.scope())
        if self.accept("if"):
            condition, then_body = self.expression(), self.block()
            return ir.If(condition, then_body, self.block() if self.accept("else") else None)
        if self.accept("call"):
            name = self.name()
            self.expect("(")
            return ir.CallExtern(name, tuple(self.many(self.expression, ")")))
        if self.accept("barrier"):
            return ir.Barrier(self.string(), self.integer() if self.accept("of") else 0)
        if self.accept("issue"):
            return ir.Issue(self.string(), self.block())
        if self.accept("push"):
            return ir.Push(*self.queues())
        if self.accept("pop"):
            return ir.Pop(*self.queues())
        buffer, indices, mask = self.access()
        self.expect("=")
        return ir.Store(buffer, indices, self.expression(), mask)

    def queues(self) -> tuple[str, str]:
        """Read the queues of a token: from, to."""
        source = self.string()
        self.expect("->")
        return source, self.string()

    def scope(self) -> ir.Statement:
        """Read what a ``let`` or ``allocate`` holds for: the braces that follow, or the rest of the block."""
        return self.block() if self.peek() == "{" else self.sequence()

    def loop(self) -> ir.For:
        """Read a loop."""
        kind: Any = self.name()
        name = self.name()
        self.expect("<")
        extent = self.expression()
        binding = self.string() if self.accept("bind") else ""
        variable = self.variables[name] = ir.Variable(name)
        return ir.For(variable, extent, kind, self.block(), binding)

    # ---- Expressions

    def access(self) -> tuple[ir.Buffer, tuple[ir.Expression, ...], ir.Expression | None]:
        """Read an element: buffer, indices, mask."""
        name = self.name()
        if name not in self.buffers:
            self.position -= 1
            raise self.error(f"no buffer '{name}' is declared here")
        self.expect("[")
        indices: list[ir.Expression] = []
        while self.peek() not in ("]", ";"):
            indices.append(self.expression())
            if not self.accept(","):
                break
        mask = self.expression() if self.accept(";") else None
        self.expect("]")
        return self.buffers[name], tuple(indices), mask

    def expression(self, precedence: int = 1) -> ir.Expression:
        """Read an expression whose operators bind at least as strongly as ``precedence``."""
        left = self.operand()
        while (row := _PRECEDENCE.get(self.peek())) is not None and row[1] >= precedence:
            self.position += 1
            operator: Any = row[0]
            left = ir.Binary(operator, left, self.expression(row[1] + 1))
        return left

    def operand(self) -> ir.Expression:
        """Read an expression without infix operators around it."""
        if self.accept("("):
            inner = self.expression()
            self.expect(")")
            return inner
        kind = self.tokens[self.position][0] if self.position < len(self.tokens) else ""
        if kind == "number":
            return ir.Constant(self.integer(), INT64)
        if kind != "name":
            raise self.error("expected an expression")
        word = self.peek()
        if word in ("true", "false"):
            self.position += 1
            return ir.Constant(word == "true", BOOL)
        if self.peek(1) == "[":
            return ir.Load(*self.access())
        if self.peek(1) == "(" or word in ("cast", "bitcast", "horizontal", "intrinsic"):
            self.position += 1
            return self.call(word)
        return self.known()

    def known(self) -> ir.Variable:
        """Read the name of a variable that is bound here."""
        name = self.name()
        if name not in self.variables and self.declares:
            self.variables[name] = ir.Variable(name)
        if name not in self.variables:
            self.position -= 1
            raise self.error(f"no variable '{name}' is bound here")
        return self.variables[name]

    def call(self, word: str) -> ir.Expression:
        """Read what follows the name of an operation or type."""
        argument: Any = ""
        if self.accept("<"):
            argument = self.take("name")
            self.expect(">")
        self.expect("(")
        match word:
            case "ramp" | "broadcast":
                return self._vector(word)
            case "shuffle":
                return self._shuffle()
            case "intrinsic":
                name = self.string()
                arguments = self.many(self.expression, ")") if self.accept(",") else []
                if not arguments and self.peek() == ")":
                    self.position += 1
                return ir.Intrinsic(name, tuple(arguments), parse_type(argument))
            case _ if _TYPE.fullmatch(word):
                return self._typed_constant(parse_type(word))
        arguments = self.many(self.expression, ")")
        match word, arguments:
            case "cast", [value]:
                return ir.Cast(value, argument)
            case "bitcast", [value]:
                return ir.Bitcast(value, argument)
            case "horizontal", [value]:
                return ir.Horizontal(argument, value)
            case "select", [condition, on_true, on_false]:
                return ir.Select(condition, on_true, on_false)
            case (("min" | "max" | "fmod"), [left, right]):
                operator: Any = word
                return ir.Binary(operator, left, right)
            case _, [value] if word in _UNARY:
                unary: Any = word
                return ir.Unary(unary, value)
            case _, [first, *_]:
                return ir.Intrinsic(word, tuple(arguments), first.type)
        raise self.error(f"'{word}' does not take {len(arguments)} arguments")

    def _typed_constant(self, kind: Type) -> ir.Constant:
        text = self.peek()
        if text in ("True", "False"):
            value: int | float = text == "True"
        else:
            try:
                value = int(text) if re.fullmatch(r"-?[0-9]+", text) else float(text)
            except ValueError:
                raise self.error(f"'{text}' is no number, and neither True nor False") from None
        self.position += 1
        self.expect(")")
        return ir.Constant(value, kind)

    def _vector(self, word: str) -> ir.Expression:
        base = self.expression()
        self.expect(",")
        first = self.integer()
        if word == "broadcast":
            self.expect(")")
            return ir.Broadcast(base, first)
        self.expect(",")
        lanes = self.integer()
        self.expect(")")
        return ir.Ramp(base, first, lanes)

    def _shuffle(self) -> ir.Shuffle:
        self.expect("[")
        vectors = tuple(self.many(self.expression, "]"))
        self.expect(",")
        self.expect("[")
        lanes = tuple(self.many(self.integer, "]"))
        self.expect(")")
        return ir.Shuffle(vectors, lanes)


def _sequence(statements: list[ir.Statement]) -> ir.Statement:
    return statements[0] if len(statements) == 1 else ir.Block(tuple(statements))
