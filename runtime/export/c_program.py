"""The C text of a program: its header with the typed entry point, and the calls in order over a planned arena.

Nothing is allocated: intermediate tensors lie in one arena, at offsets that were planned when the program was compiled,
and behind them the scratch memory of kernels. Symbols of shapes are parameters, checked against their ranges; shapes
are C expressions of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from graft.errors import ArtifactError
from graft.runtime.c_source import VARIES, CFunction
from graft.runtime.dtypes import element_type
from graft.runtime.export.c_names import c_type, comment_text, count_text, extent_text, identifiers
from graft.runtime.extents import Extent
from graft.runtime.procedure import ALIGNMENT, Call, Module, Procedure, ProgramDescription, TensorSpec

_HELPERS = """\
static inline int64_t graft_floordiv(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
static inline int64_t graft_mod(int64_t a, int64_t b) { return a - b * graft_floordiv(a, b); }
static inline int64_t graft_least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t graft_most(int64_t a, int64_t b) { return a > b ? a : b; }
"""


@dataclass(frozen=True)
class CProgram:
    """A program that can be written as C, whose symbols and files are called ``name``; raises ArtifactError if not."""

    name: str
    description: ProgramDescription
    blob: bool = False
    """Whether weights are one file that the assembler brings in, not C arrays."""

    def __post_init__(self) -> None:
        for module in self.description.modules:
            if module.source is None and any(name in self.functions_called for name in module.functions):
                raise ArtifactError(
                    f"module '{module.name}' of kind '{module.kind}' has no C source, so that the program cannot be "
                    "exported as a C project; compile the model with the backend 'c_source' alone",
                    module=module.name,
                )
        for call in self.entry.calls:
            if call.kind in ("if", "loop", "scan"):
                raise _refusal(call, f"control flow ({call.kind}) has no C form")
        for tensor in self.entry.tensors:
            if tensor.storage == "dynamic" or tensor.shape is None:
                raise ArtifactError(
                    f"the shape of '{tensor.name}' depends on data, which has no C form; export the program as a "
                    "library",
                    tensor=tensor.name,
                )
        if self.is_planned_later:
            raise ArtifactError(
                "the program plans its memory for each binding of its symbols, and a C project has one arena; compile "
                'the model with memory="maximum" and a range for each dimension',
                spelled={'memory="maximum"': "--memory maximum", "a range for each": "--dim with a range for each"},
            )

    @property
    def entry(self) -> Procedure:
        """The procedure that is written: the general one, which runs for all shapes."""
        return self.description.procedures[0]

    @property
    def is_planned_later(self) -> bool:
        """Whether the arena has no plan, though there are tensors in it."""
        in_arena = any(tensor.storage == "arena" for tensor in self.entry.tensors)
        return bool(self.entry.symbols) and not self.entry.arena_bytes and in_arena

    @cached_property
    def functions_called(self) -> frozenset[str]:
        """The functions that calls name."""
        return frozenset(call.function for call in self.entry.calls if call.kind == "call")

    @cached_property
    def modules(self) -> tuple[Module, ...]:
        """The modules that calls use, in order."""
        used = {call.module for call in self.entry.calls if call.kind == "call"}
        return tuple(module for number, module in enumerate(self.description.modules) if number in used)

    @cached_property
    def scratch_bytes(self) -> int:
        """The most that a kernel asks for; raises ArtifactError where that depends on shapes."""
        most = 0
        for call in self.entry.calls:
            if call.kind == "call":
                scratch = self.function(call).scratch
                if scratch == VARIES:
                    raise _refusal(call, "its scratch memory depends on shapes, and a C project has a fixed arena")
                most = max(most, scratch)
        return -(-most // ALIGNMENT) * ALIGNMENT

    @property
    def arena_bytes(self) -> int:
        """The planned arena and the scratch memory behind it."""
        return -(-self.entry.arena_bytes // ALIGNMENT) * ALIGNMENT + self.scratch_bytes

    @cached_property
    def constants(self) -> dict[str, str]:
        """The constants that are used: what stands for their elements, by key."""
        used = dict.fromkeys(tensor.constant for tensor in self.entry.tensors if tensor.storage == "constant")
        if not self.blob:
            return {key: f"{self.name}_w{number}" for number, key in enumerate(used)}
        places, end = dict[str, str](), 0
        for key in used:
            places[key] = f"{self.name}_weights + {end}"
            end += -(-self.description.constants[key].nbytes // ALIGNMENT) * ALIGNMENT
        return places

    @cached_property
    def symbols(self) -> dict[str, str]:
        """The identifiers of symbols, by name."""
        return identifiers(symbol.name for symbol in self.entry.symbols)

    @cached_property
    def parameters(self) -> dict[int, str]:
        """The identifiers of inputs and outputs, by tensor."""
        tensors = dict.fromkeys((*self.entry.inputs, *self.entry.outputs))
        names = {f"{self.entry.tensors[index].name}\0{index}": index for index in tensors}
        plain = [name.partition("\0")[0] for name in names]
        if len(set(plain)) == len(plain):
            names = dict(zip(plain, names.values(), strict=True))
        own = identifiers(names, [*self.symbols.values(), self.name])
        return {index: own[name] for name, index in names.items()}

    def function(self, call: Call) -> CFunction:
        """The C function behind a call."""
        source = self.description.modules[call.module].source
        assert source is not None, call.function
        return source.functions[call.function]

    def values(self, index: int) -> str:
        """What stands for a tensor's elements in C."""
        tensor = self.entry.tensors[index]
        match tensor.storage:
            case "input" | "output":
                return self.parameters[index]
            case "constant":
                return self.constants[tensor.constant]
            case "arena":
                return f"arena + {tensor.offset}"
            case "extents":
                return f"extents{index}"
            case "view":
                root = self.values(tensor.of)
                own = self.entry.tensors[tensor.of].storage == "arena"
                root = root if own else f"(const char *){root}"
                text = f"{root} + {tensor.offset}" if tensor.offset else root
                return text if own or self.entry.tensors[tensor.of].storage != "output" else f"(char *)({text})"
            case _:
                raise AssertionError(tensor)

    def signature(self) -> str:
        """The parameters of the entry point."""
        scalars = [f"int64_t {name}" for name in self.symbols.values()]
        return ", ".join([*scalars, *(self._parameter(index, name) for index, name in self.parameters.items())])

    def _parameter(self, index: int, name: str) -> str:
        tensor = self.entry.tensors[index]
        kind = c_type(tensor.dtype, f"'{tensor.name}'")
        kind = f"const {kind}" if tensor.storage == "input" else kind
        shape = tensor.static_shape
        if shape is None or prod(shape) == 0:
            return f"{kind} *{name}"
        return f"{kind} {name}[{' * '.join(map(str, shape)) or 1}]"


def _refusal(call: Call, reason: str) -> ArtifactError:
    nodes = ", ".join(f"'{node}'" for node in call.origin) or "the program"
    return ArtifactError(f"{nodes} cannot be exported as a C project: {reason}; export it as a library")


def header_text(program: CProgram) -> str:
    """Return the header of a project."""
    name, big = program.name, program.name.upper()
    entry = program.entry
    rows = [
        f" *   {program.parameters[index]}: {comment_text(_shown(entry.tensors[index], program))}"
        for index in program.parameters
    ]
    limits = [
        f"#define {big}_{program.symbols[one.name].upper()}_MIN {one.low}"
        + ("" if one.high is None else f"\n#define {big}_{program.symbols[one.name].upper()}_MAX {one.high}")
        for one in entry.symbols
    ]
    weights = sum(program.description.constants[key].nbytes for key in program.constants)
    return f"""/* {name}, written by Graft. All tensors are contiguous, in row-major order:
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
#define {big}_WEIGHT_BYTES {weights} /* read-only */
{chr(10).join(limits)}
enum {{ {big}_OK = 0, {big}_ERROR_MEMORY = 1, {big}_ERROR_INPUT = 4, {big}_ERROR_RUN = 5 }};

/* Runs the model in an arena of its own: one call at a time. Returns {big}_OK or an error; {big}_ERROR_INPUT is a
 * dimension out of its range. Compile with -D{big}_NO_ARENA to leave function and arena out. */
int {name}_run({program.signature()});

/* The same in an arena of {big}_ARENA_BYTES bytes, aligned to 64, that the caller has: one call at a time in each. */
int {name}_run_in(void *arena, {program.signature()});

#ifdef __cplusplus
}}
#endif
#endif
"""


def _shown(tensor: TensorSpec, program: CProgram) -> str:
    shape = ", ".join(extent_text(extent, program.symbols) for extent in tensor.shape or ())
    role = "input" if tensor.storage == "input" else "output"
    return f"{role} '{tensor.name}', {tensor.dtype}[{shape}]"


def program_text(program: CProgram) -> str:
    """Return the C file with the entry points: checks, shapes, calls."""
    name, big = program.name, program.name.upper()
    names = ", ".join([*program.symbols.values(), *program.parameters.values()])
    body = "\n".join(f"  {line}" for line in _lines(program))
    size = max(1, program.arena_bytes)
    arrays = (f"{c_type(dtype_of(program, key), 'a constant')} {own}" for key, own in program.constants.items())
    declared = [f"unsigned char {name}_weights"] if program.blob else arrays
    weights = "\n".join(f"extern const {one}[];" for one in declared)
    return f"""/* {name}: the calls of the model in order, over one arena. */
#include "{name}.h"

#include <string.h>

#include "{name}_kernels.h"

{weights}

{_HELPERS}
int {name}_run_in(void *arena_of_caller, {program.signature()}) {{
  unsigned char *const arena = arena_of_caller;
  GraftContext context = {{arena + {size - program.scratch_bytes if program.scratch_bytes else 0}, \
{program.scratch_bytes}, 0}};
  int32_t status = GRAFT_OK;
  (void)arena, (void)context, (void)graft_floordiv, (void)graft_mod, (void)graft_least, (void)graft_most;
{body}
  return status;
}}

#ifndef {big}_NO_ARENA
int {name}_run({program.signature()}) {{
  static _Alignas(64) unsigned char arena[{size}];
  return {name}_run_in(arena, {names});
}}
#endif
"""


def dtype_of(program: CProgram, key: str) -> str:
    """Return the element type of a constant."""
    return next(tensor.dtype for tensor in program.entry.tensors if tensor.constant == key)


def _lines(program: CProgram) -> Iterator[str]:
    """Yield the statements of the entry point."""
    big = program.name.upper()
    for symbol in program.entry.symbols:
        own = program.symbols[symbol.name]
        high = "" if symbol.high is None else f" || {own} > {symbol.high}"
        yield f"if ({own} < {symbol.low}{high}) return {big}_ERROR_INPUT;"
    for bound in program.entry.bounds:
        text = extent_text(bound.extent, program.symbols)
        high = "" if bound.high is None else f" || {text} > {bound.high}"
        yield f"if ({text} < {bound.low}{high}) return {big}_ERROR_INPUT;"
    for index, tensor in enumerate(program.entry.tensors):
        if tensor.storage == "extents":
            kind = c_type(tensor.dtype, f"'{tensor.name}'")
            values = ", ".join(f"({kind}){extent_text(one, program.symbols)}" for one in tensor.values) or "0"
            yield f"const {kind} extents{index}[] = {{{values}}};"
    for call in program.entry.calls:
        if call.origin:
            yield f"/* {comment_text(', '.join(call.origin))} */"
        yield from _call_lines(program, call)


def _call_lines(program: CProgram, call: Call) -> Iterator[str]:
    match call.kind:
        case "call":
            function = program.function(call)
            arguments = ["&context", "&kept"] if function.keeps else ["&context"]
            for index, shape, strides in zip(
                (*call.inputs, *call.outputs), function.shapes, function.strides, strict=True
            ):
                arguments.append("NULL" if index < 0 else f"(void *)({program.values(index)})")
                arguments += [_shape(program, index)] if shape else []
                arguments += ["NULL"] if strides else []
            yield "context.used = 0;"
            status = f"status = {function.entry}({', '.join(arguments)});"
            yield f"{{ static GraftKept kept; {status} }}" if function.keeps else status
            yield "if (status != GRAFT_OK) return status;"
        case "copy":
            source, target = call.inputs[0], call.outputs[0]
            size = _bytes(program, program.entry.tensors[source], program.entry.tensors[source].shape or ())
            yield f"memmove({program.values(target)}, {program.values(source)}, (size_t)({size}));"
        case "append":
            yield from _append_lines(program, call)
        case _:
            raise AssertionError(call)


def _append_lines(program: CProgram, call: Call) -> Iterator[str]:
    """Blocks of rows of both inputs, one behind the other."""
    old, new = (program.entry.tensors[index] for index in call.inputs)
    target = program.values(call.outputs[0])
    blocks = count_text((old.shape or ())[: call.axis], program.symbols)
    sizes = [_bytes(program, one, (one.shape or ())[call.axis :]) for one in (old, new)]
    yield f"for (int64_t block = 0, sizes[] = {{{sizes[0]}, {sizes[1]}}}; block < {blocks}; ++block) {{"
    yield f"  char *row = (char *)({target}) + block * (sizes[0] + sizes[1]);"
    for number, index in enumerate(call.inputs):
        own = f"(const char *)({program.values(index)}) + block * sizes[{number}]"
        yield f"  memcpy(row{' + sizes[0]' if number else ''}, {own}, (size_t)sizes[{number}]);"
    yield "}"


def _bytes(program: CProgram, tensor: TensorSpec, shape: Sequence[Extent]) -> str:
    return f"{count_text(shape, program.symbols)} * {element_type(tensor.dtype).bytes}"


def _shape(program: CProgram, index: int) -> str:
    if index < 0:
        return "NULL"
    shape = program.entry.tensors[index].shape or ()
    values = ", ".join(extent_text(extent, program.symbols) for extent in shape) or "0"
    return f"(const int64_t[]){{{values}}}"


def kernel_texts(program: CProgram) -> Mapping[str, str]:
    """Return the files with the kernels, under names that begin with the program's: header and source."""
    functions = [
        module.source.functions[name]
        for module in program.modules
        if module.source is not None
        for name in module.functions
        if name in module.source.functions
    ]
    renamed = "\n".join(f"#define {one.entry} {program.name}_{one.entry}" for one in functions)
    declared = "\n".join(f"{one.declaration};" for one in functions)
    big = program.name.upper()
    sources = [module.source for module in program.modules if module.source is not None]
    includes = "".join(f"#include <{one}>\n" for one in dict.fromkeys(h for source in sources for h in source.headers))
    header = f"""/* The kernels of {program.name}. */
#ifndef {big}_KERNELS_H
#define {big}_KERNELS_H

#define GRAFT_PROJECT
#define GRAFT_KERNEL /* each is a function of its own */
#include "graft/kernel.h"
{includes}
{renamed}

{declared}

#endif
"""
    text = "\n".join(source.text for source in sources)
    return {
        f"{program.name}_kernels.h": header,
        f"{program.name}_kernels.c": f'#include "{program.name}_kernels.h"\n\n{text}',
    }
