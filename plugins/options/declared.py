"""Options as a backend declares them: a frozen dataclass, read into rows that any process may have."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from json import JSONDecodeError, loads
from typing import Any

from graft.core.backend_spec import NONE, OptionValue, split_list, value_text
from graft.errors import OptionError
from graft.runtime.arguments import FLAG, TEXT, takes
from graft.runtime.foreign import kind_of, said, shown

EXAMPLES: Mapping[str, str] = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "a text"}
"""The types of values, with what is to be given."""
CHOICE = "choice"
ALLOWED = "bool, int, float, str, an Enum or a Literal, a tuple of one of these as in tuple[int, ...], or one | None"


@takes(help=TEXT, secret=FLAG)
def option(default: Any, *, help: str = "", secret: bool = False) -> Any:
    """Return a field of a dataclass of options; ``help`` is shown, a ``secret`` never is, nor is it saved."""
    return field(default=default, repr=not secret, metadata={"help": help, "secret": secret})


@dataclass(frozen=True)
class NoOptions:
    """The options of a backend that has none."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a backend as data."""

    name: str
    kind: str
    """One of `EXAMPLES`, or `CHOICE`."""
    default: OptionValue
    choices: tuple[OptionValue, ...] = ()
    is_tuple: bool = False
    is_optional: bool = False
    help: str = ""
    secret: bool = False

    @property
    def type_text(self) -> str:
        """The type as people read it."""
        one = "|".join(map(value_text, self.choices)) if self.choices else self.kind
        return f"{f'[{one},...]' if self.is_tuple else one}{f' or {NONE}' if self.is_optional else ''}"

    def checked(self, value: object, backend: str) -> OptionValue:
        """Return a value in JSON's types; raise OptionError if it is of another type."""
        if value is None and self.is_optional:
            return None
        if not self.is_tuple:
            return self._one(value, value, backend)
        if not isinstance(value, tuple | list):
            raise self._wrong(value, backend)
        return [self._one(one, value, backend) for one in value]

    def parsed(self, text: str, backend: str) -> OptionValue:
        """Return the value that a text of the command line stands for; raise OptionError likewise."""
        if text == NONE and self.is_optional:
            return None
        if not self.is_tuple:
            return self._one(self._read(text), text, backend)
        if not (text.startswith("[") and text.endswith("]")):
            raise self._wrong(text, backend)
        inside = text[1:-1].strip()
        return [self._one(self._read(one), text, backend) for one in (split_list(inside) if inside else ())]

    def _read(self, text: str) -> object:
        """Return a text as a value of the option's type, or as it is where it is none."""
        if self.kind == CHOICE:
            return next((one for one in self.choices if text in (value_text(one), one)), text)
        try:
            match self.kind:
                case "bool":
                    return {"true": True, "false": False}.get(text, text)
                case "int":
                    return int(text)
                case "float":
                    return float(text)
                case _:
                    return loads(text) if text.startswith('"') else text
        except (ValueError, JSONDecodeError):
            return text

    def _one(self, value: object, whole: object, backend: str) -> OptionValue:
        if isinstance(value, Enum):
            value = word_of(value)
        match self.kind, value:
            case "choice", str() | int() if any(type(value) is type(one) and value == one for one in self.choices):
                return value
            case ("bool", bool()) | ("str", str()):
                return value  # type: ignore[return-value]  # of the type
            case ("int" | "float", int()) if not isinstance(value, bool):
                return int(value) if self.kind == "int" else float(value)
            case "float", float() if math.isfinite(value):
                return float(value)
        raise self._wrong(whole, backend)

    def _wrong(self, value: object, backend: str) -> OptionError:
        wanted = f"one of {', '.join(map(value_text, self.choices))}" if self.choices else EXAMPLES[self.kind]
        if self.is_tuple:
            wanted = f"a list as in [{value_text(self.choices[0]) if self.choices else self.kind},...], each {wanted}"
        if self.is_optional:
            wanted += f", or {NONE}"
        given = f"has a value of type {kind_of(value)}" if self.secret else f"is {shown(value)}"
        return OptionError(
            f"option '{self.name}' of backend '{backend}' {given}; give {wanted}", backend=backend, option=self.name
        )


