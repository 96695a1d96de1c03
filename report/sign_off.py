"""The sign-off report of a C project: what a reviewer asks before it goes into a product, as JSON or HTML."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from graft.errors import ArtifactError
from graft.runtime.export.c_built import LIBRARY_FRAME, least_text
from graft.runtime.export.c_layout import axis_of, state_count
from graft.runtime.export.c_project import ExportedProject
from graft.runtime.procedure import Call, ProgramDescription, TensorSpec
from graft.runtime.system.files import write
from graft.runtime.tensor_info import Quantization

DEVIATIONS = (
    (
        "1.4",
        "_Alignas, _Static_assert",
        "vectors and tensors are aligned, and what is assumed of types is checked, by C11",
    ),
    ("8.14", "restrict", "without it compilers reload what a store cannot have changed; tensors never overlap"),
    ("10.1", "shifts of signed integers to the right", "they keep the sign, which a _Static_assert checks"),
    (
        "20.7",
        "macros that define functions for each type",
        "their parameters are names and types, which take no parentheses",
    ),
)
"""The required rules of MISRA C:2012 that the portable text does not keep: which, where, and why it is so."""
SHOWN_CALLS = 3
_TITLES = {
    "memory": "Memory, in bytes", "work": "Work of one call, at most", "stack": "The deepest calls",
    "kernels": "Kernels", "weights": "Weights, as they are stored", "interface": "Interface",
    "libraries": "Functions of libraries",
    "soft float": "Floats that functions compute, for the processor has no unit for them",
    "deviations": "Required rules of MISRA C:2012 that are not kept",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Counted:
    """The instructions of one run on an emulated core, in all and by call, in the order of the calls."""

    board: str
    total: int
    calls: tuple[tuple[Call, int], ...]

    def check(self, most: int, with_flag: Callable[[str], int]) -> None:
        """Raise ArtifactError where a run takes more than there are, with the calls that take most.

        ``with_flag`` counts a run of the same text, compiled with another flag.
        """
        if self.total <= most:
            return
        largest = sorted(self.calls, key=lambda one: -one[1])[:SHOWN_CALLS]
        named = ", ".join(f"'{', '.join(call.origin[:2])}' ({count})" for call, count in largest)
        otherwise = "measure schedules there (graft device --tune), or quantise the model"
        raise ArtifactError(
            f"a run takes {self.total} instructions on {self.board}, {self.total - most} more than the {most} that "
            f"there are; most are of {named}; {least_text(self.total, with_flag, most, otherwise)}",
            instructions=self.total,
            most=most,
        )


def operations(description: ProgramDescription, number: int = 0) -> int | None:
    """Return the most arithmetic operations of a call of a procedure; None where data says how often a loop goes."""
    procedure, total = description.procedures[number], 0
    for call in procedure.calls:
        bodies = [operations(description, body) for body in call.bodies]
        times: int | None = 1
        if call.kind == "loop":
            constant = procedure.tensors[call.inputs[0]].constant if call.inputs[0] >= 0 else ""
            times = int(description.constants[constant].reshape(-1)[0]) if constant else None
        elif call.kind == "scan":
            place = state_count(call)
            shape = procedure.tensors[call.inputs[place]].static_shape
            times = shape[axis_of(call, "input", 0, procedure)] if shape else None
        if times is None or None in bodies:
            return None
        total += call.flops + times * max((one for one in bodies if one is not None), default=0)
    return total


def sign_off(
    description: ProgramDescription, project: ExportedProject, counted: Counted | None = None
) -> dict[str, Any]:
    """Return the facts of a project, by section; raise ArtifactError where no compiler was asked."""
    made = project.built
    if made is None:
        raise ArtifactError("a sign-off report needs a compiler; name one")
    entry, name = description.procedures[0], project.name
    nodes: dict[str, dict[str, None]] = {}
    taken: dict[str, int] = {}
    for call, count in counted.calls if counted else ():
        name_of = project.kernels[(call.module, call.function)]
        taken[name_of] = taken.get(name_of, 0) + count
    most = operations(description)
    work: dict[str, Any] = {"operations": "depends on data" if most is None else most}
    work |= {"core": counted.board, "instructions": counted.total} if counted else {}
    for procedure in description.procedures:
        for call in procedure.calls:
            if call.kind == "call":
                nodes.setdefault(project.kernels.get((call.module, call.function), call.function), {}).update(
                    dict.fromkeys(call.origin)
                )
    return {
        "name": name,
        "compiler": made.compiler,
        "memory": {
            "arena": project.arena_bytes, "stack": made.stack, "weights": project.weight_bytes,
            "code": made.code_bytes, "ram": project.arena_bytes + made.stack,
            "flash": project.weight_bytes + made.code_bytes,
        },
        "work": work,
        "stack": [{"function": function, "frame": frame} for function, frame in made.path],
        "kernels": [
            {"function": one, "nodes": list(origin), "code": _of(made.code, one), "frame": _most(made.frames, one)}
            | ({"instructions": taken.get(one, 0)} if counted else {})
            for one, origin in nodes.items()
        ],
        "weights": [
            {"name": own, "type": str(one.dtype), "shape": list(one.shape), "bytes": one.nbytes}
            for own, one in ((own, description.constants[key]) for key, own in project.constants.items())
        ],
        "interface": [_tensor(entry.tensors[index], description) for index in (*entry.inputs, *entry.outputs)],
        "libraries": [
            {"function": one, "stack": f"taken as {LIBRARY_FRAME}" if size is None else size}
            for one, size in made.needs.items()
        ],
        "soft float": list(made.soft_float),
        "deviations": [dict(zip(("rule", "where", "why"), row, strict=True)) for row in DEVIATIONS],
    }  # fmt: skip


def _tensor(tensor: TensorSpec, description: ProgramDescription) -> dict[str, Any]:
    shape, quantized = [str(one) for one in tensor.shape or ()], Quantization.of(description.metadata, tensor.name)
    means = str(quantized or "value")
    return {"name": tensor.name, "role": tensor.storage, "type": tensor.dtype, "shape": shape, "means": means}


def _parts(sizes: Mapping[str, int], function: str) -> Iterator[int]:
    return (size for one, size in sizes.items() if one == function or one.startswith(f"{function}_task"))


def _of(sizes: Mapping[str, int], function: str) -> int:
    return sum(_parts(sizes, function))


def _most(sizes: Mapping[str, int], function: str) -> int:
    return max(_parts(sizes, function), default=0)


def write_sign_off(facts: Mapping[str, Any], path: Path) -> None:
    """Write the facts as the name of a file says: .json or .html; raise GraftError where that fails."""
    if path.suffix not in (".json", ".html"):
        raise ArtifactError(f"'{path}' says neither .html nor .json; name the report so", path=str(path))
    text = json.dumps(facts, indent=2) + "\n" if path.suffix == ".json" else page(facts)
    write(path, text.encode(), "report")


def page(facts: Mapping[str, Any]) -> str:
    """Return the facts as HTML that needs nothing else."""
    sections = "\n".join(f"<h2>{title}</h2>\n{_table(facts[key])}" for key, title in _TITLES.items())
    title = f"{escape(facts['name'])}: sign-off report"
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>
body{{font-family:sans-serif;margin:2em}}
td,th{{padding:.2em 1em .2em 0;text-align:left;vertical-align:top}}
</style>
<h1>{title}</h1>
<p>Compiled by {escape(facts["compiler"])}</p>
{sections}
</html>
"""


def _table(rows: Mapping[str, Any] | Sequence[Any]) -> str:
    if isinstance(rows, Mapping):
        rows = [{"what": key, "how much": value} for key, value in rows.items()]
    if not rows:
        return "<p>none</p>"
    if not isinstance(rows[0], Mapping):
        rows = [{"name": one} for one in rows]
    head = "".join(f"<th>{escape(key)}</th>" for key in rows[0])
    body = "\n".join(f"<tr>{''.join(f'<td>{escape(_cell(one))}</td>' for one in row.values())}</tr>" for row in rows)
    return f"<table>\n<tr>{head}</tr>\n{body}\n</table>"


def _cell(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
