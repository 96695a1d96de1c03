"""The user's configuration: a file in TOML, which is looked for and read in this one place.

It is ``graft/config.toml`` under ``XDG_CONFIG_HOME``, else ``~/.config``, or the file that ``GRAFT_CONFIG`` names. What
a call or a command line says comes first, then the file, then the defaults; a `PluginManager` of one's own reads none.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graft.errors import GraftError
from graft.plugins.time_limit import LIMITS, Limits
from graft.runtime.foreign import shown
from graft.runtime.system.cache_directory import user_directory
from graft.runtime.system.files import make_folder, write

VARIABLE = "GRAFT_CONFIG"
KNOWN = {"plugins": ("disabled", "import_seconds")}
"""The tables of the file and their keys."""
_HEADER = re.compile(r"^\[plugins\][^\n]*\n?", re.MULTILINE)
_DISABLED = re.compile(r"^disabled\s*=\s*\[[^\]]*\]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a user has configured: plugins that are left out, and how long the import of one may take."""

    disabled: tuple[str, ...] = ()
    """Names of plugins, backends or distributions."""
    import_seconds: float = LIMITS.importing

    @property
    def limits(self) -> Limits:
        """The limits of plugins' code."""
        return replace(LIMITS, importing=self.import_seconds)


def configuration_file() -> Path | None:
    """Return where the configuration is, whether there is one or not; None where no place is known."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    directory = user_directory("XDG_CONFIG_HOME", ".config")
    return None if directory is None else directory / "config.toml"


def configuration() -> Configuration:
    """Return what the file says, the defaults where there is none; raise GraftError if it is damaged."""
    path = configuration_file()
    if path is None or not path.exists():
        return Configuration()
    try:
        return _checked(tomllib.loads(path.read_text(encoding="utf-8")), str(path))
    except (OSError, ValueError) as error:
        raise GraftError(f"configuration '{path}' cannot be read: {error}", path=str(path)) from error


def set_disabled(names: Collection[str]) -> Path:
    """Write which plugins are disabled, the rest of the file as it is; return its path, raise GraftError."""
    path = configuration_file()
    if path is None:
        raise GraftError(f"there is no home directory to keep a configuration in; name a file in {VARIABLE}")
    before = configuration()
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    wanted = replace(before, disabled=tuple(sorted(names)))
    text = _with_disabled(text, wanted.disabled)
    try:
        is_understood = _checked(tomllib.loads(text), str(path)) == wanted
    except tomllib.TOMLDecodeError:  # `[plugins]` beside another form of the table
        is_understood = False
    if not is_understood:
        raise GraftError(
            f"configuration '{path}' has a form that is not edited here; set plugins.disabled in it by hand"
        )
    make_folder(path.parent, "configuration")
    write(path, text, "configuration")
    return path


def _with_disabled(text: str, names: Iterable[str]) -> str:
    line = f"disabled = {json.dumps(list(names))}"
    header = _HEADER.search(text)
    if header is None:
        return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}[plugins]\n{line}\n"
    end = re.compile(r"^\[", re.MULTILINE).search(text, header.end())
    table = text[header.end() : end.start() if end else len(text)]
    table = _DISABLED.sub(lambda _: line, table, 1) if _DISABLED.search(table) else f"{line}\n{table}"
    head = text[: header.end()]
    return f"{head}{'' if head.endswith(chr(10)) else chr(10)}{table}{text[end.start() :] if end else ''}"


def _checked(content: dict[str, Any], path: str) -> Configuration:
    _require_known(content, tuple(KNOWN), path, "table")
    plugins = content.get("plugins", {})
    if not isinstance(plugins, dict):
        raise GraftError(f"configuration '{path}': plugins is {shown(plugins)}; write a table, [plugins]", path=path)
    _require_known(plugins, KNOWN["plugins"], path, "key of [plugins]")
    disabled, seconds = plugins.get("disabled", []), plugins.get("import_seconds", LIMITS.importing)
    if not isinstance(disabled, list) or not all(isinstance(one, str) for one in disabled):
        raise GraftError(
            f"configuration '{path}': plugins.disabled is {shown(disabled)}; give a list of names", path=path
        )
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise GraftError(
            f"configuration '{path}': plugins.import_seconds is {shown(seconds)}; give a positive number", path=path
        )
    return Configuration(tuple(disabled), float(seconds))


def _require_known(found: Iterable[str], known: tuple[str, ...], path: str, what: str) -> None:
    for name in found:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise GraftError(
                f"configuration '{path}': '{name}' is no {what}; {hint}there are {', '.join(known)}", path=path
            )
