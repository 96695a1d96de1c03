"""``python -m tests.testkit.vendor_environment LOCK``: make the environment of a lock file, print its interpreter."""

from __future__ import annotations

import sys

from graft.runtime.isolation.environments import interpreter
from graft.runtime.isolation.options import Isolation

if __name__ == "__main__":
    print(interpreter(Isolation(requirements=sys.argv[1:], install=True)))
