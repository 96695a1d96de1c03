"""Kernels whose texts differ in extents alone, as one function that is given these: less flash on a small machine.

Layers of a network are often the same loops over other shapes. Two texts are alike when they have the same tokens but
for the names that they define, the lengths of their arrays (the longest serves all), and whole numbers in loops, places
and what is computed of these. A number that is divided by stays: compilers divide by a constant without a division.
Text is compared, not tensor IR, for the writer needs extents: index ranges, arrays and unrolling are of constants.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from graft.plugins.codegen.kernel_source import KernelSource
from graft.runtime.export.c_names import TYPES

MOST = 2
"""Extents that a function may be given. With three, MobileNetV1 in 8-bit integers has 8 KB less of code on a Cortex-M4,
but takes 4 % more instructions, which is more than by CMSIS-NN: registers hold what were constants."""
_NUMBER = r"(?:0[xX][\da-fA-F.]+(?:[pP][-+]?\d+)?|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)\w*"
_TOKEN = re.compile(rf'"[^"]*"|[A-Za-z_]\w*|{_NUMBER}|\s+|.', re.DOTALL)
_TYPE = "|".join(sorted({*TYPES.values(), "int64_t", "int32_t"}))
_DEFINED = re.compile(rf"\b(?:{_TYPE}) (?:\*(?:restrict )?)?(\w+)")
_INDEX = re.compile(r"\bconst int64_t (\w+) =|\bfor \(int(?:64|32)_t (\w+)")
_ARRAY = re.compile(rf"^(\s*(?:{_TYPE}) \w+)\[(\d+)\](?=;| =)", re.MULTILINE)
_LENGTH = "ARRAY_LENGTH"
_BY_ITSELF = re.compile(r"_task\d|\bstatic\b|\bINT64_C\b|\bcontext\b")
"""What a text has that is not shared: threads, tables, extents beyond 32 bits, a host."""


@dataclass(frozen=True, slots=True)
class _Form:
    """A text apart from what may differ."""

    tokens: tuple[str, ...]
    """As they stand, with ``_LENGTH`` for the length of an array."""
    places: tuple[int, ...]
    """Which of them are extents ..."""
    lengths: tuple[int, ...]
    """... and what the arrays have."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """The extents."""
        return tuple(int(self.tokens[place]) for place in self.places)

    @property
    def key(self) -> tuple[str, ...]:
        """What is the same in texts that are alike: names by where they occur first, no extents."""
        names = {
            name: f"#{number}" for number, name in enumerate(dict.fromkeys(_DEFINED.findall("".join(self.tokens))))
        }
        places = frozenset(self.places)
        return tuple("#" if at in places else names.get(one, one) for at, one in enumerate(self.tokens))


def _form(source: KernelSource) -> _Form:
    """Return a text apart from its extents: whole numbers of loops, in brackets, and behind an index."""
    text = source.renamed("kernel").text
    lengths = tuple(int(length) for _, length in _ARRAY.findall(text))
    tokens, places = list[str](), list[int]()
    indices, depth, last, before = frozenset("".join(one) for one in _INDEX.findall(text)), 0, "", ""
    for line in _ARRAY.sub(rf"\1[{_LENGTH}]", text).splitlines(keepends=True):
        is_index = line.lstrip().startswith(("for (", "const int64_t "))
        for token in _TOKEN.findall(line):
            depth += {"[": 1, "]": -1}.get(token, 0)
            is_extent = token.isdecimal() and token != "0" and int(token) < 1 << 31 and before not in "/%"
            if is_extent and (is_index or depth > 0 or last in indices):
                places.append(len(tokens))
            tokens.append(token)
            if not token.isspace():
                last = token if token.isidentifier() else "" if token == "]" else last
                before = token
    return _Form(tuple(tokens), tuple(places), lengths)


def shared(sources: Mapping[str, KernelSource]) -> dict[str, KernelSource]:
    """Return kernels by name, of which those that are alike have one text: the first's, and the others none.

    The functions of all of them are that of the first, each with its own extents.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    forms = {name: _form(one) for name, one in sources.items() if not _BY_ITSELF.search(one.text)}
    for name, form in forms.items():
        groups.setdefault((*form.key, str(sources[name].function.shapes)), []).append(name)
    found = dict(sources)
    for names in groups.values():
        if len(names) > 1:
            found |= _as_one({name: sources[name] for name in names}, [forms[name] for name in names])
    return found


def _as_one(sources: Mapping[str, KernelSource], forms: Sequence[_Form]) -> Mapping[str, KernelSource]:
    """Return kernels that are alike as one function, or as they are where that would be given too many extents."""
    first, own = next(iter(sources.values())), forms[0]
    columns = [*zip(*(form.numbers for form in forms), strict=True)]
    varying = {column for column in columns if len(set(column)) > 1}
    spelled: dict[tuple[int, ...], str] = {}
    extents: list[tuple[int, ...]] = []
    for column in sorted(varying):
        of = next((one for one in extents if _multiple(column, one)), None)
        if of is None:
            extents.append(column)
            spelled[column] = f"extent{len(extents)}"
        else:
            spelled[column] = f"{_multiple(column, of)} * {spelled[of]}"
    if len(extents) > MOST:
        return sources
    tokens = list(own.tokens)
    for place, column in zip(own.places, columns, strict=True):
        tokens[place] = spelled.get(column, tokens[place])
    text = "".join(tokens)
    for lengths in zip(*(form.lengths for form in forms), strict=True):
        text = text.replace(_LENGTH, str(max(lengths)), 1)
    added = "".join(f", int32_t {spelled[one]}" for one in extents)
    entry, parameters = first.function.entry, first.function.parameters + added
    text = re.sub(r"\bkernel\b", entry, text).replace(f"({first.function.parameters})", f"({parameters})", 1)
    of_all = [
        replace(source.function, entry=entry, parameters=parameters, extents=tuple(one[number] for one in extents))
        for number, source in enumerate(sources.values())
    ]
    texts = [text, *[""] * (len(of_all) - 1)]
    return {name: KernelSource(*one) for name, one in zip(sources, zip(texts, of_all, strict=True), strict=True)}


def _multiple(column: Sequence[int], of: Sequence[int]) -> int:
    """Return by which whole number an extent is a multiple of another in all kernels, 0 if there is none."""
    factor = column[0] // of[0]
    return factor if all(one == factor * other for one, other in zip(column, of, strict=True)) else 0
