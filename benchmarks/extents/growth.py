"""How long `load` and `compile` take of families of models, each with a size: operators, symbols, ranks, bodies, ...

    python -m benchmarks.extents.growth [--stage STAGE] [--sizes 100,1000,10000] [--limit SECONDS] [FAMILY ...]

Stages are `load`, and `compile` for `reference`, for `llvm`, and by default (`compile`).

Every model is compiled in a process of its own, which is ended at the limit. Prints seconds, how they grow from one
size to the next for each ten times of it (10 is linear), and the memory at its peak.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection

import onnx
import onnx_ir  # its import is no part of what is measured

import graft
from graft.core.importer.load import load

Family = Callable[[int], str]
POOL = "MaxPool <kernel_shape = [3], strides = [2], "
assert onnx_ir


def chain(given: str, first: str, step: Callable[[int], str], rank: int, initial: str = "") -> Family:
    """Return the texts of graphs of n nodes after another, from ``v0`` on; inputs with ``#`` are there n times."""

    def family(n: int) -> str:
        body = " ".join(f"v{i} = {step(i)}" for i in range(1, n))
        inputs = ", ".join(given.replace("#", str(i)) for i in range(n)) if "#" in given else given
        return f"g ({inputs}) => (float[{','.join('?' * rank)}] v{n - 1}) {initial} {{ v0 = {first} {body} }}"

    return family


def nested(n: int) -> str:
    """Return a graph of n branches, each in the one before."""
    inner = "y{n} = Neg (x)".replace("{n}", str(n))
    for i in reversed(range(n)):
        inner = (
            f"y{i} = If (p) <then_branch = t{i} () => (float[?] y{i + 1}) {{ {inner} }}, "
            f"else_branch = e{i} () => (float[?] z{i}) {{ z{i} = Abs (x) }}>"
        )
    return f"g (bool p, float[s] x) => (float[?] y0) {{ {inner} }}"


def beside(n: int) -> str:
    """Return a graph of n loops, one after another, over states of one name."""
    loop = (
        "v{i} = Loop (k, t, v{j}) <body = b (int64 i{i}, bool c{i}, float[?] s{i}) => (bool d{i}, float[?] u{i}) "
        "{{ d{i} = Identity (c{i}) u{i} = Neg (s{i}) }}>"
    )
    body = " ".join(loop.format(i=i, j=i - 1) for i in range(1, n))
    return f"g (float[s] x) => (float[?] v{n - 1}) <int64 k = {{2}}, bool t = {{1}}> {{ v0 = Neg (x) {body} }}"


def joined(n: int) -> str:
    """Return a Concat of n inputs."""
    given = ", ".join(f"float[d{i}, e{i}] x{i}" for i in range(n))
    return f"g ({given}) => (float[?, ?] y) {{ y = Concat <axis = 0> ({', '.join(f'x{i}' for i in range(n))}) }}"


def wide(n: int) -> str:
    """Return an Add of two inputs of rank n."""
    given = ", ".join(f"float[{', '.join(f'{name}{i}' for i in range(n))}] {name}" for name in ("x", "y"))
    return f"g ({given}) => (float[{', '.join('?' * n)}] z) {{ z = Add (x, y) }}"


def factors(n: int) -> str:
    """Return an input whose last dimension is a product of n others."""
    names = [f"d{i}" for i in range(n)]
    given = ", ".join(f"float[{name}] x_{name}" for name in names)
    return f"g ({given}, float[PRODUCT] y) => (float[?] z) {{ z = Neg (y) }}"


def summands(n: int) -> str:
    """Return an input whose last dimension is a sum of n others."""
    return factors(n).replace("PRODUCT", "SUM")


def reduced(n: int) -> str:
    """Return the sum of n inputs of one dimension each."""
    given = ", ".join(f"float[d{i}] x{i}" for i in range(n))
    return f"g ({given}) => (float[?] y) {{ y = Sum ({', '.join(f'x{i}' for i in range(n))}) }}"


