"""The C files of a program: its header with the typed entry point, the calls in order over the arena, the kernels.

Symbols of shapes are parameters, checked against their ranges; shapes are C expressions of them. Bodies of control flow
are functions of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path

from graft.runtime.c_operators import displaced
from graft.runtime.c_source import prelude
from graft.runtime.export.c_build import target_check
from graft.runtime.export.c_built import Built
from graft.runtime.export.c_calls import procedure_lines
from graft.runtime.export.c_lines import wrapped
from graft.runtime.export.c_names import c_type, comment_text, extent_text
from graft.runtime.export.c_program import CProgram
from graft.runtime.export.c_regions import blob_bytes, driven_regions, region_lines
from graft.runtime.export.c_scope import CScope
from graft.runtime.procedure import TensorSpec
from graft.runtime.tensor_info import Quantization

THREADS = Path(__file__).parents[1] / "native" / "export" / "threads.c"
_HELPERS = {
    "graft_floordiv": "{ return a / b - (a % b != 0 && (a < 0) != (b < 0)); }",
    "graft_mod": "{ const int64_t rest = a % b; return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest; }",
    "graft_least": "{ return a < b ? a : b; }",
    "graft_most": "{ return a > b ? a : b; }",
}
"""What extents may need, of two of them."""
SECTIONS = {
    "Objects that calls keep": r"\bGraftKept\b",
    "Integers": r"_u?int(8|16|32|64)\b|\bu?int(8|16|32|64)_of_",
    "Words of four bytes": r"\bword_at\b|\bdot[24]_",
    "Floats": r"_float(32|64)\b|\bfloat(32|64)_of_",
    "Remainders of floats": r"\bfmod_",
    "Vectors": r"\bGRAFT_VECTORS\b",
}
"""By the beginning of a title, what a text has that needs this section of the header for kernels; others need none."""
_SECTION = re.compile(r"^(/\* -{4} .* -+ \*/\n)", re.MULTILINE)

_ERROR_TEXTS = """  if (status == {big}_OK) return "no error";
  if (status == {big}_ERROR_MEMORY) return "more slices than the caller has room for, or no scratch memory";
  if (status == {big}_ERROR_INPUT) return "a dimension is out of its range, or dimensions contradict each other";
  if (status == {big}_ERROR_RUN) return "a kernel met what it cannot compute";
  return "an error of a driver, or of a vendor's function";
"""


def signature(program: CProgram) -> str:
    """Return the parameters of the entry point."""
    late = {symbol.name for symbol in program.late_symbols(program.entry)}
    scalars = [f"int64_t {'*' if name in late else ''}{own}" for name, own in program.symbols.items()]
    return ", ".join([*scalars, *(_parameter(program, index, own) for index, own in program.parameters.items())])


def _parameter(program: CProgram, index: int, name: str) -> str:
    tensor = program.entry.tensors[index]
    kind = c_type(tensor.dtype, f"'{tensor.name}'")
    kind = f"const {kind}" if tensor.storage == "input" else kind
    shape = tensor.static_shape
    if shape is None or prod(shape) == 0:
        return f"{kind} *{name}"
    return f"{kind} {name}[{' * '.join(str(extent) for extent in shape if extent != 1) or 1}]"


def header_text(program: CProgram, made: Built | None = None) -> str:
    """Return the header of a project, with the bound of its stack where a compiler was asked."""
    name, big = program.name, program.name.upper()
    entry = program.entry
    rows = [
        f" *   {program.parameters[index]}: {comment_text(_shown(entry.tensors[index], program))}"
        for index in program.parameters
    ]
    for symbol in program.late_symbols(entry):
        own, of = program.symbols[symbol.name], program.parameters[symbol.tensor]
        rows.append(f" *   {own}: how many slices {of} has room for; the function writes how many it made")
    weights = sum(program.description.constants[key].nbytes for key in program.constants) + blob_bytes(program)
    threads = f"\n#define {big}_THREADS {program.threads} /* share the loops of kernels; the first call starts them */"
    bound = f"/* At most, by {comment_text(made.compiler)} */\n#define {big}_STACK_BYTES {made.stack}\n" if made else ""
    return wrapped(f"""/* {name}, written by Graft. All tensors are contiguous, in row-major order:
 *
{chr(10).join(rows)}
 */
#ifndef {big}_H
#define {big}_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

#define {big}_ARENA_BYTES {program.arena_bytes} /* memory that is written: intermediate tensors and scratch */
#define {big}_WEIGHT_BYTES {weights} /* read-only */{threads if program.threads > 1 else ""}
{bound}{chr(10).join(_number_lines(program))}
#define {big}_OK 0
#define {big}_ERROR_MEMORY 1
#define {big}_ERROR_INPUT 4
#define {big}_ERROR_RUN 5

