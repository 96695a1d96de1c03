"""Schedules that a user gives for the kernels of a model (docs/schedules.md)."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from graft.core.schedule.primitives.schedule_text import MACHINE, machine_name, parse_schedules
from graft.errors import GraftError, ScheduleError
from graft.runtime.arguments import PATH, TEXT_BY_TEXT, Kind
from graft.runtime.procedure import ProgramDescription

Schedules: TypeAlias = "str | os.PathLike[str] | Mapping[str, str] | None"
"""A file of schedules, or texts by the names of kernels."""
SCHEDULES = Kind(
    'a file of schedules, or texts by names of kernels, as in {"llvm_0_0_matmul": "parallel i"}',
    lambda value: PATH.fits(value) or TEXT_BY_TEXT.fits(value),
)

log = logging.getLogger("graft.schedules")


def schedules_of(given: Schedules) -> dict[str, str]:
    """Return texts by the names of kernels; raise ScheduleError for a file that cannot be read, or is wrong."""
    if given is None or isinstance(given, Mapping):
        return dict(given or {})
    try:
        found = parse_schedules(Path(given).read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ScheduleError(f"the schedules '{given}' cannot be read: {error}", path=str(given)) from error
    except ScheduleError as error:
        raise ScheduleError(f"'{given}': {error.message}", path=str(given), line=error.facts.get("line")) from error
    if not found:
        log.warning("'%s' has no schedules, and changes nothing", given)
    return found


def of_version(schedules: Mapping[str, str], label: str) -> dict[str, str]:
    """Return the schedules that are for the version of a model with a label, by the names that kernels have there."""
    found = (name.partition(f"[{label}] ") for name in schedules)
    return {name: schedules[f"{procedure}{mark}{name}"] for procedure, mark, name in found if mark}


def check_used(schedules: Mapping[str, str], description: ProgramDescription, strict: bool) -> None:
    """Warn of schedules for kernels that a program has not, or another machine; with ``strict`` raise ScheduleError."""
    kernels = set(_kernels(description)) if schedules else set()
    own = machine_name(description.targets)
    for name in schedules:
        if name.startswith(MACHINE):
            if name != own:
                message = f"the schedules are for '{name.removeprefix(MACHINE)}', the program is for "
                _tell(
                    f"{message}'{own.removeprefix(MACHINE)}': their steps are legal here, and may be slow", name, strict
                )
        elif name not in kernels:
            near = difflib.get_close_matches(name, kernels, 1)
            hint = f"; did you mean '{near[0]}'" if near else "; `graft inspect --schedules` lists them"
            message = f"the schedule of '{name}' is not used: no kernel of the program is called so{hint}"
            _tell(message, name, strict)


def _tell(message: str, name: str, strict: bool) -> None:
    if strict:
        raise ScheduleError(message, kernel=name)
    log.warning("%s", message)


def is_refused(error: GraftError, schedules: Mapping[str, str]) -> bool:
    """Whether an error is that a schedule of the user cannot be taken, which no other backend is to hide."""
    return isinstance(error, ScheduleError) and error.facts.get("kernel") in schedules


def _kernels(description: ProgramDescription) -> Iterator[str]:
    first = min(description.variants, default=len(description.procedures))
    for number, procedure in enumerate(description.procedures):
        place = f"{procedure.name} " if number >= first else ""
        yield from (f"{place}{call.function}" for call in procedure.calls if call.schedule)
