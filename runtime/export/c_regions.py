"""Regions that drivers run, in a C project: their blobs in sections, what each driver is told, and the hooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from graft.errors import ArtifactError
from graft.runtime.c_source import INCLUDE, Driver
from graft.runtime.dtypes import element_type
from graft.runtime.export.c_arrays import array_text
from graft.runtime.export.c_lines import wrapped
from graft.runtime.export.c_program import CProgram
from graft.runtime.export.folder import Parts
from graft.runtime.procedure import Module, Procedure, contiguous_bytes

HEADER = "graft/region.h"


@dataclass(frozen=True, slots=True)
class DrivenRegion:
    """A function of a module that a driver runs; ``name`` is what it is called in the project."""

    module: Module
    function: str
    driver: Driver
    name: str
    scratch: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    """The bytes of its tensors."""

    def blob(self, part: str) -> memoryview:
        """Return the bytes of a blob; raise ArtifactError where the module has not so many."""
        begin, size = self.driver.blobs[part]
        if begin + size > len(self.module.data):
            raise ArtifactError(f"the blob '{part}' of module '{self.module.name}' ends behind the module's data")
        return memoryview(self.module.data)[begin : begin + size]


def driven_regions(program: CProgram) -> list[DrivenRegion]:
    """Return the regions of a program that drivers run, in the order of their calls."""
    found: dict[tuple[int, str], DrivenRegion] = {}
    for procedure in program.procedures:
        for call in procedure.calls:
            module = program.description.modules[call.module] if call.kind == "call" else None
            if module is None or module.source is None or module.source.driver is None:
                continue
            function = program.function(call)
            inputs, outputs = (tuple(_sizes(procedure, indices)) for indices in (call.inputs, call.outputs))
            found[(call.module, call.function)] = DrivenRegion(
                module, call.function, module.source.driver, program.kernels[function.entry], function.scratch, inputs,
                outputs,
            )  # fmt: skip
    return list(found.values())


def _sizes(procedure: Procedure, indices: tuple[int, ...]) -> Iterator[int]:
    for index in indices:
        tensor = procedure.tensors[index]
        assert tensor.static_shape is not None, f"a driver is handed '{tensor.name}', whose shape varies"
        yield contiguous_bytes(element_type(tensor.dtype).bytes, tensor.static_shape)


def blob_bytes(program: CProgram) -> int:
    """Return the bytes of all blobs of a program."""
    return sum(size for one in driven_regions(program) for _, size in one.driver.blobs.values())


def region_lines(program: CProgram) -> str:
    """Return what the header of a project says of drivers: sizes, alignment, what has to be called first."""
    regions, name, big = driven_regions(program), program.name, program.name.upper()
    if not regions:
        return ""
    rows = [
        "",
        "/* Regions that drivers of the application run (graft/region.h): their blobs, and memory in the arena. */",
    ]
    for one in regions:
        own = one.name.upper()
        rows += [
            *(f"#define {own}_{part.upper()}_BYTES {size}" for part, (_, size) in one.driver.blobs.items()),
            f"#define {own}_ALIGNMENT {one.driver.alignment} /* of each of these */",
            f"#define {own}_SCRATCH_BYTES {one.scratch}",
        ]
    rows += [
        "",
        f"/* Hands each region to its driver, once, before the first run; returns {big}_OK or what a driver did. */",
        f"int {name}_init(void);",
    ]
    return "\n".join(rows) + "\n"


def region_files(program: CProgram) -> Mapping[str, Parts]:
    """Return the files that a project with such regions has besides; none without."""
    regions, name = driven_regions(program), program.name
    if not regions:
        return {}
    hooks = "\n".join(
        f"int32_t graft_{driver}_init(const GraftRegion *region);\n"
        f"int32_t graft_{driver}_run(const GraftRegion *region, void *scratch, const void *const *inputs, "
        "void *const *outputs);"
        for driver in dict.fromkeys(one.driver.name for one in regions)
    )
    declared = "\n".join(f"extern const GraftRegion {one.name}_region;" for one in regions)
    calls = "\n".join(
        f"  status = graft_{one.driver.name}_init(&{one.name}_region);\n  if (status != 0) return status;"
        for one in regions
    )
    guard = f"{name.upper()}_REGIONS_H"
    return {
        HEADER: (INCLUDE / HEADER).read_text(encoding="utf-8"),
        f"{name}_regions.h": wrapped(
            f"/* What drivers run of {name}, and their hooks, which the application defines. */\n#ifndef {guard}\n"
            f'#define {guard}\n\n#include "{HEADER}"\n\n{hooks}\n\n{declared}\n\n#endif\n'
        ),
        f"{name}_regions.c": wrapped(
            f'/* The blobs of the regions of {name} that drivers run. */\n#include "{name}_regions.h"\n\n'
            f'#include "{name}.h"\n\n{"".join(map(_region_text, regions))}'
            f"int {name}_init(void) {{\n  int32_t status = 0;\n{calls}\n  return status;\n}}\n"
        ),
    }


def _region_text(region: DrivenRegion) -> str:
    rows, own = [], region.name
    for part, (_, size) in region.driver.blobs.items():
        section = f".rodata.graft_{region.driver.name}_{part}"
        values = array_text("uint8", np.frombuffer(region.blob(part), np.uint8))
        rows.append(
            f'GRAFT_SECTION("{section}") _Alignas({region.driver.alignment}) static const unsigned char '
            f"{own}_{part}_data[{max(size, 1)}] = {values};\n"
        )
    blobs = ", ".join(f'{{"{part}", {own}_{part}_data, {size}}}' for part, (_, size) in region.driver.blobs.items())
    for role, sizes in (("inputs", region.inputs), ("outputs", region.outputs)):
        rows.append(f"static const size_t {own}_{role}[] = {{{', '.join(map(str, sizes)) or '0'}}};\n")
    rows.append(f"static const GraftBlob {own}_blobs[] = {{{blobs or '{0, 0, 0}'}}};\n")
    counts = len(region.driver.blobs), len(region.inputs), len(region.outputs)
    rows.append(
        f'const GraftRegion {own}_region = {{"{region.function}", {own}_blobs, {counts[0]}, {own}_inputs, {counts[1]}, '
        f"{own}_outputs, {counts[2]}, {region.scratch}}};\n\n"
    )
    return "".join(rows)
