"""Arrays as C has them: weights, recorded inputs and outputs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from graft.runtime.export.c_lines import WIDTH
from graft.runtime.export.c_names import c_type
from graft.runtime.export.c_program import CProgram
from graft.runtime.procedure import ALIGNMENT

_ZEROS = re.compile(r"\.?0+(?=p)")
"""At the end of a hexadecimal significand."""
_BITS = {1: np.uint8, 2: np.uint16}


def array_text(dtype: str, array: np.ndarray) -> str:
    """Return the elements of an array as a C initialiser: floats in hexadecimal, so that none is rounded."""
    values = _literals(dtype, np.ascontiguousarray(array).reshape(-1)) or ["0"]
    each = max(1, (WIDTH - 2) // (max(map(len, values)) + 2))
    lines = (", ".join(values[at : at + each]) for at in range(0, len(values), each))
    return "{\n  " + ",\n  ".join(lines) + "}"


def _literals(dtype: str, flat: np.ndarray) -> list[str]:
    match c_type(dtype, "an array"):
        case "float":
            return [_float(value, "f") for value in flat.tolist()]
        case "double":
            return [_float(value, "") for value in flat.tolist()]
        case "int64_t":
            return [f"INT64_C({value})" if value > -(1 << 63) else "INT64_MIN" for value in flat.tolist()]
        case "uint64_t":
            return [f"UINT64_C({value})" for value in flat.tolist()]
        case "bool":
            return [str(int(value)) for value in flat.tolist()]
        case "int32_t":
            return [str(value) if value > -(1 << 31) else "INT32_MIN" for value in flat.tolist()]
        case "uint32_t":
            return [f"{value}U" for value in flat.tolist()]
        case _ if flat.dtype.kind in "iu":
            return [str(value) for value in flat.tolist()]
        case _:
            return [str(value) for value in flat.view(_BITS[flat.dtype.itemsize]).tolist()]


def _float(value: float, suffix: str) -> str:
    if value != value:
        return "NAN"
    if value in (float("inf"), float("-inf")):
        return "INFINITY" if value > 0 else "-INFINITY"
    return f"{_ZEROS.sub('', value.hex())}{suffix}"


def weights_text(program: CProgram) -> str:
    """Return the C file with the weights of a program, each an array of its own."""
    big = program.name.upper()
    rows = [f"/* The weights of {program.name}. */", "#include <math.h>", "#include <stdbool.h>", "#include <stdint.h>"]
    rows += ["", f"#ifdef {big}_WEIGHTS_SECTION /* a text: the name of their section */"]
    rows += [f"#define {big}_PLACED __attribute__((section({big}_WEIGHTS_SECTION)))"]
    rows += ["#else", f"#define {big}_PLACED", "#endif"]
    for key, own in program.constants.items():
        dtype = program.dtype_of(key)
        kind = f"const {c_type(dtype, 'a constant')} {own}[]"
        rows += ["", f"extern {kind};", f"{big}_PLACED _Alignas({ALIGNMENT}) {kind} = {_array(program, key, dtype)};"]
    return "\n".join(rows) + "\n"


def _array(program: CProgram, key: str, dtype: str) -> str:
    return array_text(dtype, program.description.constants[key])


def weights_blob(program: CProgram) -> Iterator[bytes | memoryview]:
    """Yield the bytes of all weights, each at a multiple of 64, in the order of their places in the program."""
    for key in program.constants:
        array = np.ascontiguousarray(program.description.constants[key])
        if array.nbytes:
            yield array.reshape(-1).view(np.uint8).data
        yield bytes(-array.nbytes % ALIGNMENT)


def blob_text(name: str) -> str:
    """Return the assembler file that brings the blob in."""
    section = f"{name.upper()}_WEIGHTS_SECTION"
    return f"""/* The weights of {name}. */
#ifdef {section} /* a name without quotes */
    .section {section}, "a"
#else
    .section .rodata
#endif
    .balign {ALIGNMENT}
    .globl {name}_weights
{name}_weights:
    .incbin "{name}_weights.bin"
    .byte 0
#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack,"",%progbits
#endif
"""


def recorded_text(program: CProgram, arrays: Sequence[np.ndarray], prefix: str, indices: Sequence[int]) -> str:
    """Return definitions of arrays that were recorded for some inputs or outputs of a program."""
    rows = []
    for number, (array, index) in enumerate(zip(arrays, indices, strict=True)):
        dtype = program.entry.tensors[index].dtype
        rows.append(f"static const {c_type(dtype, 'an array')} {prefix}{number}[] = {array_text(dtype, array)};")
    return "\n".join(rows)
