"""The values of a backend's options: given and checked, saved without secrets, and built into the dataclass."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graft.core.backend_spec import OptionValue
from graft.errors import OptionError
from graft.plugins.options.declared import Option, made, rows_of
from graft.runtime.foreign import said
from graft.runtime.loaders import missing_secret, secret_variable
from graft.runtime.procedure import SECRET


def options_from(declared: type, backend: str, given: Mapping[str, object]) -> Any:
    """Return the dataclass of a backend's options; secrets that are not given are looked for in the environment.

    Raises OptionError for unknown names, wrong types, and secrets that are wanted and found nowhere.
    """
    rows = rows_of(declared)
    values = checked(rows, backend, _with_secrets(rows, backend, given))
    try:
        return made(declared, values)
    except Exception as error:
        raise OptionError(f"options of backend '{backend}': {said(error)}", backend=backend) from error


def checked(rows: Sequence[Option], backend: str, given: Mapping[str, object]) -> dict[str, Any]:
    """Return values in JSON's types, `SECRET` as it is; raise OptionError for an unknown name or a wrong type."""
    found = {}
    for name, value in given.items():
        row = _row(rows, backend, name)
        found[name] = value if row.secret and value == SECRET else row.checked(value, backend)
    return found


def parsed(rows: Sequence[Option], backend: str, texts: Mapping[str, str]) -> dict[str, OptionValue]:
    """Return the values of texts of the command line; raise OptionError likewise."""
    return {name: _row(rows, backend, name).parsed(text, backend) for name, text in texts.items()}


def values_of(rows: Iterable[Option], options: Any, backend: str) -> dict[str, OptionValue]:
    """Return the values in a dataclass of options, secrets too."""
    return {row.name: row.checked(getattr(options, row.name), backend) for row in rows}


def saved(rows: Iterable[Option], values: Mapping[str, OptionValue]) -> dict[str, Any]:
    """Return what an artifact keeps: every value, and of secrets that were given that they are needed."""
    return {
        row.name: SECRET if row.secret else values[row.name]
        for row in rows
        if not row.secret or values[row.name] != row.default
    }


def changed(rows: Iterable[Option], values: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """Return the values that are not the defaults, secrets left out: what plans and reports show."""
    return {row.name: values[row.name] for row in rows if not row.secret and values[row.name] != row.default}


def secrets(rows: Iterable[Option], values: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """Return the values of secrets that were given."""
    return {row.name: values[row.name] for row in rows if row.secret and values[row.name] != row.default}


def _with_secrets(rows: Sequence[Option], backend: str, given: Mapping[str, object]) -> dict[str, object]:
    found = dict(given)
    for row in rows:
        if not row.secret or (row.name in found and found[row.name] != SECRET):
            continue
        text = os.environ.get(secret_variable(backend, row.name))
        if text is not None:
            found[row.name] = row.parsed(text, backend)
        elif row.name in found:
            raise missing_secret(backend, row.name)
    return found


def _row(rows: Sequence[Option], backend: str, name: str) -> Option:
    found = next((row for row in rows if row.name == name), None)
    if found is not None:
        return found
    names = [row.name for row in rows]
    nearest = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean '{nearest[0]}'? " if nearest else ""
    known = f"{hint}its options are {', '.join(names)}" if names else "it has none"
    raise OptionError(f"backend '{backend}' has no option '{name}'; {known}", backend=backend, option=name)
