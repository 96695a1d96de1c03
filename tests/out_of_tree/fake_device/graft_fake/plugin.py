"""The hooks."""

import os
from pathlib import Path

import graft
from graft.runtime.loaders import NativeLoader


@graft.hookimpl
def graft_backends():
    """Return the backend."""
    from graft_fake.backend import Fake

    return [Fake]


@graft.hookimpl
def graft_module_loaders():
    """Return the library that has the device and runs its modules."""
    return [NativeLoader("fake", library(), device="fake")]


def library():
    """Return where the library was built."""
    return Path(os.environ["GRAFT_FAKE_LIBRARY"])
