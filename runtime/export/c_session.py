"""The device's part of a session in a C project: a server over a serial line, a clock around each kernel."""

from __future__ import annotations

from pathlib import Path

from graft.errors import ArtifactError
from graft.runtime.dtypes import element_type
from graft.runtime.export.c_lines import wrapped
from graft.runtime.export.c_program import CProgram
from graft.runtime.export.c_regions import driven_regions
from graft.runtime.export.folder import Parts
from graft.runtime.procedure import TensorSpec, contiguous_bytes

NATIVE = Path(__file__).parent.parent / "native" / "export"


def session_files(program: CProgram) -> dict[str, Parts]:
    """Return the files that a project has besides, by name; raise ArtifactError for loops and shapes that vary."""
    if len(program.layout.reached) > 1:
        raise ArtifactError(f"a session times each call once, and '{program.name}' has loops or branches; export it")
    if driven := driven_regions(program):
        raise ArtifactError(f"a driver of the firmware runs '{driven[0].function}', and a session has none; export it")
    own = {name: (NATIVE / name).read_text(encoding="utf-8") for name in ("graft_session.h", "session.c")}
    return {**own, "session_model.h": _model_text(program), f"{program.name}_timed.h": _timed_text(program)}


def _model_text(program: CProgram) -> str:
    entry, name = program.entry, program.name
    sizes = {
        index: contiguous_bytes(element_type(entry.tensors[index].dtype).bytes, fixed_shape(entry.tensors[index]))
        for index in (*entry.inputs, *entry.outputs)
    }
    rooms = {index: f"tensor{index}" for index in sizes}
    arrays = "\n".join(
        f"static _Alignas(64) unsigned char {room}[{max(1, sizes[index])}];" for index, room in rooms.items()
    )
    places = [*entry.inputs, *entry.outputs]
    arguments = ", ".join(f"(void *){rooms[index]}" for index in program.parameters)
    calls = sum(call.kind == "call" for call in entry.calls)
    return wrapped(f"""/* {name}, as a session sees it. */
#include "{name}.h"

enum {{ GRAFT_INPUTS = {len(entry.inputs)}, GRAFT_OUTPUTS = {len(entry.outputs)}, GRAFT_CALLS = {calls} }};

{arrays}
static unsigned char *const graft_tensors[] = {{{", ".join(rooms[index] for index in places)}}};
static const uint32_t graft_sizes[] = {{{", ".join(str(sizes[index]) for index in places)}}};

static int graft_model_run(void) {{ return {name}_run({arguments}); }}
""")


def fixed_shape(tensor: TensorSpec) -> tuple[int, ...]:
    """Return the shape of an input or output; raise ArtifactError where it varies."""
    if tensor.static_shape is None:
        raise ArtifactError(
            f"a device runs one shape, and that of '{tensor.name}' varies; compile the model with shapes or dims that "
            "give each dimension a number"
        )
    return tensor.static_shape


def _timed_text(program: CProgram) -> str:
    """Put a clock around each call: a macro does not replace its own name."""
    functions = (program.function(call) for call in program.entry.calls if call.kind == "call")
    macros = {program.kernels[one.entry]: f"GRAFT_TIMED{'' if one.needs_host else '_PLAIN'}" for one in functions}
    lines = "\n".join(f"#define {one}(...) {macro}(({one})(__VA_ARGS__))" for one, macro in macros.items())
    return f'/* A clock around each kernel of {program.name}. */\n#include "graft_session.h"\n\n{lines}\n'
