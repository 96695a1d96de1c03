"""The library, built with the distribution: a shared library like any other, which happens to lie in a package."""

from setuptools import Extension, setup

SONAME = "libpebble.so.1"
LIBRARY = Extension(
    "graft_pebble._library",
    ["graft_pebble/native/pebble.c"],
    extra_compile_args=["-std=c11", "-O3", "-Wall", "-Wextra"],
    extra_link_args=[f"-Wl,-soname,{SONAME}", "-lm"],
)
setup(ext_modules=[LIBRARY])
