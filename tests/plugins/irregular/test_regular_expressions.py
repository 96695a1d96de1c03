"""Regular expressions as automata over bytes: the longest match is Python's, and what cannot be told is refused."""

from __future__ import annotations

import random
import re

import pytest

from graft.plugins.irregular.automata import ACCEPTS, DEAD, automaton, byte_ranges
from graft.plugins.irregular.regular_expressions import Unsupported

ALPHABET = "abcdxyéßABC_0123 .-€\n+"
NEARLY = {"[[:alpha:]]+": "[A-Za-z]+", r"\Qa.b\Ec": r"a\.bc", "[]a]+": r"[\]a]+", r"\x{20ac}": "€", r"\z": r"\Z"}
"""What is written otherwise in Python."""


def is_word(byte: int) -> bool:
    return chr(byte).isascii() and (chr(byte).isalnum() or byte == ord("_"))


def longest(expression: str, text: bytes, begin: int) -> int:
    """Where the longest match ends, -1 without one; as the kernel runs the table."""
    table = automaton(expression)
    width, state, found = max(table.classes) + 1, table.starts[0 if begin == 0 else 1 + is_word(text[begin - 1])], -1
    for at in range(begin, len(text) + 1):
        behind = "edge" if at == len(text) else "word" if is_word(text[at]) else "other"
        if table.accepts[state] & ACCEPTS[behind]:
            found = at
        state = table.moves[state * width + table.classes[text[at]]] if at < len(text) else DEAD
        if state == DEAD:
            break
    return found


@pytest.mark.parametrize(
    "expression",
    [
        r"\w+",
        r"[a-zA-Z0-9_]+",
        r"(a|ab)(c|bcd)(d*)",
        r"^a.*b$",
        r"x{2,4}y?",
        r"[^a-c]+\d",
        r"\d{3}-\d{4}",
        r"a*?b|c+",
        r"(?s).*é.",
        r"[\d\-x]+",
        r"\.\+\x41",
        r"\x{20ac}",
        r"[[:alpha:]]+",
        r"(?:ab|cd)+$",
        r"",
        r"a|",
        r"[]a]+",
        r"[a-]+",
        r"^$",
        r"\Qa.b\Ec",
        r"(?i)abc|x+",
        r"a(?i)b(?-i)c",
        r"(?P<name>[^\s])\S*",
        r"\Aab?\z",
        r"a{2}",
        r"(a*)*b",
        r"\D\W",
    ],
)
def test_the_longest_match_is_that_of_all_that_python_finds(expression: str) -> None:
    said = expression
    for ours, theirs in NEARLY.items():
        said = said.replace(ours, theirs)
    said = said.replace("a(?i)b(?-i)c", "a(?i:b)c")
    known = re.compile(said, re.ASCII)
    source = random.Random(expression)
    for _ in range(400):
        text = "".join(source.choice(ALPHABET) for _ in range(source.randrange(7)))
        if "$" in expression and text.endswith("\n"):
            continue  # before which Python's $ matches, too
        data = text.encode()
        for begin in {0, len(text) // 2}:
            ends = [end for end in range(begin, len(text) + 1) if known.fullmatch(text, begin, end)]
            ends = [end for end in ends if end == len(text) or not re.search(r"\$$|\\z$", expression)]
            if begin and re.search(r"^\^|\\A", expression):
                continue  # Python's begin anew there
            expected = len(text[: max(ends)].encode()) if ends else -1
            assert longest(expression, data, len(text[:begin].encode())) == expected, (text, begin)


@pytest.mark.parametrize(
    "expression", [r"\b\w\w+\b", r"\w+\b", r"\B\w+", r"\b", r"\B", r"a\b ?|b\Bc", r"(\b|x).*\b", r"\bé|^\B."]
)
def test_places_beside_words_are_those_of_all_that_python_finds(expression: str) -> None:
    """Every end is tried in the whole text, since what lies behind it matters; an empty one is Python's exception."""
    source = random.Random(expression)
    for _ in range(400):
        text = "".join(source.choice(ALPHABET.replace("\n", "")) for _ in range(source.randrange(1, 7)))
        for begin in range(len(text) + 1):
            tried = (
                re.compile(rf"(?:{expression})(?={re.escape(text[end:])}\Z)", re.ASCII) for end in range(len(text) + 1)
            )
            ends = [end for end, known in enumerate(tried) if known.match(text, begin)]
            expected = len(text[: max(ends)].encode()) if ends else -1
            assert longest(expression, text.encode(), len(text[:begin].encode())) == expected, (text, begin)


@pytest.mark.parametrize(
    ("expression", "text", "matches"),
    [
        (r"\p{Lu}\pL*", "Éa", True),
        (r"\p{Lu}\pL*", "éa", False),
        (r"\PL+", "1 2", True),
        (r"\p{^L}", "a", False),
        (r"(?i)É", "é", True),
        ("[^a]", "\U0001f600", True),
        ("[[:^digit:]]", "€", True),
        (r"[\x{10000}-\x{10ffff}]", "\U0001f600", True),
        (r"\101", "A", True),
        (r"[\D]", "x", True),
    ],
)
def test_what_python_writes_otherwise_or_not_at_all(expression: str, text: str, matches: bool) -> None:
    assert (longest(expression, text.encode(), 0) == len(text.encode())) is matches


@pytest.mark.parametrize(
    "bounds", [(0, 0x10FFFF), (0x7F, 0x80), (0x7FE, 0xFFF), (0x1234, 0x12345), (0x10000, 0x10FFFF)]
)
def test_ranges_of_bytes_spell_their_characters_and_no_others(bounds: tuple[int, int]) -> None:
    low, high = bounds
    parts = [(low, min(high, 0xD7FF)), (max(low, 0xE000), high)]  # surrogates are no characters
    spelled = [one for begin, end in parts if begin <= end for one in byte_ranges(begin, end)]
    near = {low - 1, low, low + 1, high - 1, high, high + 1, 0x7F, 0x80, 0x7FF, 0x800, 0xFFFF, 0x10000, 0x41, 0x20AC}
    for code in (one for one in near if 0 <= one <= 0x10FFFF and not 0xD800 <= one <= 0xDFFF):
        data = chr(code).encode()
        fits = [
            one
            for one in spelled
            if len(one) == len(data) and all(a <= byte <= b for byte, (a, b) in zip(data, one, strict=True))
        ]
        assert len(fits) == (low <= code <= high), hex(code)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (r"a\C", "part of a character"),
        ("(?m)^a", "those of lines"),
        ("(?<=a)b", "looks behind"),
        ("(?=a)", "no group"),
        ("(a", r"'\)' is missing"),
        ("a)", "closes nothing"),
        ("*a", "repeats nothing"),
        ("[a", "ends too early"),
        ("[b-a]", "no order"),
        (r"\1", "refers to a group"),
        (r"\y", "no escape"),
        ("a{2,1}", "no number of times"),
        ("a{1001}", "no number of times"),
        (r"\p{Greek}", "no category"),
        ("[[:word2:]]", "no class"),
        ("a\\", "too early"),
        (r"\x{110000}", "no character"),
        ("((a{100}){100}){100}", "over 50000 parts"),
        ("(a|b)*a(a|b){12}", "over 2000 states"),
        ("(([a-z]?){90}){100}", "over 2000000 steps"),
        ("(" * 400 + "a" + ")" * 400, "over 100 deep"),
        ("a" + "*" * 3000, "what repeats is repeated"),
    ],
)
def test_what_no_automaton_tells_is_refused(expression: str, why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        automaton(expression)
