"""The bytes of a module of kind `cuda`: what to launch with which geometry, and the code of it for each machine.

Eight bytes `GRAFTCU1`, the size of a header (uint64, little-endian), the header as JSON, padding to 64 bytes, images. A
number that depends on shapes is ``"e<n>"``, operation n of the function's ``extents``: ``[operator, left, right]``. Its
operands are numbers, earlier operations, or extents of the function's tensors, ``"i<input>.<axis>"`` and
``"o<output>.<axis>"``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from graft.core.tensor_ir.ir import Binary, Buffer, Constant, Expression, Function, Variable
from graft.core.types import element_bits
from graft.errors import CompileError
from graft.plugins.cuda.launches import REPORT, Launch, Launches, launches_of

MAGIC = b"GRAFTCU1"
ALIGNMENT = 64
Form = Literal["cubin", "ptx", "emulated"]
Number = int | str
Argument = Mapping[str, Number]
_OPERATORS = {"add": "add", "sub": "sub", "mul": "mul", "div": "floordiv", "mod": "mod", "min": "min", "max": "max"}
"""Extents are not negative, so that a division that truncates is one that rounds down."""


class _Text(Protocol):
    """The text of a launch in a language."""

    @property
    def shared(self) -> int:
        """The bytes of shared memory that it asks for."""
        ...


Text = TypeVar("Text", bound=_Text)


@dataclass(frozen=True, slots=True)
class Image:
    """Code for a machine: a cubin, PTX, or a shared object of the emulator."""

    arch: str
    form: Form
    data: bytes


@dataclass(frozen=True, slots=True)
class LaunchRow:
    """A launch as the header has it."""

    kernel: str
    node: str
    grid: tuple[Number, ...]
    block: tuple[int, ...]
    shared: int
    args: tuple[Argument, ...]
    cluster: tuple[int, ...] = (1, 1, 1)


@dataclass(slots=True)
class FunctionRow:
    """A function as the header has it."""

    name: str
    launches: list[LaunchRow] = field(default_factory=list)
    workspaces: list[Number] = field(default_factory=list)
    extents: list[tuple[str, Number, Number]] = field(default_factory=list)


def packed(images: Sequence[Image], functions: Sequence[FunctionRow]) -> bytes:
    """Return the module; the same images and functions give the same bytes."""
    return repacked({"format": 1, "functions": [asdict(function) for function in functions]}, images)


def repacked(header: Mapping[str, Any], images: Sequence[Image]) -> bytes:
    """Return the module with a header's functions and other images."""
    rows, offset = [], 0
    for image in images:
        rows.append({"arch": image.arch, "form": image.form, "offset": offset, "size": len(image.data)})
        offset += -(-len(image.data) // ALIGNMENT) * ALIGNMENT
    header = {"format": header["format"], "images": rows, "functions": header["functions"]}
    text = json.dumps(header, separators=(",", ":")).encode()
    head = MAGIC + len(text).to_bytes(8, "little") + text
    return b"".join(_padded(part) for part in (head, *(image.data for image in images)))


def unpacked(data: bytes) -> tuple[dict[str, Any], list[Image]]:
    """Return the header and the images of a module; raise CompileError for bytes that are none."""
    if data[:8] != MAGIC:
        raise CompileError("these bytes are no module of kind 'cuda'; they do not begin with GRAFTCU1")
    size = int.from_bytes(data[8:16], "little")
    header = json.loads(data[16 : 16 + size])
    first = -(-(16 + size) // ALIGNMENT) * ALIGNMENT
    images = []
    for row in header["images"]:
        begin = first + row["offset"]
        images.append(Image(row["arch"], row["form"], data[begin : begin + row["size"]]))
    return header, images


def _padded(part: bytes) -> bytes:
    return part + b"\0" * (-len(part) % ALIGNMENT)


class Extents:
    """Gives expressions over the extents of a function's tensors their numbers in the header."""

    def __init__(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> None:
        self.rows: list[tuple[str, Number, Number]] = []
        self._leaves: dict[Variable, str] = {}
        for letter, buffers in (("i", inputs), ("o", outputs)):
            for number, buffer in enumerate(buffers):
                for axis, extent in enumerate(buffer.outside.shape):
                    if isinstance(extent, Variable):
                        self._leaves.setdefault(extent, f"{letter}{number}.{axis}")

    def number(self, expression: Expression) -> Number:
        """Return the number, or the name of what computes it.

        Raise CompileError where the runtime cannot compute it.
        """
        match expression:
            case Constant(value, _):
                return int(value)
            case Variable(name):
                if expression not in self._leaves:
                    raise CompileError(f"'{name}' is no extent of a tensor that the function has")
                return self._leaves[expression]
            case Binary(operator, left, right) if operator in _OPERATORS:
                return self.operation(_OPERATORS[operator], self.number(left), self.number(right))
        raise CompileError(f"an extent is a '{type(expression).__name__}', which the runtime cannot compute")

    def operation(self, operator: str, left: Number, right: Number) -> Number:
        """Return the number of an operation, computed where both operands are known."""
        if isinstance(left, int) and isinstance(right, int):
            known = {"add": left + right, "sub": left - right, "mul": left * right}
            known |= {"min": min(left, right), "max": max(left, right)}
            return known[operator] if operator in known else left // right if operator == "floordiv" else left % right
        row = (operator, left, right)
        if row not in self.rows:
            self.rows.append(row)
        return f"e{self.rows.index(row)}"

    def size(self, buffer: Buffer) -> Number:
        """Return the bytes of a buffer."""
        total: Number = element_bits(buffer.dtype) // 8
        for extent in buffer.shape:
            total = self.operation("mul", total, self.number(extent))
        return total


def function_row(launches: Launches, shared: Mapping[str, int]) -> FunctionRow:
    """Return a function's row; ``shared`` has the bytes of shared memory of each kernel."""
    function = launches.function
    extents = Extents(function.input_buffers, function.output_buffers)
    row = FunctionRow(function.name, workspaces=[extents.size(one) for one in launches.workspaces])
    places: dict[Buffer, Argument] = {REPORT: {"report": 0}}
    for kind, buffers in (
        ("workspace", launches.workspaces),
        ("input", function.input_buffers),
        ("output", function.output_buffers),
    ):
        places |= {buffer: {kind: number} for number, buffer in enumerate(buffers)}
    for launch in launches.launches:
        arguments: list[Argument] = [places[buffer] for buffer in launch.buffers]
        arguments += [{"extent": extents.number(extent), "bits": 32} for extent in launch.extents]
        grid = tuple(map(extents.number, launch.grid))
        node = ", ".join(function.origin)
        row.launches.append(LaunchRow(launch.name, node, grid, launch.block, shared[launch.name], tuple(arguments)))
    row.extents = extents.rows
    return row


def written(
    functions: Sequence[Function], text_of: Callable[[Launch, Function], Text]
) -> tuple[list[Text], list[Launch], list[FunctionRow]]:
    """Return the texts of all kernels in a language, their launches, and the rows of the functions that launch them."""
    texts: list[Text] = []
    every: list[Launch] = []
    rows: list[FunctionRow] = []
    for function in functions:
        launches = launches_of(function)
        own = [text_of(one, function) for one in launches.launches]
        shared = {one.name: text.shared for one, text in zip(launches.launches, own, strict=True)}
        texts += own
        every += launches.launches
        rows.append(function_row(launches, shared))
    return texts, every, rows
