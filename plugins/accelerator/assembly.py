"""Programs as text: an assembler and a disassembler that are each other's inverse.

A line is a directive, an instruction, or a comment behind ``;``. Fields are written ``name=number`` and left out where
they have their default; ``wait=`` and ``signal=`` name the neighbour units whose tokens are taken and given.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import NoReturn

from graft.errors import GraftError
from graft.plugins.accelerator import isa
from graft.plugins.accelerator.configuration import MICRO_OP_BYTES, Configuration
from graft.plugins.accelerator.encoding import decode_micro_op, encode, encode_micro_op
from graft.plugins.accelerator.program import Program, Role, Tensor

MNEMONICS = {kind.mnemonic: kind for kind in isa.KINDS}
CHOICES: dict[str, type[isa.Memory] | type[isa.Operation]] = {"memory": isa.Memory, "operation": isa.Operation}
TOKEN_FIELDS = frozenset({"pop_previous", "pop_next", "push_previous", "push_next"})
BYTES_PER_LINE = 32
WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s;"]+|(?P<comment>;.*)|(?P<stray>")')


class AssemblyError(GraftError):
    """A text is no program; ``line`` and ``column`` (from 1) say where it ends to be one."""


# ---- To text ------------------------------------------------------------------------------------------------------


def disassemble(program: Program) -> str:
    """Return the whole program as text, constants included: ``assemble`` gives an equal program."""
    configuration = program.configuration
    sizes = " ".join(f"{one.name}={getattr(configuration, one.name)}" for one in fields(configuration))
    lines = [f".configuration {sizes}"]
    for tensor in program.tensors:
        lines.append(f".tensor {json.dumps(tensor.name)} {tensor.role} offset={tensor.offset} size={tensor.size}")
        if tensor.role is Role.MICRO_OPS:
            rows = range(0, len(tensor.data), MICRO_OP_BYTES)
            lines += [_micro_op_text(tensor.data[start : start + MICRO_OP_BYTES], configuration) for start in rows]
        else:
            rows = range(0, len(tensor.data), BYTES_PER_LINE)
            lines += [f"    .bytes {tensor.data[start : start + BYTES_PER_LINE].hex()}" for start in rows]
    return "\n".join([*lines, ".program", *map(instruction_text, program.instructions), ""])


def instruction_text(instruction: isa.Instruction) -> str:
    """Return the line of an instruction."""
    words = [instruction.mnemonic]
    for one in fields(instruction):
        value = getattr(instruction, one.name)
        if one.name in CHOICES:
            words.append(value.name.lower())
        elif one.name in TOKEN_FIELDS or value == one.default:
            continue
        else:
            words.append(one.name if one.name in isa.FLAGS else f"{one.name}={value}")
    waits = [queue.value[0].name.lower() for queue in isa.pops(instruction)]
    signals = [queue.value[1].name.lower() for queue in isa.pushes(instruction)]
    words += [f"{word}={','.join(units)}" for word, units in (("wait", waits), ("signal", signals)) if units]
    return " ".join(words)


def _micro_op_text(data: bytes, configuration: Configuration) -> str:
    """Return the line of a micro-op; as bytes, where bits behind its last field are set or bytes are missing."""
    micro_op = decode_micro_op(data, configuration)
    if encode_micro_op(micro_op, configuration) != data:
        return f"    .bytes {data.hex()}"
    words = (f" {one.name}={getattr(micro_op, one.name)}" for one in fields(micro_op) if getattr(micro_op, one.name))
    return "    .micro_op" + "".join(words)


# ---- From text ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Word:
    """A word of the text and where it begins."""

    text: str
    line: int
    column: int

    def fail(self, expected: str, choices: Iterable[str] = ()) -> NoReturn:
        """Raise an error that says what should stand here."""
        near = difflib.get_close_matches(self.text.partition("=")[0], list(choices), 1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        found = f"'{self.text}'" if self.text else "the end of the line"
        raise AssemblyError(
            f"line {self.line}, column {self.column}: expected {expected}, found {found}{hint}",
            line=self.line,
            column=self.column,
        )

    def at(self, offset: int) -> _Word:
        """Return the rest of the word behind ``offset`` letters."""
        return _Word(self.text[offset:], self.line, self.column + offset)

    def number(self) -> int:
        """Read a whole number, decimal or with 0x."""
        try:
            return int(self.text, 0)
        except ValueError:
            self.fail("a whole number")


@dataclass(slots=True)
class _Parts:
    """What was read so far."""

    configuration: Configuration | None = None
    tensors: list[tuple[_Word, Tensor, bytearray]] = field(default_factory=list)
    instructions: list[isa.Instruction] = field(default_factory=list)
    started: bool = False


def assemble(text: str) -> Program:
    """Return the program of a text; raise AssemblyError with line, column and what was expected."""
    parts, last = _Parts(), 0
    for last, line in enumerate(text.splitlines(), 1):
        words = list(_words(line, last))
        if words:
            _read_line(words, _Word("", last, len(line) + 1), parts)
    if parts.configuration is None or not parts.started:
        _Word("", last + 1, 1).fail("'.configuration'" if parts.configuration is None else "'.program'")
    tensors = tuple(_finished(*one) for one in parts.tensors)
    return Program(parts.configuration, tensors, tuple(parts.instructions))


def _finished(word: _Word, tensor: Tensor, data: bytearray) -> Tensor:
    if len(data) != (tensor.size if tensor.role.is_constant else 0):
        expected = f"{tensor.size} bytes of data" if tensor.role.is_constant else "no data"
        word.fail(f"{expected} for a tensor of the role '{tensor.role}', got {len(data)} bytes")
    return Tensor(tensor.name, tensor.role, tensor.offset, tensor.size, bytes(data))


def _words(line: str, number: int) -> Iterator[_Word]:
    for match in WORD.finditer(line):
        word = _Word(match.group(), number, match.start() + 1)
        if match["stray"]:
            word.fail("a closing quotation mark")
        if not match["comment"]:
            yield word


def _read_line(words: list[_Word], end: _Word, parts: _Parts) -> None:
    head, rest = words[0], words[1:]
    if head.text == ".configuration" and parts.configuration is None:
        names = [one.name for one in fields(Configuration)]
        parts.configuration = Configuration(**{name: value.number() for name, value in _pairs(rest, names)})
    elif parts.configuration is None:
        head.fail("'.configuration' first")
    elif head.text == ".program" and not parts.started:
        parts.started = True
        if rest:
            rest[0].fail("the end of the line")
    elif parts.started:
        parts.instructions.append(_instruction(head, rest, end, parts.configuration))
    elif head.text == ".tensor":
        parts.tensors.append((head, _tensor(rest, end), bytearray()))
    elif head.text in (".bytes", ".micro_op") and parts.tensors:
        data = parts.tensors[-1][2]
        data += _bytes(rest, end) if head.text == ".bytes" else _micro_op(head, rest, parts.configuration)
    else:
        head.fail("'.tensor', '.bytes', '.micro_op' or '.program'", (".tensor", ".bytes", ".micro_op", ".program"))


def _pairs(words: Iterable[_Word], names: Iterable[str]) -> Iterator[tuple[str, _Word]]:
    """Yield names and the words of their values; none may come twice."""
    names, seen = list(names), set[str]()
    for word in words:
        name, sign, _ = word.text.partition("=")
        if not sign or name not in names or name in seen:
            left = [one for one in names if one not in seen]
            word.fail(f"one of {', '.join(f'{one}=' for one in left)}" if left else "the end of the line", left)
        seen.add(name)
        yield name, word.at(len(name) + 1)


def _tensor(words: list[_Word], end: _Word) -> Tensor:
    name, role, *rest = (*words[:2], *[end] * (2 - len(words)), *words[2:])
    try:
        spelled = json.loads(name.text)
    except ValueError:
        spelled = None
    if not isinstance(spelled, str):
        name.fail("the tensor's name in quotation marks")
    if role.text not in set(Role):
        role.fail(f"a role ({', '.join(Role)})", Role)
    values = {key: value.number() for key, value in _pairs(rest, ("offset", "size"))}
    if len(values) < 2:
        end.fail("offset= and size=")
    return Tensor(spelled, Role(role.text), values["offset"], values["size"])


def _bytes(words: list[_Word], end: _Word) -> bytes:
    word = words[0] if words else end
    try:
        return bytes.fromhex(word.text) if word.text and len(words) == 1 else word.fail("one word of hexadecimal bytes")
    except ValueError:
        word.fail("hexadecimal bytes")


def _micro_op(head: _Word, words: list[_Word], configuration: Configuration) -> bytes:
    known = {one.name: one for one in isa.micro_op_fields(configuration)}
    values = {}
    for name, word in _pairs(words, known):
        values[name] = _within(word, known[name].least, known[name].most)
    return encode_micro_op(isa.MicroOp(**values), configuration)


def _within(word: _Word, least: int, most: int) -> int:
    value = word.number()
    return value if least <= value <= most else word.fail(f"a number from {least} to {most}")


def _instruction(head: _Word, words: list[_Word], end: _Word, configuration: Configuration) -> isa.Instruction:
    if head.text not in MNEMONICS:
        head.fail(f"an instruction ({', '.join(MNEMONICS)})", MNEMONICS)
    kind = MNEMONICS[head.text]
    known = {one.name: one for one in isa.field_table(configuration)[kind] if one.name not in TOKEN_FIELDS}
    values: dict[str, object] = {}
    for name in [name for name in known if name in CHOICES]:
        word, words = (words[0], words[1:]) if words else (end, [])
        spelled = {one.name.lower(): one for one in CHOICES[name]}
        if word.text not in spelled:
            word.fail(f"a {name} ({', '.join(spelled)})", spelled)
        values[name] = spelled[word.text]
    flags = [word.text for word in words if word.text in isa.FLAGS & known.keys()]
    values |= dict.fromkeys(flags, True)
    numbers = [name for name in known if name not in isa.FLAGS and name not in CHOICES]
    links: dict[str, _Word] = {}
    for name, word in _pairs((word for word in words if word.text not in flags), [*numbers, "wait", "signal"]):
        if name in ("wait", "signal"):
            links[name] = word
        else:
            values[name] = _within(word, known[name].least, known[name].most)
    instruction = kind(**values)  # type: ignore[arg-type] # the table's names are the class's
    for name, word in links.items():
        values |= _token_fields(name, word, isa.unit_of(instruction))
    instruction = kind(**values)  # type: ignore[arg-type] # likewise
    try:
        encode(instruction, configuration)
    except GraftError as error:
        head.fail(f"an instruction that has a meaning ({error.message.partition(': ')[2]})")
    return instruction


def _token_fields(name: str, word: _Word, unit: isa.Unit) -> dict[str, object]:
    """Return the token fields that ``wait=`` or ``signal=`` set for an instruction of a unit."""
    near = {one.name.lower(): one for one in isa.Unit if abs(one - unit) == 1}
    values: dict[str, object] = {}
    for match in re.finditer(r"[^,]*", word.text):
        part = _Word(match.group(), word.line, word.column + match.start())
        if not part.text and match.start() and word.text[match.start() - 1] != ",":
            continue
        if part.text not in near:
            part.fail(f"a neighbour of the {unit.name.lower()} unit ({', '.join(near)})", near)
        side = "previous" if near[part.text] < unit else "next"
        values[f"{'pop' if name == 'wait' else 'push'}_{side}"] = True
    return values
