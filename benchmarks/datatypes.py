"""Custom datatypes beside SoftPosit's C library called for every scalar, in turns, on one thread.

    python -m benchmarks.datatypes [--folder DIR] [--models digits,light_resnet50] [--scalar] [--quire] [--threads N]

Needs a C compiler and, once, PyPI (see `benchmarks.data.softposit`). ``--scalar`` also runs the models by scalar calls:
seconds for digits, minutes for light_resnet50.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

import graft
from benchmarks.data.softposit import SoftPosit
from benchmarks.peers import best_turns
from benchmarks.zoo import model
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import Trait
from graft.core.shapes.sample_inputs import sample_inputs
from graft.core.types import storage_dtype
from graft.datatypes.arrays import encode
from graft.datatypes.conversion import convert
from graft.datatypes.lowering import create_lower_func
from graft.datatypes.shipped import DATATYPES

SIZE = 1 << 16
CASES = (
    ("posit8", "custom[posit]8", "posit8"),
    ("posit8, es = 0", "custom[posit_es0]8", "own8"),
    ("posit16", "custom[posit]16", "posit16"),
    ("posit16, es = 1", "custom[posit_es1]16", "own16"),
    ("posit32", "custom[posit]32", "posit32"),
)


def elementwise(operation: str, dtype: str, size: int = SIZE) -> onnx.ModelProto:
    """Return a model of one operation on arrays of storage bits."""
    storage = helper.np_dtype_to_tensor_dtype(np.dtype(storage_dtype(dtype)))

    def typed(name: str) -> onnx.ValueInfoProto:
        value = helper.make_tensor_value_info(name, storage, [size])
        value.type.denotation = dtype
        return value

    node = helper.make_node(operation, ["x", "y"], ["z"], domain="graft.custom")
    graph = helper.make_graph([node], "operation", [typed("x"), typed("y")], [typed("z")])
    versions = [helper.make_opsetid("", 21), helper.make_opsetid("graft.custom", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)


def operands(dtype: str, normal: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays of codes: standard normal numbers, or any bits (every exponent and sign, hard to predict)."""
    random = np.random.default_rng(0)
    if normal:
        x, y = encode(random.standard_normal((2, SIZE)), dtype)
    else:
        storage = np.dtype(storage_dtype(dtype))
        x, y = random.integers(0, 1 << storage.itemsize * 8, (2, SIZE), dtype=np.uint64).astype(storage)
    return x, y


def operations(peer: SoftPosit) -> None:
    """Print the throughput of add and mul; every result is compared with the library's."""
    print("| type | operation | operands | graft Mops/s | SoftPosit Mops/s | ratio | different results |")
    print("|---|---|---|---:|---:|---:|---:|")
    for title, dtype, prefix in CASES:
        for operation, kind in product(("Add", "Mul"), ("normal", "any bits")):
            x, y = operands(dtype, kind == "normal")
            program = graft.compile(elementwise(operation, dtype), ["llvm"], threads=1)
            theirs = np.empty_like(x)
            scalar = partial(peer.each, f"{prefix}_{operation.lower()}", x, y, theirs)
            ours, other = best_turns([partial(program, x, y), scalar])
            different = int(np.count_nonzero(program(x, y) != theirs))
            rates = f"{SIZE / ours / 1e6:.0f} | {SIZE / other / 1e6:.0f} | {other / ours:.1f}"
            print(f"| {title} | {operation.lower()} | {kind} | {rates} | {different} |", flush=True)


def register_scalar(peer: SoftPosit) -> None:
    """Register SoftPosit's posit16 as a datatype of its own, by C symbols: what a convolutional network needs."""
    DATATYPES.register("softposit", widths=(16,))
    library = str(peer.path)
    for operation, symbol in {"Add": "add", "Mul": "mul", "Div": "div", "LT": "less", "Lowest": "lowest"}.items():
        lowering = create_lower_func({16: f"posit16_{symbol}"}, library)
        DATATYPES.register_op(lowering, operation, "llvm", "softposit")
    to_posit = create_lower_func({(32, 16): "posit16_from_float"}, library)
    to_float = create_lower_func({(16, 32): "posit16_to_float"}, library)
    DATATYPES.register_op(to_posit, "Cast", "llvm", "softposit", "float32")
    DATATYPES.register_op(to_float, "Cast", "llvm", "float32", "softposit")


def network(name: str, threads: int, scalar: bool, quire: bool) -> None:
    """Print the time of a model in every form, and whether scalar calls give the same bits."""
    source = model(name)
    feeds = sample_inputs(source)
    # SoftPosit has no exponential: beside it, a Softmax stays in float32 in every form.
    rows = {node.op_type: OPERATORS.get(node.op_type, node.domain) for node in source.graph}
    keep = [kind for kind, row in rows.items() if scalar and row is not None and Trait.DISTRIBUTION in row.traits]
    form_of = partial(convert, source, keep=keep)
    forms = {
        "float32": source,
        "posit16, each operation rounded": form_of("custom[posit]16"),
        "posit16, sums in float32": form_of("custom[posit]16", accumulate="float32"),
        "posit8, each operation rounded": form_of("custom[posit]8"),
        "bfloat16, each operation rounded": form_of("custom[bfloat]16"),
    }
    if quire:
        forms["posit16, quire"] = form_of("custom[posit]16", accumulate="quire")
    if scalar:
        forms["posit16 by SoftPosit's scalars"] = form_of("custom[softposit]16")
    results, base = {}, 0.0
    for title, form in forms.items():
        started = time.perf_counter()
        program = graft.compile(form, ["llvm", "reference"], threads=threads)
        compiled = time.perf_counter() - started
        run: Callable[[], dict[str, np.ndarray]] = partial(program.run, feeds)
        results[title] = next(iter(run().values()))
        best = min(_timed(run) for _ in range(1 if "scalars" in title else 3))
        base = base or best
        print(f"| {name} | {title} | {best * 1e3:.1f} | {best / base:.1f} | {compiled:.1f} |", flush=True)
    if scalar:
        same = np.array_equal(
            *(results[f"posit16{form}"] for form in (", each operation rounded", " by SoftPosit's scalars"))
        )
        print(f"\n{name}: vectors and scalar calls give {'the same' if same else 'DIFFERENT'} bits\n")


def _timed(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where SoftPosit is built and kept; a temporary one by default")
    parser.add_argument("--models", default="digits")
    parser.add_argument("--scalar", action="store_true", help="run the models by scalar calls too")
    parser.add_argument("--quire", action="store_true", help="run the models with exact sums too")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        peer = SoftPosit(folder)
        operations(peer)
        if options.scalar:
            register_scalar(peer)
        print(f"\n| model, {options.threads} thread(s) | form | ms | / float32 | compile s |\n|---|---|---:|---:|---:|")
        for name in options.models.split(","):
            network(name, options.threads, options.scalar, options.quire)


if __name__ == "__main__":
    main()
