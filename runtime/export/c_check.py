"""The check of a C project: a recorded input, the output that it has to give, and a main program that says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from graft.runtime.export.c_arrays import recorded_text
from graft.runtime.export.c_lines import wrapped
from graft.runtime.export.c_names import c_type
from graft.runtime.export.c_program import CProgram
from graft.runtime.export.c_regions import driven_regions
from graft.runtime.extents import Symbol
from graft.runtime.tensor_info import TensorInfo, in_order

_FAR = "!(fabs{0}(got - wanted) <= 1e-4{0} + 1e-4{0} * fabs{0}(wanted))"
_FLOATS = f"got != wanted && !(got != got && wanted != wanted) && {_FAR}"
"""NaN is as good as another NaN; what was computed with or without fused operations differs in the last digits."""
_DIFFERS = {"float": _FLOATS.format("f"), "double": _FLOATS.format("")}
"""Each in its own width: many a processor has floats of 32 bits alone."""
_BITS = "labs((long)got - (long)wanted) > 16"
"""Of floats of 16 bits, which are their bits: neighbours have neighbouring bits."""


_SAME = "memcmp(&got, &wanted, sizeof got) && !(got != got && wanted != wanted)"
"""Of floats where the same text was compiled for what is recorded: every bit, and any NaN for NaN."""


def _differs(dtype: str, kind: str, promises_bits: bool) -> str:
    if promises_bits:
        return _SAME if kind in _DIFFERS else "got != wanted"
    return _BITS if dtype in ("float16", "bfloat16") else _DIFFERS.get(kind, "got != wanted")


class Runs(Protocol):
    """A program, as far as recording needs it."""

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]

    def __call__(self, *arrays: Any) -> Any:
        """Return one array, or a tuple of them."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Arrays in the order of a program's inputs and outputs, as they went in and came out."""

    inputs: Sequence[np.ndarray]
    outputs: Sequence[np.ndarray]

    @classmethod
    def of(cls, program: Runs, feeds: Mapping[str, np.ndarray]) -> Recorded:
        """Run a program on arrays by name; raise what that raises."""
        inputs = [np.asarray(array) for array in in_order(program.inputs, (), feeds)]
        results = program(*inputs)
        return cls(inputs, [results] if len(program.outputs) == 1 else list(results))

    def symbols(self, program: CProgram) -> Mapping[str, int]:
        """Return the values of symbols that inputs have, and outputs whose slices are counted."""
        values = dict[str, int]()
        arrays, indices = (*self.inputs, *self.outputs), (*program.entry.inputs, *program.entry.outputs)
        for array, index in zip(arrays, indices, strict=True):
            for extent, size in zip(program.entry.tensors[index].shape or (), array.shape, strict=True):
                if isinstance(extent, Symbol):
                    values.setdefault(extent.name, size)
        return values


def check_text(program: CProgram, recorded: Recorded) -> str:
    """Return the C file with ``<name>_check``: how many elements of the outputs are not as recorded."""
    name, entry = program.name, program.entry
    inputs = recorded_text(program, recorded.inputs, "input", entry.inputs)
    wanted = recorded_text(program, recorded.outputs, "wanted", entry.outputs)
    values = recorded.symbols(program)
    given = {index: f"input{number}" for number, index in enumerate(entry.inputs)}
    given |= {index: f"output{number}" for number, index in enumerate(entry.outputs)}
    late = {symbol.name: f"counted{number}" for number, symbol in enumerate(program.late_symbols(entry))}
    arguments = [f"&{late[one.name]}" if one.name in late else str(values[one.name]) for one in entry.symbols]
    arguments += [given[index] for index in program.parameters]
    counted = [f"  int64_t {own} = {values[symbol]};" for symbol, own in late.items()]
    rooms, loops = [], [f"  if ({own} != {values[symbol]}) ++count;" for symbol, own in late.items()]
    for number, (array, index) in enumerate(zip(recorded.outputs, entry.outputs, strict=True)):
        dtype = entry.tensors[index].dtype
        kind = c_type(dtype, f"'{entry.tensors[index].name}'")
        differs = _differs(dtype, kind, program.promises_bits)
        rooms.append(f"static {kind} output{number}[{max(1, array.size)}];")
        loops.append(
            f"  for (long i = 0; i < {array.size}; ++i) {{\n"
            f"    const {kind} got = output{number}[i], wanted = wanted{number}[i];\n"
            f"    if ({differs}) ++count;\n"
            "  }"
        )
    run = f"const int status = {name}_run({', '.join(arguments)});"
    if driven_regions(program):
        run = f"int status = {name}_init();\n  if (status == {name.upper()}_OK) {run.removeprefix('const int ')}"
    return wrapped(f"""/* Runs {name} on a recorded input. */
#include "{name}_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "{name}.h"

{inputs}
{wanted}
{chr(10).join(rooms)}

long {name}_check(void) {{
  long count = 0;
{"".join(f"{line}{chr(10)}" for line in counted)}  {run}
  if (status != {name.upper()}_OK) return -status;
{chr(10).join(loops)}
  return count;
}}
""")


def check_header(name: str) -> str:
    """Return the header of the check."""
    return f"""/* How many elements of the outputs of {name} are not as recorded; a negative error where it fails. */
#ifndef {name.upper()}_CHECK_H
#define {name.upper()}_CHECK_H

#ifdef __cplusplus
extern "C"
#endif
long {name}_check(void);

#endif
"""


def main_text(name: str, prints: bool) -> str:
    """Return the main program: exit status 0 where the check succeeds; it prints only where there is a host."""
    if not prints:
        return f"""/* Runs the check of {name}: 0 where every output is as recorded. */
#include "{name}_check.h"

int main(void) {{ return {name}_check() != 0; }}
"""
    return wrapped(f"""/* Runs the check of {name} and says how it went. */
#include <stdio.h>

#include "{name}.h"
#include "{name}_check.h"

int main(void) {{
  const long wrong = {name}_check();
  if (wrong < 0) printf("{name}: error %ld\\n", -wrong);
  if (wrong > 0) printf("{name}: %ld elements differ from what was recorded\\n", wrong);
  if (wrong == 0) {{
    printf("{name}: as recorded (arena %d bytes, weights %d bytes)\\n", {name.upper()}_ARENA_BYTES,
           {name.upper()}_WEIGHT_BYTES);
  }}
  return wrong != 0;
}}
""")