def word_of(member: Enum) -> str:
    """Return the text that stands for a member of an enumeration: its value where that is a text, else its name."""
    return member.value if isinstance(member.value, str) else member.name


def rows_of(declared: object) -> tuple[Option, ...]:
    """Return the rows of a dataclass of options; raise OptionError that says what is wrong with it."""
    if isinstance(declared, type) and dataclasses.is_dataclass(declared) and _is_frozen(declared):
        return _rows(declared)
    who = declared.__name__ if isinstance(declared, type) else kind_of(declared)
    raise OptionError(f"options of {who}: not a frozen dataclass; write @dataclass(frozen=True) above the class")


@lru_cache(maxsize=256)
def _rows(declared: type[Any]) -> tuple[Option, ...]:
    who = f"options of {declared.__name__}"
    hints = _hints(declared, who)
    return tuple(_row(one, hints[one.name], f"{who}: '{one.name}'") for one in dataclasses.fields(declared) if one.init)


def made(declared: type, values: Mapping[str, OptionValue]) -> Any:
    """Return the dataclass with these values, which are checked already; raises what its constructor raises."""
    hints = typing.get_type_hints(declared) if values else {}
    return declared(**{name: _of_type(hints[name], value) for name, value in values.items()})


def _is_frozen(declared: type) -> bool:
    return bool(declared.__dataclass_params__.frozen)  # type: ignore[attr-defined]  # of every dataclass


def _hints(declared: type, who: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(declared)
    except Exception as error:
        raise OptionError(
            f"{who}: their types cannot be read ({said(error)}); define them at a module's level"
        ) from error


def _row(one: dataclasses.Field[Any], hint: Any, who: str) -> Option:
    kind, choices, is_tuple, is_optional = _type(hint, who)
    secret = bool(one.metadata.get("secret"))
    if secret and one.repr:
        raise OptionError(f"{who} is a secret that repr() would show; declare it as graft.option(None, secret=True)")
    if one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING:
        raise OptionError(f"{who} has no default; give it one, such as None for {_named(hint)} | None")
    row = Option(one.name, kind, None, choices, is_tuple, is_optional, str(one.metadata.get("help", "")), secret)
    default = one.default if one.default_factory is dataclasses.MISSING else one.default_factory()
    try:
        return dataclasses.replace(row, default=row.checked(default, ""))
    except OptionError:
        raise OptionError(f"{who} has the default {shown(default)}, which is no {row.type_text}") from None


def _type(hint: Any, who: str) -> tuple[str, tuple[OptionValue, ...], bool, bool]:
    """Return kind, choices, whether it is a tuple, and whether it may be None."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        others = [one for one in arguments if one is not type(None)]
        if len(others) == 1:
            return (*_type(others[0], who)[:3], True)
    elif origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        kind, choices, is_tuple, is_optional = _type(arguments[0], who)
        if not is_tuple and not is_optional:
            return kind, choices, True, False
    elif origin is typing.Literal and all(type(one) in (str, int, bool) for one in arguments):
        return CHOICE, arguments, False, False
    elif isinstance(hint, type) and issubclass(hint, Enum):
        return CHOICE, tuple(map(word_of, hint)), False, False
    elif isinstance(hint, type) and hint.__name__ in EXAMPLES and hint.__module__ == "builtins":
        return hint.__name__, (), False, False
    raise OptionError(f"{who} has the type {_named(hint)}; use {ALLOWED}")


def _named(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)


def _of_type(hint: Any, value: OptionValue) -> Any:
    """Return a checked value as the declared type: members of enumerations, tuples."""
    if value is None:
        return None
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(one for one in typing.get_args(hint) if one is not type(None))
    if isinstance(value, list):
        return tuple(_of_type(typing.get_args(hint)[0], one) for one in value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return next(member for member in hint if word_of(member) == value)
    return value
