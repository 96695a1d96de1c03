"""Errors of the vector functions over **every** float32 number: ``python -m benchmarks.vector_math [NAME ...]``.

Each function runs as one kernel of the built-in compiler over all 2^32 bit patterns (over the positive half where it
is odd or even) and is compared with its float64 version, whose own error (a test has it) is a billionth of what is
measured. The unit is the distance of the exact result to the next larger float32 number. A NaN or an infinity on one
side only counts as an infinite error. Takes about a minute a function.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from multiprocessing import Pool

import numpy as np

from graft.core.machine.host import available_threads
from graft.core.machine.target import host_target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.selection.select import schedule
from graft.core.tensor_ir.arithmetic.vector_math import EXPANSIONS
from graft.core.tensor_ir.ir import Buffer, Expression, Intrinsic, Load, Stage, Variable
from graft.core.types import Type
from graft.measure.roofline_kernels import program_of_kernel
from graft.runtime.program import Program

SYMMETRIC = {"tanh", "erf", "sin", "cos", "tan", "asin", "atan", "sinh", "cosh", "asinh", "atanh"}
NAMES = tuple(name for name in EXPANSIONS if name != "pow")
CHUNK = 1 << 20
LARGE = {"sin": np.sin, "cos": np.cos, "tan": np.tan}
"""What large numbers are compared with."""
LOWEST = {"exp_nonpositive": -87.0}
"""The least argument that a function is made for."""


def kernel(name: str, dtype: str) -> Program:
    """Return the program that applies a function to `CHUNK` float32 numbers, computing in ``dtype``."""
    x, y = Buffer("x", "float32", (b.index(CHUNK),)), Buffer("y", dtype, (b.index(CHUNK),))
    place = Variable("i")
    argument: Expression = b.cast(Load(x, (place,)), dtype)
    stage = Stage(y, (place,), Intrinsic(name, (argument,), Type(dtype)))
    target = replace(host_target(), threads=1)
    function = schedule(Kernel(f"{name}_{dtype}", (x,), (y,), (stage,), Trait.ELEMENTWISE), target).function
    return program_of_kernel(function, target)


def errors(found: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Return the errors of float32 numbers in units in the last place."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        unit = np.spacing(np.minimum(np.abs(rounded), np.finfo(np.float32).max))
        result = np.abs(found.astype(np.float64) - exact) / unit
    same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    return np.where(np.isfinite(result), result, np.where(same, 0.0, np.inf))


def worst(name: str) -> tuple[str, float, float, int]:
    """Return a function's name, its largest error, where that is, and how many numbers were tried."""
    single, double = kernel(name, "float32"), kernel(name, "float64")
    most, where, count = -1.0, 0.0, 0
    for start in range(0, 1 << (31 if name in SYMMETRIC else 32), CHUNK):
        x = np.arange(start, start + CHUNK, dtype=np.uint32).view(np.float32)
        exact = double(x)
        if name in LARGE and float(x[0]) >= 2.0**29:  # the float64 version is for numbers below 2^30
            with np.errstate(invalid="ignore"):
                exact = LARGE[name](x.astype(np.float64))
        found = errors(single(x), exact)
        if name in LOWEST:
            found[~((x <= 0) & (x >= LOWEST[name]))] = 0.0
        count += CHUNK
        place = int(found.argmax())
        if found[place] > most:
            most, where = float(found[place]), float(x[place])
    return name, most, where, count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all if left out")
    names = parser.parse_args().names or NAMES
    print("| function | largest error, ulp | at | numbers |\n|---|---:|---:|---:|", flush=True)
    with Pool(min(available_threads(), len(names))) as pool:
        for name, most, where, count in pool.imap(worst, names):
            print(f"| {name} | {most:.2f} | {where:.9g} | {count:,} |", flush=True)


if __name__ == "__main__":
    main()
