"""The textual form of functions and stages, and its reader in `graft.core.tensor_ir.parser`.

    function scale(x: float32[64]) -> (y: float32[64]) {
      parallel i < 4 {
        let v: float32x16 = x[ramp(i * 16, 1, 16)]
        y[ramp(i * 16, 1, 16)] = v * broadcast(float32(2.0), 16)
      }
    }

Plain numbers are int64. A mask stands behind a semicolon: ``x[i; i < 7]``. Two variables (or buffers) of one name are
told apart by a suffix, a name that is no identifier stands in backquotes. ``let`` and ``allocate`` hold to the end of
the block around them, or for the braces that follow. Levels and queues are strings:
``parallel i < 4 bind "block.x"``, ``barrier "block"``, ``issue "load" { push "load" -> "mac" }``. What a stage is
stands behind it, ``as contraction()``, and its order:

    carry state: float32[9, 4]
    stage sum: float32[9, 4] at (t, i) = reduce add over k < 4 from x[t, i]: state[t - 1, k] * r[k, i]
      scan t
    stage state: float32[9, 4] at (t, i) = tanh(sum[t, i])
      scan t from first[i]
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import assert_never

from graft.core.tensor_ir import ir
from graft.core.tensor_ir.anchors import STRUCTURES, Structure, Windows
from graft.core.tensor_ir.ordered_stages import stage_expressions
from graft.core.tensor_ir.visit import chain_of_lets, loads
from graft.core.types import BOOL, INT64

INFIX = {
    "or": ("|", 1), "xor": ("^", 2), "and": ("&", 3), "eq": ("==", 4), "ne": ("!=", 4), "lt": ("<", 5),
    "le": ("<=", 5), "gt": (">", 5), "ge": (">=", 5), "shl": ("<<", 6), "shr": (">>", 6), "add": ("+", 7),
    "sub": ("-", 7), "mul": ("*", 8), "div": ("/", 8), "mod": ("%", 8),
}  # fmt: skip
"""Symbol and precedence of the operators that are written between their operands; all associate to the left."""
KEYWORDS = frozenset(
    {
        *("function", "from", "in", "align", "strides", "input", "stage", "at", "reduce", "over", "then"),
        *("carry", "scan", "scatter", "choose"),
        *("as", "let", "allocate", "if", "else", "call", "serial", "parallel", "vector", "unrolled", "bind"),
        *("barrier", "issue", "push", "pop"),
        *("ramp", "broadcast", "select", "shuffle", "cast", "bitcast", "horizontal", "intrinsic", "true", "false"),
    }
)


def print_function(function: ir.Function) -> str:
    """Return the text of a function."""
    printer = _Printer()
    inputs, outputs = (
        ", ".join(map(printer.declare, buffers)) for buffers in (function.input_buffers, function.output_buffers)
    )
    over = f" in_place {', '.join(map(str, function.in_place))}" if function.in_place else ""
    over += " exact" if function.is_exact else ""
    head = f"function {quoted(function.name)}({inputs}) -> ({outputs}){over}{_origin(function.origin)}"
    return "\n".join([f"{head} {{", *printer.body(function.body, "  "), "}", ""])


def print_stages(stages: Sequence[ir.Stage]) -> str:
    """Return the text of stages, the buffers that none of them writes first."""
    printer, lines = _Printer(), []
    written = {stage.buffer for stage in stages}
    for stage in stages:
        for load in loads(*stage_expressions(stage)):
            if load.buffer not in written and load.buffer not in printer.names:
                lines.append(f"input {printer.declare(load.buffer)}")
    for stage in stages:
        written.remove(stage.buffer)
        for load in loads(*stage_expressions(stage)):
            if load.buffer in written and load.buffer not in printer.names:
                lines.append(f"carry {printer.declare(load.buffer)}")
        lines += printer.stage(stage)
    return "\n".join([*lines, ""])


def print_stage(stage: ir.Stage) -> str:
    """Return the text of one stage."""
    return print_stages([stage])


def print_statement(statement: ir.Statement) -> str:
    """Return the text of a statement; what it does not bind gets a name."""
    return "\n".join([*_Printer().body(statement, ""), ""])


def print_expression(expression: ir.Expression) -> str:
    """Return the text of an expression."""
    return _Printer().expression(expression)


def quoted(name: str) -> str:
    """Return a name as it stands in the text."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name) and name not in KEYWORDS:
        return name
    return "`" + json.dumps(name)[1:-1].replace("`", "\\u0060") + "`"


def _origin(origin: Iterable[str]) -> str:
    names = ", ".join(map(json.dumps, origin))
    return f" from {names}" if names else ""


