"""SoftPosit's C library, built from the sources that PyPI has: the peer of `benchmarks.datatypes`.

Per width there are wrappers that take and give storage bits, as a datatype's C functions do, and loops over arrays that
call them one by one.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np

PACKAGE = "softposit==0.3.4.4"
WRAPPERS = """
#include <stddef.h>
#include "platform.h"
#include "internals.h"
#include "softposit.h"

/* es = 2: the functions for posits of any width, which stand in a word's upper bits. */
#define ANY(BITS, WORD)                                                                   \\
    static posit_2_t from_##BITS(WORD x) {                                                \\
        union ui32_pX2 u; u.ui = (uint32_t)x << (32 - BITS); return u.p; }                \\
    static WORD to_##BITS(posit_2_t x) {                                                  \\
        union ui32_pX2 u; u.p = x; return (WORD)(u.ui >> (32 - BITS)); }                  \\
    WORD posit##BITS##_add(WORD x, WORD y) {                                              \\
        return to_##BITS(pX2_add(from_##BITS(x), from_##BITS(y), BITS)); }                \\
    WORD posit##BITS##_mul(WORD x, WORD y) {                                              \\
        return to_##BITS(pX2_mul(from_##BITS(x), from_##BITS(y), BITS)); }                \\
    WORD posit##BITS##_div(WORD x, WORD y) {                                              \\
        return to_##BITS(pX2_div(from_##BITS(x), from_##BITS(y), BITS)); }                \\
    WORD posit##BITS##_from_float(float x) { return to_##BITS(convertDoubleToPX2(x, BITS)); }   \\
    float posit##BITS##_to_float(WORD x) { return (float)convertPX2ToDouble(from_##BITS(x)); }  \\
    uint8_t posit##BITS##_less(WORD x, WORD y) {                                          \\
        return (int32_t)((uint32_t)x << (32 - BITS)) < (int32_t)((uint32_t)y << (32 - BITS)); } \\
    WORD posit##BITS##_lowest(void) { return (WORD)(((WORD)1 << (BITS - 1)) | 1); }
ANY(8, uint8_t)
ANY(16, uint16_t)

/* The library's own 8, 16 and 32 bits: es = 0, 1 and 2. */
#define OWN(NAME, SHORT, UNION, WORD)                                                     \\
    WORD NAME##_add(WORD x, WORD y) {                                                     \\
        union UNION a, b; a.ui = x; b.ui = y; a.p = SHORT##_add(a.p, b.p); return a.ui; } \\
    WORD NAME##_mul(WORD x, WORD y) {                                                     \\
        union UNION a, b; a.ui = x; b.ui = y; a.p = SHORT##_mul(a.p, b.p); return a.ui; }
OWN(own8, p8, ui8_p8, uint8_t)
OWN(own16, p16, ui16_p16, uint16_t)
OWN(posit32, p32, ui32_p32, uint32_t)

#define LOOP(NAME, WORD)                                                                  \\
    void NAME##_loop(const WORD *x, const WORD *y, WORD *z, size_t n) {                   \\
        for (size_t i = 0; i < n; i++) z[i] = NAME(x[i], y[i]); }
#define LOOPS(NAME, WORD) LOOP(NAME##_add, WORD) LOOP(NAME##_mul, WORD)
LOOPS(posit8, uint8_t) LOOPS(posit16, uint16_t) LOOPS(posit32, uint32_t) LOOPS(own8, uint8_t) LOOPS(own16, uint16_t)
"""


def build(folder: Path) -> Path:
    """Download the sources, compile them with the C compiler's best optimisation, and return the shared library."""
    library = folder / "libsoftposit.so"
    if library.exists():
        return library
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-binary",
        ":all:",
        "--no-build-isolation",
    ]
    subprocess.run([*pip, PACKAGE, "--dest", str(folder)], check=True)
    with tarfile.open(next(folder.glob("softposit-*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    root = next(folder.glob("softposit-*/SoftPosit-master"))
    wrappers = folder / "wrappers.c"
    wrappers.write_text(WRAPPERS, encoding="utf-8")
    include = [f"-I{root / 'source' / 'include'}", f"-I{root / 'build' / 'Linux-x86_64-GCC'}"]
    sources = [wrappers, *sorted((root / "source").glob("*.c"))]
    flags = ["-O3", "-march=native", "-flto", "-shared", "-fPIC", "-w"]
    subprocess.run(["cc", *flags, *include, *map(str, sources), "-lm", "-o", str(library)], check=True)
    return library


class SoftPosit:
    """The library's loops over arrays of storage bits."""

    def __init__(self, folder: Path) -> None:
        self.path = build(folder)
        self._library = ctypes.CDLL(str(self.path))

    def each(self, name: str, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> None:
        """Call a function (``posit16_add``) for every pair of elements, from C."""
        getattr(self._library, f"{name}_loop")(
            ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_void_p(z.ctypes.data),
            ctypes.c_size_t(x.size),
        )  # fmt: skip