/* What an error means. */
static inline const char *{name}_error_text(int status) {{
{_ERROR_TEXTS.format(big=big)}}}

/* Runs the model in an arena of its own: one call at a time. Returns {big}_OK or an error; {big}_ERROR_INPUT is a
 * dimension out of its range. Compile with -D{big}_NO_ARENA to leave function and arena out. */
int {name}_run({signature(program)});

/* The same in an arena of {big}_ARENA_BYTES bytes, aligned to 64, that the caller has: one call at a time in each. */
int {name}_run_in(void *arena, {signature(program)});
{region_lines(program)}
#ifdef __cplusplus
}}
#endif
#endif
""")


def _number_lines(program: CProgram) -> Iterator[str]:
    """Yield the ranges of dimensions, and scale and zero point of integer tensors, as macros."""
    big, entry = program.name.upper(), program.entry
    for symbol in entry.symbols:
        macro = f"{big}_{program.symbols[symbol.name].upper()}"
        yield f"#define {macro}_MIN {symbol.low}"
        if symbol.high is not None:
            yield f"#define {macro}_MAX {symbol.high}"
    for index, own in program.parameters.items():
        if quantized := Quantization.of(program.description.metadata, entry.tensors[index].name):
            yield f"#define {big}_{own.upper()}_SCALE {quantized.scale:#.9g}f"
            zero = quantized.zero_point
            yield f"#define {big}_{own.upper()}_ZERO_POINT {zero if zero >= 0 else f'({zero})'}"


def _shown(tensor: TensorSpec, program: CProgram) -> str:
    shape = ", ".join(extent_text(extent, program.symbols) for extent in tensor.shape or ())
    role = "input" if tensor.storage == "input" else "output"
    quantized = Quantization.of(program.description.metadata, tensor.name)
    meant = f" of the numbers {quantized}" if quantized else ""
    return f"{role} '{tensor.name}', {tensor.dtype}[{shape}]{meant}"


def program_text(program: CProgram, included: Sequence[str] = ()) -> str:
    """Return the C file with the entry points and the bodies of control flow: checks, shapes, calls.

    ``included`` are headers behind the kernels'.
    """
    name, big = program.name, program.name.upper()
    names = ", ".join([*program.symbols.values(), *program.parameters.values()])
    size = max(1, program.arena_bytes)
    arrays = (f"{c_type(program.dtype_of(key), 'a constant')} {own}" for key, own in program.constants.items())
    declared = [f"unsigned char {name}_weights"] if program.blob else arrays
    weights = "\n".join(f"extern const {one}[];" for one in declared)
    headers = "\n".join(f'#include "{one}"' for one in (f"{name}_kernels.h", *included))
    bodies = "\n".join(_body_text(CScope(program, number)) for number in program.layout.reached if number)
    statements = _statements(CScope(program, 0))
    first = _first_lines(program, statements)
    return wrapped(f"""/* {name}: the calls of the model in order, over one arena. */
#include "{name}.h"

#include <string.h>

{headers}

{weights}

{helpers_for(bodies + statements)}{bodies}int {name}_run_in(void *arena_of_caller, {signature(program)}) {{
{first}{statements}
  return {"status" if "int32_t status" in first else "GRAFT_OK"};
}}

#ifndef {big}_NO_ARENA
int {name}_run({signature(program)}) {{
  static _Alignas(64) unsigned char arena[{size}];
  return {name}_run_in(arena, {names});
}}
#endif
""")


def _first_lines(program: CProgram, statements: str) -> str:
    """Return what stands before the statements of the entry point.

    These are what they use of arena, the kernels' host and a status, and a use of the parameters that they do not.
    """
    used = frozenset(re.findall(r"\w+", re.sub(r"/\*.*?\*/", "", statements)))
    has_arena = bool(used & {"arena", "context"})
    given = [*([] if has_arena else ["arena_of_caller"]), *program.symbols.values(), *program.parameters.values()]
    unused = [f"(void){name}" for name in given if name not in used]
    lines = ["unsigned char *const arena = arena_of_caller;"] if has_arena else []
    lines += [f"{', '.join(unused)};"] if unused else []
    if "context" in used:
        size = program.scratch_bytes
        scratch = displaced("arena", program.scratch_offset) if size else "arena"
        lines.append(f"GraftContext own = {{{scratch}, {size}, 0}}, *const context = &own;")
    lines += ["int32_t status = GRAFT_OK;"] if "status" in used else []
    return "".join(f"  {line}\n" for line in lines)


def helpers_for(text: str) -> str:
    """Return the functions that the extents in a text need."""
    rows = (
        f"static inline int64_t {one}(int64_t a, int64_t b) {body}" for one, body in _HELPERS.items() if one in text
    )
    return "".join(f"{row}\n" for row in rows)


def _body_text(scope: CScope) -> str:
    used = ["arena", *scope.symbols.values(), *(f"in{number}" for number in range(len(scope.procedure.inputs)))]
    return f"""/* {comment_text(scope.procedure.name)} */
