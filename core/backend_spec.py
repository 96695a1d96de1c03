"""Backends with their options as text, as in ``npu:bits=8,mode=fast,llvm``: what `-b` takes, and what plans print.

A comma begins the next backend, or, before ``NAME=``, the next option of the one before. Values that hold commas are
lists in brackets, ``tiles=[4,8]``, or texts in JSON's quotes, ``path="a,b"``. A label, as in ``npu@small``, makes one
backend take part a second time, with other options: plans place regions on either.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from graft.errors import OptionError

OptionValue = bool | int | float | str | None | list["OptionValue"]
"""The value of an option in JSON's types; members of enumerations are texts, tuples are lists."""
NONE = "none"
_PIECE = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^,"\[\]])+|\[(?:"(?:[^"\\]|\\.)*"|[^"\]])*\]')
_NAMED = re.compile(r"([^:=]*):(.*)", re.DOTALL)
_LABELLED = re.compile(r"[^@]+(@\w[\w-]*)?", re.ASCII)
_PLAIN = re.compile(r'[^\s,"\[\]]+')


def split_backends(text: str) -> list[tuple[str, dict[str, str]]]:
    """Return the names of ``npu:bits=8,llvm`` with their options, as (name, option to text); raise OptionError."""
    found: list[tuple[str, dict[str, str]]] = []
    options: dict[str, str] | None = None
    for item in split_list(text):
        named = _NAMED.fullmatch(item)
        if named is None and "=" not in item:
            options = None
            found.append((item, {}))
            continue
        if named is not None:
            found.append((named[1].strip(), options := {}))
        key, equals, value = (item if named is None else named[2]).partition("=")
        if options is None:
            raise OptionError(
                f"option '{key}' belongs to no backend; write {found[-1][0] if found else 'npu'}:{key}=..."
            )
        if not equals or not key.strip():
            raise OptionError(f"'{key}' behind '{found[-1][0]}:' is no option; write {found[-1][0]}:NAME=VALUE")
        if key.strip() in options:
            raise OptionError(f"option '{key.strip()}' of backend '{found[-1][0]}' is given twice; give it once")
        options[key.strip()] = value.strip()
    for name, _ in found:
        _require_label(name)
    return found


def _require_label(name: str) -> None:
    if "@" in name and not _LABELLED.fullmatch(name):
        raise OptionError(f"'{name}' has no proper label; write letters, digits, '_' and '-', as in npu@small")


def with_label(name: str, label: str) -> str:
    """Return the name of a backend with another label, ``npu@small``; raise OptionError for one that is none."""
    named = f"{without_label(name)}@{label}"
    _require_label(named)
    return named


def without_label(name: str) -> str:
    """Return the name of the backend itself: ``npu`` of ``npu@small``."""
    return name.partition("@")[0]


def texts_of(text: str) -> tuple[str, ...]:
    """Return the backends of a text that names several, each with its options."""
    return tuple(
        f"{name}:{','.join(f'{key}={value}' for key, value in options.items())}" if options else name
        for name, options in split_backends(text)
    )


def split_list(text: str) -> list[str]:
    """Return what stands between commas, those in brackets and quotes not counted.

    Raise OptionError where one of these has no partner.
    """
    found, at = [], 0
    while at <= len(text):
        end = at
        while match := _PIECE.match(text, end):
            end = match.end()
        if end < len(text) and text[end] != ",":
            raise OptionError(f"'{text}' has a bracket or a quote without its partner at '{text[end:]}'; close it")
        found.append(text[at:end].strip())
        at = end + 1
    return found


def backend_text(name: str, options: Mapping[str, OptionValue]) -> str:
    """Return a backend as `split_backends` reads it."""
    given = ",".join(f"{key}={value_text(value)}" for key, value in options.items())
    return f"{name}:{given}" if given else name


def value_text(value: OptionValue) -> str:
    """Return a value as the command line has it."""
    match value:
        case None:
            return NONE
        case bool():
            return str(value).lower()
        case str():
            return value if _PLAIN.fullmatch(value) and value != NONE else json.dumps(value, ensure_ascii=False)
        case list():
            return f"[{','.join(map(value_text, value))}]"
        case _:
            return str(value)
