"""The hooks; they import what they give, for where a program is deployed there is no compiler."""

from importlib.resources import files

import graft


@graft.hookimpl
def graft_backends():
    """Return the backend."""
    from graft_loom.target import Loom

    return [Loom]


@graft.hookimpl
def graft_machines():
    """Return the machine's row: ``--target loom-8``."""
    from graft_loom.machine import LOOM

    return [LOOM]


@graft.hookimpl
def graft_module_loaders():
    """Return the simulator, which loads and runs the machine's programs."""
    from graft.runtime.loaders import NativeLoader

    (library,) = (one for one in files("graft_loom").iterdir() if one.name.startswith("_simulator"))
    return [NativeLoader("loom", str(library))]
