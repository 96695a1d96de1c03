"""PTX as data: kernels and functions, their parameters, registers, labels and instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from graft.errors import CompileError

_HEAD = re.compile(r"^(\.visible |\.weak |\.extern )*\.(?P<kind>entry|func)\s*(?P<rest>.*)$")
_SIGNATURE = re.compile(
    r".*?\.(?:entry|func)\s*(?:\((?P<result>[^)]*)\))?\s*(?P<name>[\w$]+)\s*(?:\((?P<given>[^)]*)\))?"
)
_LABEL = re.compile(r"^(?P<name>[\w$]+):(?!:)\s*")
_REGISTER = re.compile(r"(?P<name>%[\w$]+)(?:<(?P<count>\d+)>)?")
_LOCAL = re.compile(r"^\.local \.align (?P<align>\d+) \.b8\s+(?P<name>[\w$]+)\[(?P<bytes>\d+)\]$")
_GUARD = re.compile(r"^@(?P<negated>!?)(?P<name>%[\w$.]+)\s+")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its parts between dots, its operands, the predicate that it runs under."""

    line: int
    name: str
    parts: tuple[str, ...]
    operands: tuple[str, ...]
    guard: str = ""
    """A predicate register, with ``!`` before it if it must be false."""

    @property
    def kind(self) -> str:
        """The type that it is of: the last part."""
        return self.parts[-1]

    @property
    def root(self) -> str:
        """Its name without types: the first part."""
        return self.parts[0]


@dataclass(frozen=True, slots=True)
class Label:
    """A place to branch to."""

    name: str


@dataclass(slots=True)
class PtxFunction:
    """A kernel or a function."""

    name: str
    text: str
    """Its lines, which instructions count."""
    parameters: list[tuple[str, str]]
    """Types and names."""
    results: list[tuple[str, str]]
    is_kernel: bool
    registers: dict[str, str] = field(default_factory=dict)
    """Their types, by name."""
    memory: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The thread's own memory by name: bytes, alignment."""
    body: list[Instruction | Label] = field(default_factory=list)


def functions(text: str) -> list[PtxFunction]:
    """Return the kernels and functions of PTX; raise CompileError for what is none."""
    found = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        head = _HEAD.match(lines[at])
        if head is None:
            at += 1
            continue
        begin = at
        while at < len(lines) and lines[at].strip() != "{" and not lines[at].rstrip().endswith(";"):
            at += 1
        if at < len(lines) and lines[at].strip() == "{":
            end = _end(lines, at)
            found.append(_function(lines[begin:at], lines[begin : end + 1], at - begin, head["kind"] == "entry"))
            at = end
        at += 1
    return found


def _end(lines: list[str], begin: int) -> int:
    depth = 0
    for number in range(begin, len(lines)):
        code = lines[number].partition("//")[0]
        depth += code.count("{") - code.count("}")
        if depth == 0:
            return number
    raise CompileError(f"the PTX has a body that line {begin + 1} begins and nothing ends")


def _function(head: list[str], lines: list[str], begin: int, is_kernel: bool) -> PtxFunction:
    found = _SIGNATURE.match(" ".join(head))
    if found is None:
        raise CompileError(f"the PTX has a function of another form than is known: {head[0]}")
    given, result = _parameters(found["given"] or ""), _parameters(found["result"] or "")
    function = PtxFunction(found["name"], "\n".join(lines), given, result, is_kernel)
    _Reader(function).read(lines, begin)
    return function


def _parameters(text: str) -> list[tuple[str, str]]:
    words = [one.split() for one in text.split(",") if one.strip()]
    kinds = [[word[1:] for word in one[1:] if word[0] == "." and word not in {".align", ".ptr"}] for one in words]
    return [(kind[0], one[-1]) for kind, one in zip(kinds, words, strict=True)]


class _Reader:
    """Reads statements; names that a pair of braces declares are its own."""

    def __init__(self, function: PtxFunction) -> None:
        self.function = function
        self._scopes: list[dict[str, str]] = []
        self._count = 0

    def read(self, lines: list[str], begin: int) -> None:
        """Read the body, which a brace begins."""
        for line, statement in _statements(lines, begin):
            if statement == "{":
                self._scopes.append({})
                self._count += 1
            elif statement == "}":
                self._scopes.pop()
            elif statement.endswith(":"):
                self.function.body.append(Label(self._declared(statement[:-1])))
            else:
                self._statement(line, statement)

    def _declared(self, name: str) -> str:
        if len(self._scopes) == 1:  # of the whole function
            return name
        return self._scopes[-1].setdefault(name, f"{name}.{self._count}")

    def _known(self, text: str) -> str:
        """Return a text with the names of the braces around it."""
        names = {name: full for scope in self._scopes[1:] for name, full in scope.items()}
        return re.sub(r"%?[\w$]+", lambda found: names.get(found[0], found[0]), text) if names else text

    def _statement(self, line: int, statement: str) -> None:
        if statement.startswith(".reg"):
            _, kind, names = statement.split(None, 2)
            for one in _REGISTER.finditer(names):
                numbers = range(int(one["count"])) if one["count"] else [""]
                for number in numbers:
                    self.function.registers[self._declared(f"{one['name']}{number}")] = kind[1:]
        elif statement.startswith(".param"):
            _, kind, name = statement.split()
            self.function.memory[self._declared(name)] = (8, 8)
        elif found := _LOCAL.match(statement):
            self.function.memory[found["name"]] = int(found["bytes"]), int(found["align"])
        elif not statement.startswith("."):
            self.function.body.append(_instruction(line, self._known(self._forward(statement))))

    def _forward(self, statement: str) -> str:
        """Declare the label that an inner branch names before it stands."""
        found = re.search(r"\bbra(?:\.uni)?\s+([A-Za-z][\w$]*)$", statement)
        if found and len(self._scopes) > 1:
            self._declared(found[1])
        return statement


def _instruction(line: int, text: str) -> Instruction:
    guard = _GUARD.match(text)
    name, _, rest = (text[guard.end() :] if guard else text).partition(" ")
    operands = tuple(_split(rest.strip()))
    return Instruction(line, name, tuple(name.split(".")), operands, guard["negated"] + guard["name"] if guard else "")


def _split(text: str) -> Iterator[str]:
    """Yield operands; commas within braces, brackets and parentheses separate none."""
    depth, begin = 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "{[(") - (letter in "}])")
        if letter == "," and not depth:
            yield text[begin:place].strip()
            begin = place + 1
    if text[begin:].strip():
        yield text[begin:].strip()


def _statements(lines: list[str], begin: int) -> Iterator[tuple[int, str]]:
    """Yield braces, labels (with their colon) and statements, each with the number of its line, the first being 1."""
    pending, first = "", 0
    for number, line in enumerate(lines[begin:], begin + 1):
        rest = re.sub(r"\s+", " ", line.partition("//")[0]).strip()
        while rest:
            if not pending:
                first = number
                if rest[0] in "{}":
                    yield first, rest[0]
                    rest = rest[1:].lstrip()
                    continue
                if label := _LABEL.match(rest):
                    yield first, f"{label['name']}:"
                    rest = rest[label.end() :]
                    continue
            code, ends, after = rest.partition(";")
            pending = f"{pending} {code.strip()}".strip()
            if not ends:
                break
            yield first, pending
            pending, rest = "", after.lstrip()
