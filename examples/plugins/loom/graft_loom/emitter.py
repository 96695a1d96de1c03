"""The loom's language from tensor IR: expressions in postfix order; loops and branches that switch lanes off."""

import re
import struct
import zlib
from importlib.resources import files
from typing import assert_never

from graft.core.tensor_ir import ir
from graft.errors import CompileError

VERSION = 1
STACK = 256
"""LOOM_STACK of loom.h."""
TABLE = (files("graft_loom") / "native" / "instructions.def").read_text(encoding="utf-8")
"""What the simulator is compiled from: here is no second list of instructions."""
ROWS = re.findall(r"^(?:EACH|CONTROL)\((\w+), (\d), (\w)", TABLE, re.MULTILINE)
OPCODES = {name: number for number, (name, _, _) in enumerate(ROWS)}
GROWTH = {name: (int(made) if made.isdigit() else 1) - int(taken) for name, taken, made in ROWS}
"""By instruction, how much deeper the stack is behind it."""
LETTERS = {"float32": "F", "int64": "I", "bool": "I"}
"""The last letter of an instruction: what its operands are on the stack, where a bool is 0 or 1."""
SAME = {"muladd": "fma", "exp_nonpositive": "exp"}
"""Intrinsics that other machines have something faster for."""
STORED = {"float32": ("F", 4), "int64": ("I", 8), "bool": ("B", 1)}
"""The last letter of loads and stores, and the bytes of an element."""