class _Printer:
    """Names variables and buffers as it meets them."""

    def __init__(self) -> None:
        self.names: dict[ir.Variable | ir.Buffer, str] = {}
        self.taken: set[str] = set()

    def name(self, thing: ir.Variable | ir.Buffer) -> str:
        """Return the name of a variable or buffer, which no other has."""
        if thing not in self.names:
            name, number = thing.name or "_", 0
            while name in self.taken:
                number += 1
                name = f"{thing.name}_{number}"
            self.taken.add(name)
            self.names[thing] = name
        return quoted(self.names[thing])

    def declare(self, buffer: ir.Buffer) -> str:
        """Return the declaration of a buffer."""
        parts = [f"{self.name(buffer)}: {buffer.dtype}[{self.joined(buffer.shape)}]"]
        if buffer.strides is not None:
            parts.append(f"strides [{self.joined(buffer.strides)}]")
        if buffer.memory != "host":
            parts.append(f"in {quoted(buffer.memory)}")
        if buffer.alignment != 1:
            parts.append(f"align {buffer.alignment}")
        if buffer.tensor is not None:
            parts.append(f"of [{self.joined(buffer.tensor.shape)}]")
            parts += [] if buffer.tensor.strides is None else [f"strides [{self.joined(buffer.tensor.strides)}]"]
        return " ".join(parts)

    def joined(self, expressions: Iterable[ir.Expression]) -> str:
        """Return expressions with commas between."""
        return ", ".join(map(self.expression, expressions))

    # ---- Statements

    def body(self, statement: ir.Statement, indent: str) -> list[str]:
        """Return the lines of a statement inside braces."""
        statements = _flat(statement)
        last = len(statements) - 1
        return [line for number, inner in enumerate(statements) for line in self.lines(inner, indent, number == last)]

    def braces(self, head: str, statement: ir.Statement, indent: str) -> list[str]:
        """Return the lines of a statement in braces behind a head."""
        return [f"{indent}{head} {{", *self.body(statement, indent + "  "), f"{indent}}}"]

    def lines(self, statement: ir.Statement, indent: str, is_last: bool) -> list[str]:
        """Return the lines of one statement."""
        match statement:
            case ir.Store(buffer, indices, value, mask):
                return [f"{indent}{self.access(buffer, indices, mask)} = {self.expression(value)}"]
            case ir.For(variable, extent, kind, body, binding):
                count = self.expression(extent)
                bound = f" bind {json.dumps(binding)}" if binding else ""
                return self.braces(f"{kind} {self.name(variable)} < {count}{bound}", body, indent)
            case ir.If(condition, then_body, else_body):
                lines = self.braces(f"if {self.expression(condition)}", then_body, indent)
                if else_body is None:
                    return lines
                return [*lines[:-1], *self.braces("} else", else_body, indent)]
            case ir.Let(body=body):
                if not is_last:
                    return self.braces(self._let(statement), body, indent)
                chain, inner = chain_of_lets(statement)
                heads = [f"{indent}{self._let(one)}" for one in chain]
                return [*heads, *self.body(inner, indent)]
            case ir.Allocate(buffer, body):
                return self._scope(f"allocate {self.declare(buffer)}", body, indent, is_last)
            case ir.Block():
                raise AssertionError("blocks are printed flat")
            case ir.CallExtern(name, arguments):
                return [f"{indent}call {quoted(name)}({self.joined(arguments)})"]
            case ir.Barrier(scope, units):
                return [f"{indent}barrier {json.dumps(scope)}{f' of {units}' if units else ''}"]
            case ir.Issue(queue, body):
                return self.braces(f"issue {json.dumps(queue)}", body, indent)
            case ir.Push(source, target):
                return [f"{indent}push {json.dumps(source)} -> {json.dumps(target)}"]
            case ir.Pop(source, target):
                return [f"{indent}pop {json.dumps(source)} -> {json.dumps(target)}"]
            case _:
                assert_never(statement)

    def _let(self, let: ir.Let) -> str:
        bound = self.expression(let.value)
        return f"let {self.name(let.variable)}: {let.variable.type} = {bound}"

    def _scope(self, head: str, body: ir.Statement, indent: str, is_last: bool) -> list[str]:
        return [f"{indent}{head}", *self.body(body, indent)] if is_last else self.braces(head, body, indent)

    def stage(self, stage: ir.Stage) -> list[str]:
        """Return the lines of a stage."""
        head = f"stage {self.declare(stage.buffer)}"
        axes = ", ".join(map(self.name, stage.axes))
        reduction, lines = stage.reduction, []
        text = ""
        if reduction is not None:
            over = ", ".join(f"{self.name(axis.variable)} < {self.expression(axis.extent)}" for axis in reduction.axes)
            text = f"reduce {reduction.operator} over {over} from {self.expression(reduction.initial)}: "
        if isinstance(stage.order, ir.Selection):
            candidate, first = stage.order.candidate, "largest" if stage.order.largest else "smallest"
            over = f"{self.name(candidate.variable)} < {self.expression(candidate.extent)}"
            text = f"choose {first} over {over} by {self.name(stage.order.rank)}: "
        lines.append(f"{head} at ({axes}){_origin(stage.origin)} = {text}{self.expression(stage.value)}")
        if stage.epilogue is not None and stage.epilogue_variable is not None:
            variable = stage.epilogue_variable
            lines.append(f"  then {self.name(variable)}: {variable.type} = {self.expression(stage.epilogue)}")
        if stage.structure is not None:
            lines.append(f"  as {_structure(stage.structure)}")
        return [*lines, *self.order(stage.order)]

    def order(self, order: ir.Order | None) -> list[str]:
        """Return the line that follows a stage with an order; what selects says so before its key."""
        match order:
            case ir.Scan(carried, initial, reverse):
                start = "" if initial is None else f" from {self.expression(initial)}"
                return [f"  scan {self.name(carried)}{' reverse' if reverse else ''}{start}"]
            case ir.Scatter(axes, indices, operator, update):
                loops = ", ".join(f"{self.name(axis.variable)} < {self.expression(axis.extent)}" for axis in axes)
                over = f" over {loops}" if axes else ""
                return [f"  scatter {operator}{over} at ({self.joined(indices)}): {self.expression(update)}"]
            case ir.Selection() | None:
                return []
            case _:
                assert_never(order)

    # ---- Expressions

    def access(self, buffer: ir.Buffer, indices: Sequence[ir.Expression], mask: ir.Expression | None) -> str:
        """Return the text of an element or vector of elements."""
        switch = "" if mask is None else f"; {self.expression(mask)}"
        return f"{self.name(buffer)}[{self.joined(indices)}{switch}]"

    def expression(self, expression: ir.Expression, precedence: int = 0) -> str:
        """Return the text of an expression, in parentheses if it binds weaker than ``precedence``."""
        match expression:
            case ir.Constant():
                return _constant(expression)
            case ir.Variable():
                return self.name(expression)
            case ir.Load(buffer, indices, mask):
                return self.access(buffer, indices, mask)
            case ir.Ramp(base, stride, lanes):
                return f"ramp({self.expression(base)}, {stride}, {lanes})"
            case ir.Broadcast(value, lanes):
                return f"broadcast({self.expression(value)}, {lanes})"
            case ir.Binary(operator, left, right) if operator in INFIX:
                symbol, own = INFIX[operator]
                text = f"{self.expression(left, own)} {symbol} {self.expression(right, own + 1)}"
                return f"({text})" if own < precedence else text
            case ir.Binary(operator, left, right):
                return f"{operator}({self.joined((left, right))})"
            case ir.Unary(operator, value):
                return f"{operator}({self.expression(value)})"
            case ir.Select(condition, on_true, on_false):
                return f"select({self.joined((condition, on_true, on_false))})"
            case ir.Cast(value, dtype):
                return f"cast<{dtype}>({self.expression(value)})"
            case ir.Bitcast(value, dtype):
                return f"bitcast<{dtype}>({self.expression(value)})"
            case ir.Intrinsic(name, arguments, kind):
                if arguments and arguments[0].type == kind and re.fullmatch(r"[a-z][a-z0-9_]*", name):
                    return f"{name}({self.joined(arguments)})"
                return f"intrinsic<{kind}>({', '.join([json.dumps(name), *map(self.expression, arguments)])})"
            case ir.Shuffle(vectors, lanes):
                return f"shuffle([{self.joined(vectors)}], [{', '.join(map(str, lanes))}])"
            case ir.Horizontal(operator, value):
                return f"horizontal<{operator}>({self.expression(value)})"
            case _:
                assert_never(expression)


def _flat(statement: ir.Statement) -> list[ir.Statement]:
    """Return the statements of nested blocks in order."""
    if not isinstance(statement, ir.Block):
        return [statement]
    return [part for inner in statement.statements for part in _flat(inner)]


def _structure(structure: Structure | Windows) -> str:
    """Return a structure as its name and its fields by name."""
    name = next(name for name, kind in STRUCTURES.items() if kind is type(structure))
    values = {one.name: getattr(structure, one.name) for one in fields(structure)}
    return f"{name}({', '.join(f'{key} = {_field(value)}' for key, value in values.items())})"


def _field(value: Windows | tuple[int, ...] | int | str) -> str:
    if isinstance(value, Windows):
        return _structure(value)
    return str(list(value)) if isinstance(value, tuple) else json.dumps(value)


def _constant(constant: ir.Constant) -> str:
    if constant.type == INT64:
        return str(constant.value)
    if constant.type == BOOL:
        return "true" if constant.value else "false"
    return f"{constant.type}({constant.value!r})"