def shapes(n: int) -> str:
    """Return a graph of n shapes that are computed, each from the shape before."""
    body = " ".join(
        f"s{i} = Shape (v{i - 1}) t{i} = Add (s{i}, one) v{i} = Expand (zero, t{i})" for i in range(1, n // 3 + 1)
    )
    return (
        f"g (float[s] x) => (float[?] v{n // 3}) <int64[1] one = {{1}}, float[1] zero = {{0}}> "
        f"{{ v0 = Neg (x) {body} }}"
    )


def constants(n: int) -> str:
    """Return a sum of an input and n constants."""
    initial = ", ".join(f"float[4] w{i} = {{1, 2, 3, {i}}}" for i in range(n))
    return chain("float[s, 4] x", "Neg (x)", lambda i: f"Add (v{i - 1}, w{i})", 2, f"<{initial}>")(n)


FAMILIES: Mapping[str, Family] = {
    "operators": chain("float[n, c] x", "Neg (x)", lambda i: f"Neg (v{i - 1})", 2),
    "inputs": chain("float[s] x#", "Neg (x0)", lambda i: f"Add (v{i - 1}, x{i})", 1),
    "symbols": chain("float[d#] x#", "Neg (x0)", lambda i: f"Add (v{i - 1}, x{i})", 1),
    "symbols of rank 3": chain("float[d#, e#, f#] x#", "Neg (x0)", lambda i: f"Add (v{i - 1}, x{i})", 3),
    "where": chain("float[d#] x#, bool[e#] c#", "Neg (x0)", lambda i: f"Where (c{i}, v{i - 1}, x{i})", 1),
    "where of one name": chain("bool[e#] c#", "Cast <to = 1> (c0)", lambda i: f"Where (c{i}, v{i - 1}, v0)", 1),
    "sum": reduced,
    "concat": joined,
    "concat chain": chain("float[s] x", "Neg (x)", lambda i: f"Concat <axis = 0> (v{i - 1}, x)", 1),
    "concat doubled": chain("float[s] x", "Neg (x)", lambda i: f"Concat <axis = 0> (v{i - 1}, v{i - 1})", 1),
    "concat of names": chain("float[d#] x#", "Neg (x0)", lambda i: f"Concat <axis = 0> (v{i - 1}, x{i})", 1),
    "products": chain("float[d#, e#] x#", "Neg (x0)", lambda i: f"MatMul (v{i - 1}, x{i})", 2),
    "pools": chain("float[1, 1, h] x", "Neg (x)", lambda i: f"{POOL}pads = [1, 1]> (v{i - 1})", 3),
    "pools ceil": chain("float[1, 1, h] x", "Neg (x)", lambda i: f"{POOL}ceil_mode = 1, pads = [1, 1]> (v{i - 1})", 3),
    "pools of stride 1": chain(
        "float[1, 1, h] x", "Neg (x)", lambda i: f"MaxPool <kernel_shape = [3], ceil_mode = 1> (v{i - 1})", 3
    ),
    "reshapes": chain(
        "float[n, 4, h] x", "Neg (x)", lambda i: f"Reshape (v{i - 1}, {'ab'[i % 2]})", 3,
        "<int64[3] a = {-1, 2, 8}, int64[3] b = {-1, 4, 4}>",
    ),
    "views": chain(
        "float[n, 4, h] x", "Reshape (x, a)", lambda i: f"Reshape (v{i - 1}, {'ab'[i % 2]})", 3,
        "<int64[3] a = {0, -1, 2}, int64[3] b = {0, 4, -1}>",
    ),
    "slices": chain(
        "float[s] x", "Neg (x)", lambda i: f"Slice (v{i - 1}, a, e)", 1, "<int64[1] a = {1}, int64[1] e = {-1}>"
    ),
    "slices to a number": chain(
        "float[s] x", "Neg (x)", lambda i: f"Slice (v{i - 1}, a, e)", 1, "<int64[1] a = {0}, int64[1] e = {500}>"
    ),
    "slices by steps": chain(
        "float[s] x", "Neg (x)", lambda i: f"Slice (v{i - 1}, a, e, z, w)", 1,
        "<int64[1] a = {1}, int64[1] e = {9000}, int64[1] z = {0}, int64[1] w = {2}>",
    ),
    "pads": chain("float[s] x", "Neg (x)", lambda i: f"Pad (v{i - 1}, a)", 1, "<int64[2] a = {1, 2}>"),
    "tiles": chain("float[s] x", "Neg (x)", lambda i: f"Tile (v{i - 1}, a)", 1, "<int64[1] a = {2}>"),
    "gathers": chain("int64[d#] j#", "Cast <to = 1> (j0)", lambda i: f"Gather (v{i - 1}, j{i})", 1),
    "shapes": shapes,
    "constants": constants,
    "ranks": wide,
    "nesting": nested,
    "bodies": beside,
    "factors": factors,
    "summands": summands,
}  # fmt: skip


def model_of(family: str, n: int) -> onnx.ModelProto:
    """Return a model of a family; texts of dimensions that are expressions are put in, for the parser takes names."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> {FAMILIES[family](n)}')
    dimensions = [one for value in model.graph.input for one in value.type.tensor_type.shape.dim]
    for dimension in dimensions:
        sign = {"PRODUCT": "*", "SUM": " + "}.get(dimension.dim_param)
        if sign is not None:
            dimension.dim_param = sign.join(one.dim_param for one in dimensions if one is not dimension)
    return model


def stages() -> Mapping[str, Callable[[onnx.ModelProto], object]]:
    """Return what is measured, by name."""
    return {
        "load": load,
        "reference": lambda model: graft.compile(model, ["reference"]),
        "llvm": lambda model: graft.compile(model, ["llvm", "reference"]),
        "compile": graft.compile,
    }


def measured(family: str, n: int, stage: str, sender: Connection) -> None:
    """Send the seconds and the MiB at the peak of one stage of one model."""
    model = model_of(family, n)
    started = time.process_time()
    try:
        stages()[stage](model)
    except graft.errors.GraftError as error:
        sender.send((time.process_time() - started, 0, str(error)[:100]))
        return
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    sender.send((time.process_time() - started, peak, ""))


def result_of(family: str, n: int, stage: str, limit: float) -> tuple[float, int, str]:
    """Return what `measured` sends, or that it took longer than the limit."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=measured, args=(family, n, stage, sender))
    process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(limit) else (limit, 0, "not finished")  # type: ignore[no-any-return]
    except EOFError:
        return 0.0, 0, "ended without an answer"
    finally:
        process.kill()
        process.join()


def main(given: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", nargs="*", default=[*FAMILIES])
    parser.add_argument("--stage", choices=[*stages()], default="load")
    parser.add_argument("--sizes", default="100,1000,10000")
    parser.add_argument("--limit", type=float, default=60)
    asked = parser.parse_args(given)
    for family in asked.family:
        shown, before = [], 0.0
        for n in map(int, asked.sizes.split(",")):
            seconds, peak, problem = result_of(family, n, asked.stage, asked.limit)
            ratio = f" x{seconds / before:.1f}" if before else ""
            shown.append(f"{n}: {problem or f'{seconds:.2f} s{ratio}, {peak} MiB'}")
            before = seconds
            if problem:
                break
        print(f"{family:22} {' | '.join(shown)}", flush=True)


if __name__ == "__main__":
    main()
