"""Where the library is: in this package, and once it is open, everywhere in the process by its name."""

import ctypes
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

SONAME = "libpebble.so.1"
FOLDER = Path(__file__).parent


@cache
def opened():
    """Open the library, and return what is wrong if that fails, else None.

    Programs name a library by its soname: the system finds one that is open under it, and otherwise looks where it
    looks for all. So a program is not tied to the place of this package; a C program links with the library.
    """
    paths = [path for suffix in EXTENSION_SUFFIXES if (path := FOLDER / f"_library{suffix}").exists()]
    if not paths:
        return f"{FOLDER} has no built library; pip install graft-pebble"
    try:
        ctypes.CDLL(str(paths[0]))
    except OSError as error:
        return str(error)
    return None
