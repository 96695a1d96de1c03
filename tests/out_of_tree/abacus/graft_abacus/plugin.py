"""The hooks."""

import graft
from graft.runtime.loaders import PythonLoader
from graft_abacus.backend import Abacus
from graft_abacus.emitter import load
from graft_abacus.machine import ABACUS


@graft.hookimpl
def graft_backends():
    """Return the backend."""
    return [Abacus]


@graft.hookimpl
def graft_machines():
    """Return the machine's row."""
    return [ABACUS]


@graft.hookimpl
def graft_module_loaders():
    """Return what runs its programs."""
    return [PythonLoader("abacus", load)]
