"""The simulator in C, a loader of modules, built against the headers of the Graft that is installed."""

from setuptools import Extension, setup

from graft.runtime import include_dir

SIMULATOR = Extension(
    "graft_loom._simulator",
    ["graft_loom/native/loader.c", "graft_loom/native/simulator.c"],
    depends=["graft_loom/native/instructions.def", "graft_loom/native/loom.h"],
    include_dirs=[include_dir(), "graft_loom/native"],
    extra_compile_args=["-std=c11", "-O2", "-Wall", "-Wextra", "-fvisibility=hidden"],
    extra_link_args=["-lm"],
)
setup(ext_modules=[SIMULATOR])
