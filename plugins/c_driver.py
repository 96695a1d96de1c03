"""The C form of a module that is data: each call hands a region to a driver of the firmware.

    Module(..., data, source=driven(region, Driver("npu", {"commands": (0, len(data))}), scratch=4096))

A C project has the driver's blobs in sections of their own, and calls its two hooks (`graft/region.h`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graft.errors import CompileError, PluginError
from graft.runtime.c_source import CFunction, CSource, Driver
from graft.runtime.export.c_names import c_type, identifier

if TYPE_CHECKING:
    from graft.partition.region import Region


def driven(region: Region, driver: Driver, scratch: int = 0) -> CSource:
    """Return the C function of a region that a driver runs, with so many bytes of scratch memory for each call.

    Raises CompileError where a shape varies, for a driver gets sizes once, and PluginError for a driver that the C
    of a project cannot have.
    """
    fault = driver.fault() or (f"its calls have {scratch} bytes of scratch memory" if scratch < 0 else "")
    if fault:
        raise PluginError(f"the driver '{driver.name}' of region '{region.name}': {fault}")
    for value in (*region.inputs, *region.outputs):
        if value.static_shape is None:
            raise CompileError(f"a driver is told the sizes of tensors once, and the shape of '{value.name}' varies")
    entry = identifier(region.name)
    inputs = [f"const {c_type(str(one.dtype), one.name)} *restrict in{n}" for n, one in enumerate(region.inputs)]
    outputs = [f"{c_type(str(one.dtype), one.name)} *restrict out{n}" for n, one in enumerate(region.outputs)]
    count = len(inputs) + len(outputs)
    plain = (False,) * count
    function = CFunction(entry, ", ".join(["GraftContext *context", *inputs, *outputs]), plain, plain, scratch)
    given = ", ".join(f"in{number}" for number in range(len(inputs))) or "NULL"
    memory = f"graft_scratch(context, {scratch})" if scratch else "NULL"
    refused = "  if (scratch == NULL) return GRAFT_ERROR_MEMORY;\n" if scratch else "  (void)context;\n"
    return CSource(
        f"""/* {region.name}: run by the driver '{driver.name}' */
GRAFT_KERNEL {function.declaration} {{
  void *const scratch = {memory};
{refused}  const void *const inputs[] = {{{given}}};
  void *const outputs[] = {{{", ".join(f"out{number}" for number in range(len(outputs)))}}};
  return graft_{driver.name}_run(&{entry}_region, scratch, inputs, outputs);
}}
""",
        {region.name: function},
        driver=driver,
    )
