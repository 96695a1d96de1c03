"""The language of the abacus from tensor IR: lines of Python, which `load` runs in the machine's place."""

import json
import math
from typing import assert_never

import numpy as np

from graft.core.tensor_ir import ir
from graft.errors import CompileError

SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "and": "and", "or": "or",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip


class Writer:
    """Writes one function; a name for every variable and buffer."""

    def __init__(self, function):
        self.function = function
        self.lines = []
        self.names = {}

    def text(self):
        """Return the function as lines of the language."""
        parameters = [self.bind(buffer) for buffer in self.function.parameters]
        self.lines.append(f"def {self.function.name}({', '.join(parameters)}):")
        self.statement(self.function.body, 1)
        return "\n".join(self.lines)

    def bind(self, one):
        """Return a new name."""
        return self.names.setdefault(one, f"v{len(self.names)}")

    def statement(self, statement, depth):
        """Write a statement and what is inside."""
        pad = " " * depth
        match statement:
            case ir.Store(buffer, indices, value, None):
                self.lines.append(f"{pad}{self.place(buffer, indices)} = {self.value(value)}")
            case ir.For(variable, extent, _, body, binding) if binding in ("", "wire"):
                turn = "wires" if binding else "range"
                self.lines.append(f"{pad}for {self.bind(variable)} in {turn}({self.value(extent)}):")
                self.statement(body, depth + 1)
            case ir.If(condition, then_body, None):
                self.lines.append(f"{pad}if {self.value(condition)}:")
                self.statement(then_body, depth + 1)
            case ir.Let(variable, value, body):
                text = self.value(value)
                self.lines.append(f"{pad}{self.bind(variable)} = {text}")
                self.statement(body, depth)
            case ir.Allocate(buffer, body):
                size = " * ".join(self.value(extent) for extent in buffer.shape) or "1"
                self.lines.append(f"{pad}{self.bind(buffer)} = memory({size}, {buffer.dtype!r})")
                self.statement(body, depth)
            case ir.Block(statements):
                for inner in statements:
                    self.statement(inner, depth)
            case ir.Store() | ir.For() | ir.If() | ir.CallExtern():
                raise self.refused(type(statement).__name__)
            case _:
                assert_never(statement)

    def place(self, buffer, indices):
        """Return an element of a buffer, whose elements are one row of beads."""
        text = "0"
        for extent, index in zip(buffer.shape, indices, strict=True):
            text = f"({text}) * {self.value(extent)} + {self.value(index)}"
        return f"{self.names[buffer]}[{text}]"

    def value(self, node):
        """Return an expression of the language."""
        match node:
            case ir.Constant(value, _):
                return repr(value) if abs(value) != math.inf else f"float('{value}')"
            case ir.Variable():
                return self.names[node]
            case ir.Load(buffer, indices, None):
                return self.place(buffer, indices)
            case ir.Ramp(base, _, 1) | ir.Broadcast(base, 1) | ir.Horizontal(_, base) if base.type.lanes == 1:
                return self.value(base)
            case ir.Binary("div" | "mod" as operator, left, right) if left.type.is_integer:
                return f"({self.value(left)} {'//' if operator == 'div' else '%'} {self.value(right)})"
            case ir.Binary("min" | "max" as operator, left, right):
                return f"{operator}({self.value(left)}, {self.value(right)})"
            case ir.Binary(operator, left, right) if operator in SIGNS:
                return f"({self.value(left)} {SIGNS[operator]} {self.value(right)})"
            case ir.Unary("neg", value):
                return f"(-{self.value(value)})"
            case ir.Select(condition, on_true, on_false):
                return f"({self.value(on_true)} if {self.value(condition)} else {self.value(on_false)})"
            case ir.Intrinsic("fma", (left, right, addend), _):
                return f"({self.value(left)} * {self.value(right)} + {self.value(addend)})"
        raise self.refused(f"{type(node).__name__} {getattr(node, 'name', getattr(node, 'operator', ''))}".strip())

    def refused(self, what):
        """Return the error for what the machine cannot do."""
        name = self.function.name
        return CompileError(f"function '{name}' has a {what}, which the abacus cannot do", function=name)


def module_bytes(functions):
    """Return the program of some functions: for each its lines and the shapes of its results."""
    programs = {
        function.name: {
            "text": Writer(function).text(),
            "results": [
                [buffer.dtype, [int(extent.value) for extent in buffer.shape]] for buffer in function.output_buffers
            ],
        }
        for function in functions
    }
    return json.dumps(programs).encode()


def load(name, data, constants):
    """Return the functions of a module; what the machine has stands for the names that programs use."""
    return {symbol: _function(symbol, **program) for symbol, program in json.loads(data).items()}


def _function(symbol, text, results):
    machine = {"wires": range, "memory": np.zeros}
    exec(text, machine)

    def run(inputs):
        outputs = [np.zeros(shape, dtype) for dtype, shape in results]
        with np.errstate(all="ignore"):
            machine[symbol](*(array.reshape(-1) for array in (*inputs, *outputs)))
        return outputs

    return run
