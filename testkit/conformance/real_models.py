"""Level 6: whole networks, the plugin beside `llvm`: those of the onnx package, and the vendor's own."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import onnx
from onnx import numpy_helper

from graft.testkit.conformance.cases.outcome import Case, Trial
from graft.testkit.conformance.kit import REFERENCE, Kit


def subjects(kit: Kit) -> list[str]:
    """Return the networks."""
    return [path.stem.removeprefix("light_") for path in _paths()]


def cases(kit: Kit, subject: str) -> Iterator[Case]:
    """Give the network."""
    yield Case(f"6/{subject}/whole", partial(_attempt, kit, subject))


def _paths() -> list[Path]:
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return sorted(folder.glob("light_*.onnx"))


def _attempt(kit: Kit, name: str) -> None:
    """Run a network on the ramp that ONNX's runner feeds it; its outputs stand beside it."""
    from onnx.backend.test.runner import Runner

    (path,) = (one for one in _paths() if one.stem == f"light_{name}")
    proto = onnx.load(path)
    constants = {tensor.name for tensor in proto.graph.initializer}
    feeds = {
        value.name: Runner.generate_dummy_data(value) for value in proto.graph.input if value.name not in constants
    }
    expected = {
        value.name: numpy_helper.to_array(
            onnx.TensorProto.FromString(path.with_name(f"{path.stem}_output_{number}.pb").read_bytes())
        )
        for number, value in enumerate(proto.graph.output)
    }
    kit.attempt(Trial(proto, feeds, expected, 1e-3, 1e-4), tuple(dict.fromkeys(("llvm", REFERENCE))))
