"""How often the way of a model comes back to a module that it had left: ``python -m tests.returns [MODEL ...]``.

From `load` to the plan, every call is noted that passes a model or a graph on, in the order of the run. A return is a
call into a module that was entered before and left since; a module that only walks or views (`WALKERS`) is no station.
Prints calls, modules and returns, and the modules that were come back to most.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from types import CodeType, FrameType
from typing import Any

import onnx
import onnx_ir as ir

import graft
from benchmarks.zoo import model

MODELS = ("tiny_resnet8", "distilbert", "int8_digits")
WALKERS = ("protos", "traversal", "view", "skeleton", "dimensions")
CARRIED = (onnx.ModelProto, onnx.GraphProto, ir.Model, ir.Graph)


class Way:
    """The modules that a model is passed on to, one after the other."""

    def __init__(self) -> None:
        self.modules: list[str] = []
        self._ours: dict[CodeType, str] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call."""
        if event != "call":
            return
        code = frame.f_code
        if code not in self._ours:
            name = str(frame.f_globals.get("__name__", ""))
            is_station = name.startswith("graft.") and name.rpartition(".")[2] not in WALKERS
            self._ours[code] = name if is_station else ""
        name = self._ours[code]
        if not name or frame.f_lasti > 0:  # a generator that goes on
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if any(isinstance(frame.f_locals.get(one), CARRIED) for one in names):
            self.modules.append(name.removeprefix("graft."))

    def returns(self) -> Counter[str]:
        """Return how often each module was come back to."""
        found: Counter[str] = Counter()
        seen: set[str] = set()
        before = ""
        for name in self.modules:
            if name != before and name in seen:
                found[name] += 1
            seen.add(name)
            before = name
        return found


def way_of(source: Any) -> Way:
    """Return the way of a model from `load` to its plan."""
    way = Way()
    sys.setprofile(way)
    try:
        graft.plan(source)
    finally:
        sys.setprofile(None)
    return way


def main(given: Sequence[str] | None = None) -> None:
    """Trace and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="*", default=MODELS)
    for name in parser.parse_args(given).model:
        source = model(name)
        graft.plan(source)  # what is loaded once is no part of the way
        way = way_of(source)
        found = way.returns()
        print(f"{name}: {len(way.modules)} calls, {len({*way.modules})} modules, {found.total()} returns")
        print("  " + ", ".join(f"{one} {count}" for one, count in found.most_common(8)))


if __name__ == "__main__":
    main()
