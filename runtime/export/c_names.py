"""Names, types and extents as C has them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar, assert_never

from graft.errors import ArtifactError
from graft.runtime.c_operators import infix
from graft.runtime.extents import Extent, Operation, Symbol

_Key = TypeVar("_Key")
TYPES = {
    "bool": "bool",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float32": "float",
    "float64": "double",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    **dict.fromkeys(("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"), "uint8_t"),
}
"""Of elements; floats of 16 and 8 bits are their bits, as kernels have them."""
_KEYWORDS = (
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class "
    "co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype "
    "default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int "
    "long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register "
    "reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct switch "
    "template this thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned using "
    "virtual void volatile wchar_t while xor xor_eq"
)
_PREDEFINED = frozenset({"linux", "unix", "i386", "arm", "mips", "sparc", "vax", "sun", "EOF", "INFINITY", "NAN", "I"})
_OF_HEADERS = "complex imaginary noreturn errno stdin stdout stderr size_t ptrdiff_t memcpy memmove memset main NULL"
WORDS = frozenset(f"{_KEYWORDS} {_OF_HEADERS}".split()) | _PREDEFINED | {*TYPES.values()}
"""What C, C++ and their headers mean by a name."""
TAKEN = WORDS | frozenset(("arena", "arena_of_caller", "context", "own", "status", "kept"))
"""And what the code around a model does."""
_MACRO = re.compile(r"[A-Z][A-Z0-9_]+|I")
"""Names in capitals are those of macros, of which a caller may have included any: they are written in small letters."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADERS = (
    "assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic "
    "stdbit stdbool stdckdint stddef stdint stdio stdlib stdnoreturn string strings tgmath threads time uchar wchar "
    "wctype alloca dlfcn endian fcntl features memory malloc pthread sched semaphore unistd cblas graft"
)
HEADERS = frozenset(_HEADERS.split())
"""Files without their ``.h`` that the text of a project includes, or what it includes does."""
LONGEST_NAME = 32
_BETWEEN_WORDS = re.compile(r"[\W_]+", re.ASCII)
"""What stands between the words of a name is one underscore: two together are reserved in C++."""
_FUNCTIONS = {"floordiv": "graft_floordiv", "mod": "graft_mod", "min": "graft_least", "max": "graft_most"}
_SIGNS = {"add": "+", "sub": "-", "mul": "*"}


def c_type(dtype: str, what: str) -> str:
    """Return the C type of an element type; raise ArtifactError that names ``what`` if there is none."""
    if dtype not in TYPES:
        raise ArtifactError(f"{what} is {dtype}, which has no type in C; export the program as a library", dtype=dtype)
    return TYPES[dtype]


def identifier(name: str) -> str:
    """Return a name of the model as one of C: the end of it, which says most."""
    stem = _BETWEEN_WORDS.sub("_", name).strip("_")
    if len(stem) > LONGEST_NAME:
        stem = stem[-LONGEST_NAME:]
        stem = stem[stem.find("_") + 1 :] if "_" in stem[:-1] else stem
        stem = stem.strip("_")
    return _without_macro(stem if stem[:1].isalpha() else f"v{stem}")


def _without_macro(name: str) -> str:
    return name.lower() if _MACRO.fullmatch(name) else name


def identifiers(names: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """Return an identifier for each name, all different, and different from those taken."""
    return distinct({name: name for name in names}, taken)


def distinct(names: Mapping[_Key, str], taken: Iterable[str] = ()) -> dict[_Key, str]:
    """Return an identifier like its name for each key, all different, and different from those taken."""
    used, result = {*TAKEN, *taken}, dict[_Key, str]()
    for key, name in names.items():
        base = _BETWEEN_WORDS.sub("_", name).rstrip("_")
        base = _without_macro(base if re.match("(?!graft_)[A-Za-z]", base) else f"v{base}")
        chosen, number = base, 2
        while chosen in used:
            chosen, number = f"{base}_{number}", number + 1
        used.add(chosen)
        result[key] = chosen
    return result


def extent_text(extent: Extent, symbols: Mapping[str, str]) -> str:
    """Return the C expression, an ``int64_t``, of an extent whose symbols have these identifiers."""
    match extent:
        case int():
            return str(extent)
        case Symbol(name):
            return symbols[name]
        case Operation(operator, left, right):
            pair = extent_text(left, symbols), extent_text(right, symbols)
            if operator in _FUNCTIONS:
                return f"{_FUNCTIONS[operator]}({pair[0]}, {pair[1]})"
            return infix(pair[0], _SIGNS[operator], pair[1])
        case _:
            assert_never(extent)


def comment_text(text: str) -> str:
    """Return a text as it may stand in a C comment."""
    safe = text.replace("*/", "* /").replace("/*", "/ *")
    return "".join(letter if letter.isprintable() else "?" for letter in safe)


def model_name(name: str | None, path: str | os.PathLike[str]) -> str:
    """Return the name that the symbols of an export carry: ``name``, else one made of the last part of ``path``.

    Raises ArtifactError if ``name`` is none in C, or if it means something else there.
    """
    if name is None:
        stem = _BETWEEN_WORDS.sub("_", Path(path).name.split(".")[0].removeprefix("lib")).rstrip("_")
        return stem if _NAME.fullmatch(stem) and not _meaning(stem) else f"model_{stem.strip('_')}".rstrip("_")
    if _NAME.fullmatch(name) is None:
        raise ArtifactError(
            f"'{name}' cannot be the name of a model in C; give letters, digits and underscores that begin with no "
            "digit, as in 'digits_v2'",
            name=name,
        )
    if meaning := _meaning(name):
        raise ArtifactError(
            f"'{name}' cannot be the name of a model in C: it is {meaning}; give another one, as in "
            f"'model_{_BETWEEN_WORDS.sub('_', name).strip('_')}'",
            name=name,
        )
    return name


def _meaning(name: str) -> str:
    """Return what a name is to C, to C++ or to the code around the model; "" for one that is free."""
    if name.startswith("_"):
        return "reserved for compilers and their libraries"
    if "__" in f"{name}_":
        return f"reserved in C++, where no name has two underscores together, as '{name}_run' would"
    if name.startswith("graft_"):
        return "like the names of the runtime, which begin with 'graft_'"
    if name.lower() in HEADERS:
        return f"the name of a header, '{name.lower()}.h'" if name.lower() != "graft" else "the runtime's own name"
    if name in _PREDEFINED:
        return "a macro that compilers define"
    return "a word of C or C++" if name in TAKEN else ""