class Writer:
    """Writes one function: instructions, and the numbers of its locals and buffers."""

    def __init__(self, function):
        self.function = function
        self.code = []
        self.locals = {}
        self.buffers = {}
        self.in_lanes = False
        self.depth = 0

    def words(self):
        """Return the function as a module has it: its sizes, its name, its code."""
        for number, buffer in enumerate(self.function.parameters):
            self.buffers[buffer] = number
            if buffer.strides is not None:
                raise self.refused(f"tensor with strides, '{buffer.name}'")
            for axis, extent in enumerate(buffer.shape):
                if isinstance(extent, ir.Variable) and extent not in self.locals:
                    self.put("EXTENT", number, axis)
                    self.put("SET", self.local(extent))
        self.statement(self.function.body)
        name = self.function.name.encode()
        name += b"\0" * (8 - len(name) % 8)
        parameters = len(self.function.parameters)
        sizes = (len(name) // 8, parameters - self.function.outputs, parameters, len(self.buffers), len(self.locals))
        code = (number for instruction in self.code for number in instruction)
        return struct.pack("<6q", *sizes, len(self.code)) + name + struct.pack(f"<{3 * len(self.code)}q", *code)

    def put(self, name, p=0, q=0):
        """Add an instruction and return its place."""
        if name not in OPCODES:
            raise self.refused(name)
        self.depth += GROWTH[name]
        if self.depth > STACK:
            raise self.refused(f"expression of more than {STACK} operands at a time")
        self.code.append((OPCODES[name], p, q))
        return len(self.code) - 1

    def local(self, variable):
        """Return the number of a variable."""
        return self.locals.setdefault(variable, len(self.locals))

    def land(self, jump):
        """Let an earlier jump go to the next instruction."""
        opcode, _, q = self.code[jump]
        self.code[jump] = (opcode, len(self.code), q)

    def statement(self, statement):
        """Write a statement; before and after, the stack is empty."""
        match statement:
            case ir.Store(buffer, indices, value, mask):
                self.where(mask, lambda: self.store(buffer, indices, value))
            case ir.For(variable, extent, _, body, "lane"):
                self.put("LANE")
                self.put("SET", self.local(variable))
                self.in_lanes = True
                self.where(ir.Binary("lt", variable, extent), lambda: self.statement(body))
                self.in_lanes = False
            case ir.For(variable, extent, _, body, ""):
                self.loop(variable, extent, body)
            case ir.If(condition, then_body, else_body):
                self.where(condition, lambda: self.statement(then_body))
                if else_body is not None:
                    self.where(ir.Unary("not", condition), lambda: self.statement(else_body))
            case ir.Let(variable, value, body):
                self.value(value)
                self.put("SET", self.local(variable))
                self.statement(body)
            case ir.Allocate(buffer, body):
                self.value(self.size(buffer))
                self.buffers[buffer] = len(self.buffers)
                self.put("ALLOCATE", self.buffers[buffer], self.stored(buffer)[1] << 1 | self.in_lanes)
                self.statement(body)
            case ir.Block(statements):
                for inner in statements:
                    self.statement(inner)
            case ir.CallExtern("fail_index" | "fail_extent" as name, (first, axis, last, *_)):
                for argument in (first, axis, last):
                    self.value(argument)
                self.put("FAIL", int(name == "fail_extent"))
            case ir.CallExtern("prefetch"):
                pass  # the loom has no cache
            case ir.For() | ir.CallExtern() | ir.Barrier() | ir.Issue() | ir.Push() | ir.Pop():
                raise self.refused(f"{type(statement).__name__} of another machine")
            case _:
                assert_never(statement)

    def store(self, buffer, indices, value):
        """Write a store to the lanes that are on."""
        self.place(buffer, indices)
        self.value(value)
        self.put(f"STORE_{self.stored(buffer)[0]}", self.buffers[buffer])

    def where(self, condition, write):
        """Write what only the lanes do that a condition holds in; without one, all that are on."""
        if condition is None:
            write()
            return
        self.put("SAVE")
        self.value(condition)
        narrow = self.put("NARROW")
        write()
        self.land(narrow)
        self.put("RESTORE")

    def loop(self, variable, extent, body):
        """Write a loop that lanes leave one by one, each after as many turns as its own extent says."""
        number = self.local(variable)
        self.put("CONSTANT_I", 0)
        self.put("SET", number)
        self.put("SAVE")
        head = len(self.code)
        self.value(ir.Binary("lt", variable, extent))
        narrow = self.put("NARROW")
        self.statement(body)
        self.value(ir.Binary("add", variable, ir.Constant(1, variable.type)))
        self.put("SET", number)
        self.put("JUMP", head)
        self.land(narrow)
        self.put("RESTORE")

    def size(self, buffer):
        """Return the number of elements of a buffer."""
        size = ir.Constant(1, ir.INT64)
        for extent in buffer.shape:
            size = ir.Binary("mul", size, extent)
        return size

    def place(self, buffer, indices):
        """Put the number of an element on the stack: tensors are row-major."""
        place = ir.Constant(0, ir.INT64)
        for extent, index in zip(buffer.shape, indices, strict=True):
            place = ir.Binary("add", ir.Binary("mul", place, extent), index)
        self.value(place)

    def value(self, node):
        """Put the value of an expression on the stack."""
        match node:
            case ir.Constant(value, kind):
                bits = struct.unpack("<I", struct.pack("<f", value))[0] if kind.dtype == "float32" else int(value)
                self.put(f"CONSTANT_{self.letter(node)}", bits)
            case ir.Variable():
                self.put("GET", self.locals[node])
            case ir.Load(buffer, indices, mask):
                self.place(buffer, indices)
                if mask is not None:
                    self.value(mask)
                self.put(f"LOAD_{'' if mask is None else 'IF_'}{self.stored(buffer)[0]}", self.buffers[buffer])
            case ir.Ramp(base, _, 1) | ir.Broadcast(base, 1) | ir.Horizontal(_, base) if base.type.lanes == 1:
                self.value(base)
            case ir.Cast(value, dtype) if dtype in LETTERS:
                self.cast(value, dtype)
            case ir.Binary(operator, left, right):
                self.each(operator, left, right)
            case ir.Unary(operator, value):
                self.each(operator, value)
            case ir.Select(condition, on_true, on_false):
                self.value(condition)
                self.each("select", on_true, on_false)
            case ir.Intrinsic(name, arguments, _):
                self.each(SAME.get(name, name), *arguments)
            case _:
                raise self.refused(f"{type(node).__name__} of type {node.type}")

    def each(self, operator, *operands):
        """Write an instruction that each lane does with its own operands."""
        for operand in operands:
            self.value(operand)
        self.put(f"{operator.upper()}_{self.letter(operands[-1])}")

    def cast(self, value, dtype):
        """Write a change of type."""
        match self.letter(value), dtype:
            case _, "bool" if value.type.dtype != "bool":
                self.value(ir.Binary("ne", value, ir.Constant(0, value.type)))
            case "I", "float32":
                self.value(value)
                self.put("I_TO_F")
            case before, after if before == LETTERS[after]:
                self.value(value)
            case _:
                raise self.refused(f"cast from {value.type} to {dtype}")

    def letter(self, node):
        """Return the letter of a type on the stack."""
        if node.type.dtype not in LETTERS or node.type.lanes != 1:
            raise self.refused(f"value of type {node.type}")
        return LETTERS[node.type.dtype]

    def stored(self, buffer):
        """Return the letter of loads and stores of a buffer, and the bytes of an element."""
        if buffer.dtype not in STORED:
            raise self.refused(f"buffer '{buffer.name}' of {buffer.dtype}")
        return STORED[buffer.dtype]

    def refused(self, what):
        """Return the error for what the machine cannot do; the plan shows it, the next backend takes the region."""
        name = self.function.name
        return CompileError(f"function '{name}' has a {what}; the loom has no instruction for it", function=name)


def encode(functions):
    """Return a module: the version of the language, how many instructions and functions, a checksum, the functions."""
    body = b"".join(Writer(one).words() for one in functions)
    return struct.pack("<4q", VERSION, len(OPCODES), len(functions), zlib.crc32(body)) + body
