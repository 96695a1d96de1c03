"""The simulator in C, a loader of modules, built against the headers of this checkout.

A project of its own has a copy of them, as `graft plugin new --kind native` writes: an isolated build finds no Graft.
"""

from pathlib import Path

from setuptools import Extension, setup

HEADERS = Path(__file__).resolve().parents[3] / "runtime" / "native" / "include"
SIMULATOR = Extension(
    "graft_loom._simulator",
    ["graft_loom/native/loader.c", "graft_loom/native/simulator.c"],
    depends=["graft_loom/native/instructions.def", "graft_loom/native/loom.h"],
    include_dirs=[str(HEADERS), "graft_loom/native"],
    extra_compile_args=["-std=c11", "-O2", "-Wall", "-Wextra", "-fvisibility=hidden"],
    extra_link_args=["-lm"],
)
setup(ext_modules=[SIMULATOR])
