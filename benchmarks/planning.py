"""Processor time and memory of a whole plan, by stage: load, simplify, composites, annotation, and of its summary.

    python -m benchmarks.planning [--profile] [NODES ...]

Prints a Markdown table in seconds of user time, for models of mixed operators (products with biases, softmaxes,
normalisations, convolutions, layout moves, shape arithmetic) that two vendors with tables of composites and the
built-in compiler share. Each size runs in a process of its own, so that its peak of memory is its own. The stages
behind ``plan`` are parts of it; ``summary`` comes after: what reports alone read is found when they read it.
"""

from __future__ import annotations

import argparse
import cProfile
import multiprocessing
import pstats
import random
import resource
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import numpy as np

import graft
from graft.compiler import driver
from graft.core.graph.view import NodeView
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import Trait
from graft.core.reject import Reject
from graft.partition.annotate_target import AnnotateTarget
from graft.partition.merge_composite import MergeComposite
from graft.patterns import Composite, Pattern, absent, is_constant, is_op, wildcard
from graft.plugins.backend import Backend
from graft.plugins.onednn.operators import ROWS
from graft.testkit.models.net import Net

SIZES = (1_000, 10_000, 100_000)
LINEAR = is_op("MatMul")(wildcard(), is_constant().named("w")) + is_constant()
STAGES = ("load", "simplify", "composites", "annotate", "plan", "summary")


def composites(kind: str, composite: Callable[[str], Iterable[tuple[str, Pattern]]]) -> Iterator[Composite]:
    """Yield what a vendor has for each operator that one kind of its primitives computes."""
    for operator in (name for name, row in ROWS.items() if row.kind == kind):
        yield from (Composite(*one) for one in composite(operator))


def convolutions(operator: str) -> Iterator[tuple[str, Pattern]]:
    """Yield a convolution's names and patterns."""
    convolution = is_op(operator)(wildcard(), is_constant().named("w"), is_constant() | absent())
    yield "matrix.conv_add_relu", is_op("Relu")(convolution + wildcard())
    yield "matrix.conv_relu", is_op("Relu")(convolution).has_dtype("float32")
    yield "matrix.conv", convolution.has_attr(group=1)


class Matrix(Backend):
    """A vendor of products and convolutions, with a table of composites as vendors have them."""

    name = "matrix"
    patterns = (
        *composites("convolution", convolutions),
        Composite("matrix.linear_gelu", is_op("Gelu")(LINEAR)),
        Composite("matrix.linear_relu", is_op("Relu")(LINEAR).has_rank(2)),
        Composite("matrix.linear", LINEAR.optional(lambda linear: linear + wildcard())),
        Composite("matrix.swish", (x := wildcard()) * is_op("Sigmoid")(x)),
    )

    def supports(self, node: NodeView) -> bool | Reject:
        """Take products and convolutions of float32."""
        if node.op_type not in ROWS or not ROWS[node.op_type].is_product:
            return Reject("no-pattern", f"no rule for {node.op_type}")
        return node.dtype == "float32" or Reject("dtype", f"float32 only, got {node.dtype}")


class Vector(Backend):
    """A vendor of elementwise operators and normalisations."""

    name = "vector"
    patterns = (
        Composite("vector.add_norm", is_op("LayerNormalization")(wildcard() + wildcard(), ...)),
        *composites(
            "softmax",
            lambda name: [(f"vector.scaled_{name}", is_op(name)(wildcard() * is_constant()).has_attr(axis=-1))],
        ),
        Composite("vector.sum_of_three", wildcard() + wildcard() + wildcard()),
    )
    taken = frozenset({"Add", "Mul", "Relu", "Sigmoid", "LayerNormalization", "Tanh", "Gelu"})

    def supports(self, node: NodeView) -> bool | Reject:
        """Take a few operators of float32."""
        if node.op_type not in self.taken and not OPERATORS.has(node, Trait.DISTRIBUTION):
            return Reject("no-pattern", f"no rule for {node.op_type}")
        return node.dtype == "float32" or Reject("dtype", f"float32 only, got {node.dtype}")