static int32_t {scope.function}({scope.signature()}) {{
  int32_t status = GRAFT_OK;
  (void)context, {", ".join(f"(void){one}" for one in used)};
{_statements(scope)}
  return status;
}}
"""


def _statements(scope: CScope) -> str:
    return "\n".join(f"  {line}" for line in procedure_lines(scope))


def kernel_texts(program: CProgram) -> Mapping[str, str]:
    """Return the files with the kernels, under names that begin with the program's: header and source."""
    name, big = program.name, program.name.upper()
    sources = [module.source for module in program.modules if module.source is not None]
    functions = {
        source.functions[function].entry: source.functions[function]
        for module, source in zip(program.modules, sources, strict=True)
        for function in module.functions
        if function in source.functions
    }
    declared = "\n".join(f"{functions[entry].declaration};" for entry in program.kernels)
    includes = "".join(f"#include <{one}>\n" for one in dict.fromkeys(h for source in sources for h in source.headers))
    includes += f'#include "{name}_regions.h"\n' if driven_regions(program) else ""
    threads = f"#define GRAFT_PROJECT_THREADS\n#define graft_parallel_for {name}_parallel_for\n"
    needed = target_check(name, program.targets)
    header = f"""/* The kernels of {name}. */
#ifndef {big}_KERNELS_H
#define {big}_KERNELS_H

{needed}#define GRAFT_PROJECT
{threads if program.threads > 1 else ""}#define GRAFT_KERNEL /* each is a function of its own */
#include "graft/kernel.h"
{includes}
{declared}

#endif
"""
    text = f'#include "{name}_kernels.h"\n\n' + "\n".join(source.text for source in sources)
    return {f"{name}_kernels.{end}": wrapped(_renamed(one, program)) for end, one in (("h", header), ("c", text))}


def prelude_text(program: CProgram) -> str:
    """Return the header of kernels: of its sections those that a kernel needs, or another that is there."""
    known = {"GRAFT_PROJECT": True, "GRAFT_PROJECT_THREADS": program.threads > 1}
    head, *sections = _SECTION.split("\n".join(_decided(prelude().splitlines(), known)))
    text = "\n".join(module.source.text for module in program.modules if module.source is not None)
    has_vectors = "GRAFT_VECTORS" in text
    kept = "" if has_vectors else "#endif"
    for title, body in reversed([*zip(sections[::2], sections[1::2], strict=True)]):
        needed = next((one for start, one in SECTIONS.items() if title.startswith(f"/* ---- {start}")), "")
        if has_vectors or re.search(needed, text + kept):
            kept = title + body + kept
    return wrapped(head + kept + "\n")


def _decided(lines: Iterable[str], known: Mapping[str, bool]) -> Iterator[str]:
    """Yield lines of C without the branches that depend on macros of which it is known whether they are defined."""
    holds: list[bool | None] = []
    for line in lines:
        if line.startswith("#if"):
            holds.append(known.get(line.split()[1]) if line.startswith("#ifdef") else None)
        elif line.startswith("#else") and holds[-1] is not None:
            holds[-1] = not holds[-1]
            continue
        is_decided = line.startswith(("#if", "#endif")) and holds[-1] is not None
        if False not in holds and not is_decided:
            yield line
        if line.startswith("#endif"):
            holds.pop()


def _renamed(text: str, program: CProgram) -> str:
    """Return the text of kernels with the names that they have in the project."""
    entries = "|".join(map(re.escape, sorted(program.kernels, reverse=True)))
    return (
        re.sub(rf"\b({entries})(?=_task\d+|_region\b|\b)", lambda found: program.kernels[found[1]], text)
        if entries
        else text
    )


def threads_text(program: CProgram) -> str:
    """Return the C file with the threads of a project."""
    own = f'#define _POSIX_C_SOURCE 200809L\n#include "{program.name}_kernels.h"\n#define THREADS {program.threads}\n\n'
    return own + THREADS.read_text(encoding="utf-8")
