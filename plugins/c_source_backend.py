"""The backend of a vendor whose kernels are C functions: it says the calls, Graft writes the C around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graft.plugins.backend import CompiledRegion
from graft.plugins.c_vendor import CVendor
from graft.plugins.options.default_object import OfDefaults

if TYPE_CHECKING:
    from graft.core.machine.target import CompileOptions
    from graft.partition.region import Region
    from graft.runtime.loaders import Loader


class CSourceBackend(CVendor):
    """A backend whose kernels are functions of a C library: say what it supports, and the call of each; that is all.

    The plugin of a library with one function::

        class Tiny(graft.CSourceBackend):
            name = "tiny"
            headers, libraries = ("tiny.h",), ("libtiny.so.1",)
            calls = {"Relu": "tiny_relu({X}, {Y.size}, {Y})"}

            @graft.supports("Relu")
            def relu(self, node):
                return node.dtype == "float32" or graft.Reject("dtype", f"float32 only, got {node.dtype}")

    A region becomes C: for each composite and operator a function around its call (`graft.plugins.c_calls` says how one
    is written), which the system's C compiler compiles. The buffers between the calls are planned with the rest of the
    program. The program names the libraries by soname; where it is loaded, in Python or by a C program, the runtime
    opens them (module kind ``c_source``). The text stays with the module, for C projects, which link with the
    libraries instead. So a library's functions must be safe to call by several threads at a time.

    Where the library takes extents as arguments, its functions are compiled for shapes that vary
    (``shapes = "symbolic"``): ``{X.shape[0]}`` is then read from the shape that the function is given.
    """

    def compile(self, region: Region, options: CompileOptions) -> CompiledRegion:
        """Return the region as native code of kind ``c_source``, with a call for each kernel.

        Raises CompileError for what the C compiler refuses, naming the kernel and the line, and for functions that
        no library has.
        """
        from graft.plugins.c_call_regions import compile_calls

        return compile_calls(self, region, options)

    def available(self) -> str | None:
        """Return None if the compiler, the headers and the libraries are here, else what is missing."""
        from graft.plugins.c_call_code import flags_of
        from graft.plugins.c_libraries import missing_header, missing_library

        reason = missing_library(self.libraries) or missing_header(self.headers, flags_of(self))
        return reason and (f"{reason}; {self.install}" if self.install else reason)

    @OfDefaults
    def module_loaders(self) -> list[Loader]:
        """Open the libraries, so that the runtime, which loads the modules itself, finds them by soname."""
        from graft.plugins.c_libraries import missing_library

        missing_library(self.libraries)
        return []