class Drawn(Net):
    """A model that is being drawn: ``rows`` are float32[batch,16], ``images`` float32[1,4,6,6]."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 23)
        self.choices = random.Random(seed)
        weights = {
            "w": self.random.standard_normal((16, 16)), "b": self.random.standard_normal(16), "half": np.full(1, 0.5),
            "k": self.random.standard_normal((4, 4, 3, 3)), "kb": self.random.standard_normal(4),
        }  # fmt: skip
        for name, value in weights.items():
            self.constant(value, name=name)
        self.constant([0, -1], np.int64, "flat")
        self.rows = [self.input("x", "batch", 16)]
        self.images = [self.input("image", 1, 4, 6, 6)]

    def earlier(self, values: list[str]) -> str:
        """Return one of the latest values."""
        return values[-self.choices.randint(1, min(8, len(values)))]

    def block(self) -> None:
        """Add a few nodes of one kind."""
        x, image = self.rows[-1], self.images[-1]
        kinds = ("linear", "gelu", "swish", "norm", "softmax", "conv", "residual", "moves", "rest")
        match self.choices.choice(kinds):
            case "linear":
                self.rows.append(self.Relu(self.Add(self.MatMul(x, "w"), "b")))
            case "gelu":
                self.rows.append(self.Gelu(self.Add(self.MatMul(x, "w"), "b")))
            case "swish":
                self.rows.append(self.Mul(x, self.Sigmoid(x)))
            case "norm":
                self.rows.append(self.LayerNormalization(self.Add(x, self.earlier(self.rows)), "b", "b"))
            case "softmax":
                self.rows.append(self.Softmax(self.Mul(x, "half"), axis=1))
            case "conv":
                self.images.append(self.Relu(self.Conv(image, "k", "kb", pads=[1] * 4)))
            case "residual":
                sums = self.Add(self.Conv(image, "k", "kb", pads=[1] * 4), self.earlier(self.images))
                self.images.append(self.Relu(sums))
            case "moves":
                moved = self.Transpose(self.MatMul(self.Transpose(x, perm=[1, 0]), x), perm=[1, 0])
                self.rows.append(self.MatMul(x, moved))
            case _:
                self.rows.append(self.Tanh(self.Cos(self.Add(x, self.earlier(self.rows)))))


def mixed(nodes: int, seed: int = 0) -> bytes:
    """Return a model of about ``nodes`` mixed operators, serialised; its batch is open."""
    drawn = Drawn(seed)
    while len(drawn.nodes) < nodes:
        drawn.block()
    return drawn.model(drawn.rows[-1], drawn.images[-1]).SerializeToString()


def user_seconds() -> float:
    """Return the processor time that this process has spent outside the kernel."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


@contextmanager
def timed(owner: type | ModuleType, method: str, seconds: dict[str, float], stage: str) -> Iterator[None]:
    """Add the processor time of the outermost calls of a method to a stage."""
    inner = getattr(owner, method)
    deep = 0

    def counted(*arguments: object, **more: object) -> object:
        nonlocal deep
        started, deep = user_seconds(), deep + 1
        try:
            return inner(*arguments, **more)
        finally:
            deep -= 1
            if not deep:
                seconds[stage] = seconds.get(stage, 0.0) + user_seconds() - started

    setattr(owner, method, counted)
    try:
        yield
    finally:
        setattr(owner, method, inner)


def measured(path: Path) -> dict[str, float]:
    """Return the seconds of every stage of one plan of a file and of its summary, and the peaks of memory in MB."""
    backends: list[str | Backend] = [Matrix(), Vector(), "llvm"]
    graft.plan(mixed(60), backends)  # imports, and whatever is made once
    seconds: dict[str, float] = {}
    started = user_seconds()
    with (
        timed(driver, "load", seconds, "load"),
        timed(driver, "simplified", seconds, "simplify"),
        timed(MergeComposite, "run", seconds, "composites"),
        timed(AnnotateTarget, "run", seconds, "annotate"),
    ):
        plan = graft.plan(path, backends)
    seconds["plan"], seconds["MB"] = user_seconds() - started, peak_of_memory()
    started = user_seconds()
    plan.summary()
    return {**seconds, "summary": user_seconds() - started, "MB with summary": peak_of_memory()}


def peak_of_memory() -> float:
    """Return the most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def profiled(nodes: int) -> None:
    """Print where the time of one plan goes."""
    content = mixed(nodes)
    graft.plan(mixed(60), [Matrix(), Vector(), "llvm"])
    profile = cProfile.Profile()
    profile.enable()
    graft.plan(graft.load(content), [Matrix(), Vector(), "llvm"])
    profile.disable()
    pstats.Stats(profile).sort_stats("tottime").print_stats(45)
    pstats.Stats(profile).sort_stats("cumtime").print_stats(90)


def apart(nodes: int) -> dict[str, float]:
    """Return what `measured` says in a fresh process."""
    with TemporaryDirectory() as folder, multiprocessing.get_context("spawn").Pool(1) as pool:
        path = Path(folder) / "mixed.onnx"
        path.write_bytes(mixed(nodes))
        return pool.apply(measured, (path,))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nodes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--profile", action="store_true", help="print where the time goes instead")
    options = parser.parse_args()
    if options.profile:
        for nodes in options.nodes:
            profiled(nodes)
        return
    print(f"| nodes | {' | '.join(STAGES)} | MB | MB with summary |")
    print("|---:" * (len(STAGES) + 3) + "|")
    for nodes in options.nodes:
        found = apart(nodes)
        cells = " | ".join(f"{found.get(stage, 0.0):.2f}" for stage in STAGES)
        print(f"| {nodes:,} | {cells} | {found['MB']:,.0f} | {found['MB with summary']:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
