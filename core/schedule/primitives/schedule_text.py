"""Schedules as text: a step per line, which prints and reads back; ``#`` begins a comment.

split i 16 -> i0 i1
reorder i0 j i1
cache_read a at i0 in shared -> near

``@1`` is the second input of a kernel, whatever it is called there.

A file of schedules has a line with the name of a kernel in brackets, ``[llvm_0_0_conv_relu]``, before each. One such as
``[machine x86_64 avx+avx2+fma]`` says what they are for.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from graft.core.schedule.primitives.bounds import Clip, Guard, Hoist, Overlap, Skew, Unswitch
from graft.core.schedule.primitives.counting import Count
from graft.core.schedule.primitives.loop_kinds import Bind, Jam, Parallel, Unroll, Vectorize
from graft.core.schedule.primitives.loop_order import Fuse, Merge, Peel, Reorder, Split
from graft.core.schedule.primitives.masking import Mask
from graft.core.schedule.primitives.packing import Pack
from graft.core.schedule.primitives.pipeline import Pipeline, PipelineAsync
from graft.core.schedule.primitives.prefetch import Prefetch
from graft.core.schedule.primitives.reindexing import Pad, ReindexCacheRead
from graft.core.schedule.primitives.rewrite import Rewrite
from graft.core.schedule.primitives.rfactor import Horizontal, Rfactor, Subtotal
from graft.core.schedule.primitives.skipping import Skip
from graft.core.schedule.primitives.staging import CacheRead, CacheWrite, ComputeAt
from graft.core.schedule.primitives.step import Step
from graft.core.schedule.primitives.tensorize import Tensorize
from graft.core.schedule.primitives.transpose import Transpose
from graft.core.schedule.primitives.units import Spmd, Tree
from graft.core.tensor_ir.ir import Function
from graft.errors import ScheduleError

PRIMITIVES: tuple[type[Step], ...] = (
    Split, Reorder, Fuse, Vectorize, Unroll, Jam, Parallel, Bind, CacheRead, CacheWrite, ComputeAt, Pipeline, Tensorize,
    Overlap, Skew, Clip, Hoist, Guard, Mask, Unswitch, Pack, Peel, Merge, Rfactor, Horizontal, Tree, Transpose, Spmd,
    ReindexCacheRead, Pad, Skip, Prefetch, PipelineAsync, Subtotal, Count, Rewrite,
)  # fmt: skip
MACHINE = "machine "
INPUT = "@"
"""Before the number of an input."""
_NUMBER = re.compile(r"[0-9]{1,9}")
_INPUTS = re.compile(rf"(?<!\S){INPUT}(\d+)")


def apply_schedule(function: Function, schedule: str | Sequence[Step]) -> Function:
    """Return the function after all steps; raise ScheduleError for the first that cannot be taken."""
    for step in parse_schedule(schedule) if isinstance(schedule, str) else schedule:
        function = step.apply(function)
    return function


def take(function: Function, steps: Iterable[Step]) -> Function:
    """Return the function after steps that are known to be legal: neither dependences nor results are checked."""
    for step in steps:
        function = step.change(function)
    return function


def print_schedule(steps: Sequence[Step]) -> str:
    """Return the text of a schedule."""
    return "".join(f"{step}\n" for step in steps)


def parse_schedule(text: str) -> tuple[Step, ...]:
    """Return the steps of a text, of which empty lines are no part; raise ScheduleError with the line."""
    return tuple(step for _, step in numbered_steps(text))


def numbered_steps(text: str) -> Iterator[tuple[int, Step]]:
    """Yield the steps of a text with the numbers of their lines; raise ScheduleError with the line."""
    for number, line in enumerate(text.splitlines(), 1):
        if words := line.partition("#")[0].split():
            yield number, _parse(words, number)


def with_names(text: str, inputs: Sequence[str]) -> str:
    """Return a text in which inputs that are called by their numbers have their names."""
    return _INPUTS.sub(lambda found: (inputs[int(found[1]) :] or [found[0]])[0], text)


def print_schedules(
    schedules: Mapping[str, str], notes: Mapping[str, str], targets: Iterable[Mapping[str, Any]] = ()
) -> str:
    """Return a file of schedules for some targets, by the names of their kernels, with a note behind some names."""
    heads = {name: f"[{name}]" + (f"  # {notes[name]}" if name in notes else "") for name in schedules}
    machine = [f"[{one}]\n" for one in filter(None, [machine_name(targets)])]
    return "\n".join((*machine, *(f"{heads[name]}\n{text}" for name, text in schedules.items())))


def machine_name(targets: Iterable[Mapping[str, Any]]) -> str:
    """Return what a file says of the native targets of a program, "" if it has none."""
    named = ", ".join(f"{one['arch']} {'+'.join(one.get('features', ()))}".strip() for one in targets)
    return f"{MACHINE}{named}" if named else ""


def parse_schedules(text: str) -> dict[str, str]:
    """Return the schedules of a file by the names of their kernels; empty lines keep the numbers of lines.

    What it says of its machine is a name without steps.

    Raises ScheduleError, with the line, for a line that is neither a name nor a step, for a step before any name, for
    a name that stands there twice, and for one without steps.
    """
    found = dict[str, str]()
    name = ""
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.partition("#")[0].strip()
        if bare.startswith("["):
            name = bare[1:].removesuffix("]").strip()
            if not bare.endswith("]") or not name or name in found:
                why = "a second schedule of" if name in found else "no name of"
                raise ScheduleError(f"schedule, line {number}: '{bare}' is {why} a kernel", line=number)
            found[name] = "\n" * number
        elif bare:
            step = _parse(bare.split(), number)
            if not name or name.startswith(MACHINE):
                raise ScheduleError(
                    f"schedule, line {number}: '{step}' comes before the name of a kernel, '[name]'", line=number
                )
            found[name] += "\n" * (number - 1 - found[name].count("\n")) + f"{step}\n"
    if empty := next((name for name in found if not (found[name].strip() or name.startswith(MACHINE))), None):
        raise ScheduleError(f"the schedule of '{empty}' has no steps", kernel=empty)
    return found


def _parse(words: list[str], line: int) -> Step:
    names = {primitive.form.split()[0]: primitive for primitive in PRIMITIVES}
    primitive = names.get(words[0])
    if primitive is None:
        near = difflib.get_close_matches(words[0], names, 1)
        hint = f"did you mean '{near[0]}'" if near else f"there are {', '.join(names)}"
        raise ScheduleError(f"schedule, line {line}: there is no primitive '{words[0]}'; {hint}", line=line)
    values: dict[str, str | int | tuple[str, ...]] = {}
    kinds = {field.name: str(field.type) for field in fields(primitive)}
    form, given = primitive.form.split(), list(words)
    for position, word in enumerate(form):
        name = word[1:-1]
        if word[0] != "{":
            # The word before a tuple that is empty may be left out.
            if not given and form[position + 1 :] and kinds[form[position + 1][1:-1]].startswith("tuple"):
                break
            good = bool(given) and given.pop(0) == word
        elif kinds[name].startswith("tuple"):
            following = form[position + 1] if form[position + 1 :] else ""
            many = given.index(following) if following in given else len(given)
            good, values[name], given = many > 0, tuple(given[:many]), given[many:]
        else:
            good = bool(given) and (kinds[name] != "int" or bool(_NUMBER.fullmatch(given[0])))
            values[name] = (int(given.pop(0)) if kinds[name] == "int" else given.pop(0)) if good else ""
        if not good:
            break
    else:
        good = not given
    if not good:
        shown = primitive.form.replace("{", "").replace("}", "")
        numbers = ", with numbers of up to 9 digits" if "int" in kinds.values() else ""
        raise ScheduleError(
            f"schedule, line {line}: '{' '.join(words)}' is not of the form '{shown}'{numbers}", line=line
        )
    return primitive(**values)
