"""The instructions that compute, as intrinsics of the tensor IR, and the machine that has them: each once.

An intrinsic is what one step of an instruction does to one entry: a function over its operands, of which the last is
read and written. Its name is the instruction's text; loops around it become the instruction's own and its micro-ops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from graft.core.machine.machine import Instruction as MachineInstruction
from graft.core.machine.machine import Level, Machine, Memory
from graft.core.schedule.primitives.tensorize import Tensorize
from graft.core.tensor_ir.ir import Function
from graft.core.tensor_ir.parser import parse_function
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.isa import FLOOR, WIDE, Alu, Gemm, Operation, Unit

INPUT, WEIGHT, ACCUMULATOR = (f"accelerator.{name}" for name in ("input", "weight", "accumulator"))
"""The memories as buffers of the tensor IR name them."""


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """An instruction without its loops; ``meaning`` has the sources as parameters and the destination as output.

    A product without ``b`` is one by a row of ones. Of an operation's sources only the first has an index in micro-ops:
    ``offsets`` are the entries from it to each.
    """

    name: str
    instruction: Gemm | Alu
    meaning: Function
    offsets: tuple[int, ...] = ()

    def at(self, loop: str) -> Tensorize:
        """Return the step that puts the instruction in the place of a loop."""
        return Tensorize(loop, self.name, {self.name: self.meaning})


PRODUCTS: Mapping[str, tuple[Gemm, str]] = {
    "gemm": (
        Gemm(),
        "a: int8[{lanes}], b: int8[{lanes}, {lanes}]) -> (c: int32[{lanes}]) {{ serial m < {lanes} {{ "
        "serial k < {lanes} {{ c[m] = c[m] + cast<int32>(a[k]) * cast<int32>(b[m, k]) }} }} }}",
    ),
    "gemm lanes": (
        Gemm(lanes=True),
        "a: int8[{lanes}], b: int8[{lanes}]) -> (c: int32[{lanes}]) {{ serial m < {lanes} {{ "
        "c[m] = c[m] + cast<int32>(a[m]) * cast<int32>(b[m]) }} }}",
    ),
    "gemm lanes ones": (
        Gemm(lanes=True),
        "a: int8[{lanes}]) -> (c: int32[{lanes}]) {{ serial m < {lanes} {{ c[m] = c[m] + cast<int32>(a[m]) }} }}",
    ),
    "gemm reset lanes ones": (
        Gemm(lanes=True, reset=True),
        "a: int8[{lanes}]) -> (c: int32[{lanes}]) {{ serial m < {lanes} {{ c[m] = cast<int32>(a[m]) }} }}",
    ),
}
"""What the GEMM unit computes, by name."""
_FLOAT = "bitcast<float32>({})"
_QUANTIZED = (
    "min(max(cast<int32>(min(max(round_even({number}), {type}(-1024.0)), {type}(1024.0))){zero}, int32({least})), "
    "int32(127))"
)
"""A number beyond 1024 saturates with any zero point, so that no integer has to hold more."""


@cache
def product(name: str, lanes: int) -> Intrinsic:
    """Return a product of `PRODUCTS`."""
    instruction, text = PRODUCTS[name]
    return Intrinsic(name, instruction, parse_function(f"function product({text.format(lanes=lanes)}"))


@cache
def operation(kind: Operation, immediate: int, use_immediate: bool, lanes: int) -> Intrinsic:
    """Return what the ALU does to ``x``, given ``y`` (and what lies behind it, ``divisor`` and ``bias``)."""
    sources = {} if use_immediate else {"y": 0}
    if kind is Operation.REQUANTIZE:
        sources |= {"bias": 2} if immediate & WIDE else {"divisor": 1, "bias": 2}
    operands = [f"{name}: int32[{lanes}]" for name in sources]
    x, y, d, bias = (f"{name}[m]" for name in ("x", "y", "divisor", "bias"))
    value = _value(kind, immediate, x, f"int32({immediate})" if use_immediate else y, d, bias)
    head = f"{', '.join(operands)}) -> (x: int32[{lanes}])"
    text = f"function operation({head} {{ serial m < {lanes} {{ {x} = {value} }} }}"
    words = f" immediate={immediate}" if immediate or use_immediate else ""
    name = f"alu {kind.name.lower()}{' use_immediate' * use_immediate}{words}"
    instruction = Alu(operation=kind, use_immediate=use_immediate, immediate=immediate)
    return Intrinsic(name, instruction, parse_function(text), tuple(sources.values()))


def _value(kind: Operation, immediate: int, x: str, y: str, divisor: str, bias: str) -> str:
    """Return what an operation gives, as text of the tensor IR; shifts by 0 to 31."""
    zero = ((immediate & 255) ^ 128) - 128
    least = zero if immediate & FLOOR else -128
    match kind:
        case Operation.MIN | Operation.MAX:
            return f"{kind.name.lower()}({x}, {y})"
        case Operation.ADD:
            return f"{x} + {y}"
        case Operation.MULTIPLY:
            return f"{x} * {y}"
        case Operation.SHIFT_RIGHT:
            return f"{x} >> {y}"
        case Operation.COPY:
            return y
        case Operation.SCALE:
            return f"bitcast<int32>(cast<float32>({x} - int32({zero})) * {_FLOAT.format(y)})"
        case Operation.FLOAT_ADD:
            return f"bitcast<int32>({_FLOAT.format(x)} + {_FLOAT.format(y)})"
        case Operation.QUANTIZE:
            number = f"{_FLOAT.format(x)} / {_FLOAT.format(y)}"
        case Operation.REQUANTIZE if immediate & WIDE:
            number = f"cast<float64>({x} + {bias}) * cast<float64>({_FLOAT.format(y)}) + float64({zero}.0)"
            return _QUANTIZED.format(number=number, type="float64", zero="", least=least)
        case Operation.REQUANTIZE:
            number = f"cast<float32>({x} + {bias}) * {_FLOAT.format(y)} / {_FLOAT.format(divisor)}"
    return _QUANTIZED.format(number=number, type="float32", zero=f" + int32({zero})", least=least)


@cache
def machine(configuration: Configuration) -> Machine:
    """Return the row of an accelerator: its memories by name, and what its GEMM unit computes.

    The operations of the ALU, of which every immediate number makes another, are not listed.
    """
    sizes = (configuration.input_bytes, configuration.weight_bytes, configuration.accumulator_bytes)
    bandwidth = float(configuration.port_bytes)
    own = [Memory(name, size, 1, 1, bandwidth) for name, size in zip((INPUT, WEIGHT, ACCUMULATOR), sizes, strict=True)]
    lanes = configuration.block_out
    rows = [
        MachineInstruction(name, str(product(name, lanes).meaning), {"accelerator": name}, arch="accelerator")
        for name in PRODUCTS
    ]
    return Machine(
        f"accelerator {configuration.digest}",
        "accelerator",
        memories=(*own, Memory("host")),
        levels=(Level("queue", len(Unit)),),
        instructions=tuple(rows),
    )
