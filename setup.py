"""The native parts: the runtime's Python binding, and the loaders that in-tree plugins bring."""

import sys
import sysconfig
from glob import glob
from pathlib import Path

import numpy
from setuptools import Extension, setup

SIMULATORS = [f"plugins/accelerator/native/{name}.c" for name in ("machine", "execute", "functional", "cycles")]
RUNTIME = "runtime/native/src"
"""One folder per layer, `base` the lowest; sources name a header with its folder."""
JSON = [*glob(f"{RUNTIME}/base/json*.c"), f"{RUNTIME}/base/sort.c"]
CUDA_SHARES = [*JSON, *(f"{RUNTIME}/base/{name}.c" for name in ("error", "store", "platform_linux"))]
LIMITED = sys.version_info >= (3, 12) and not sysconfig.get_config_var("Py_GIL_DISABLED")
"""Whether the stable ABI has all that a call needs (vectorcall, since 3.12): such a wheel serves each later Python."""
WARNINGS = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror=implicit-function-declaration", "-fvisibility=hidden"]


def extension(name: str, sources: list[str], flags: tuple[str, ...] = (), **arguments: object) -> Extension:
    """Return an extension built with the project's flags, and some of its own behind them."""
    return Extension(
        name,
        sorted(sources),
        include_dirs=["runtime/native/include", RUNTIME, "runtime/native/python", numpy.get_include()],
        define_macros=[
            ("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"),
            ("_GNU_SOURCE", "1"),
            *([("Py_LIMITED_API", "0x030C0000")] if LIMITED else []),
        ],
        extra_compile_args=[*WARNINGS, *flags],
        py_limited_api=LIMITED,
        **arguments,
    )


def extensions() -> list[Extension]:
    """Return the native modules of the distribution."""
    return [
        extension("graft.runtime._native", glob(f"{RUNTIME}/*/*.c") + glob("runtime/native/python/*.c")),
        extension(
            # Products of blocks want vectors; floats are rounded after each operation, on every machine.
            "graft.plugins.accelerator._simulator",
            [*SIMULATORS, *(f"plugins/accelerator/native/{name}.c" for name in ("hazards", "contents", "binding"))],
            ("-O3", "-ffp-contract=off"),
        ),
        extension(
            "graft.plugins.accelerator._loader",
            [*SIMULATORS, *(f"plugins/accelerator/native/{name}.c" for name in ("simulated", "border", "loader"))],
            ("-O3", "-ffp-contract=off"),
        ),
        extension(
            "graft.plugins.cuda._loader",
            [*glob("plugins/cuda/native/*.c"), *CUDA_SHARES],
        ),
        extension(
            "graft.plugins.cuda._cublas",
            [
                *glob("plugins/cuda/native/cublas/*.c"),
                *(f"plugins/cuda/native/{name}.c" for name in ("driver", "device", "loading", "memory", "report")),
                *CUDA_SHARES,
            ],
        ),
        extension("graft.plugins.onednn._loader", [*glob("plugins/onednn/native/*.c"), *JSON]),
        extension(
            "graft.plugins.irregular._loader",
            [*glob("plugins/irregular/native/*.c"), *JSON],
        ),
    ]


setup(
    ext_modules=[one for one in extensions() if all(Path(source).exists() for source in one.sources)],
    options={"bdist_wheel": {"py_limited_api": "cp312"}} if LIMITED else {},
)
