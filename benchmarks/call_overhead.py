"""The cost of a call: a program of one trivial node beside the same model in ONNX Runtime, in turns.

The node (Relu of one element) takes nanoseconds, so what is measured is the way in and out: checking and wrapping the
arrays, finding memory, and calling the function. With symbols in its shape it binds them besides; what planning the
memory of a new shape costs is measured by a chain of many such nodes. Run: python -m benchmarks.call_overhead
"""

from __future__ import annotations

import argparse
import struct
from collections.abc import Callable
from time import perf_counter

import numpy as np

from graft.runtime.extents import Extent, Symbol
from graft.runtime.procedure import Call, Module, Procedure, ProgramDescription, SymbolSpec, TensorSpec
from graft.runtime.program import Program

# f(context, state, inputs, outputs): *outputs[0] = *inputs[0] as float32; return 0 -- for x86-64 and aarch64
CODE = {
    62: bytes.fromhex("488b01 488b00 488b12 488b12 8b12 8910 31c0 c3"),
    183: bytes.fromhex("640040f9 840040f9 450040f9 a50040f9 a50040b9 850000b9 00008052 c0035fd6"),
}


def image(machine: int) -> bytes:
    """Return a native image with the function ``copy``."""
    header = struct.pack("<8sIIQQQQ", b"GRAFTIMG", 1, machine, 4096, 4096, 4096, 1)
    symbol = struct.pack("<QQQ", 0, 72, 4)
    return (header + symbol + b"copy").ljust(4096, b"\0") + CODE[machine].ljust(4096, b"\0")


def program_of(tensors: list[TensorSpec], length: int, symbols: int) -> Program:
    """Return a program of ``length`` nodes, from tensor to tensor."""
    import platform

    machine = 62 if platform.machine() == "x86_64" else 183
    calls = tuple(Call("call", (i,), (i + 1,), module=0, function="copy", origin=("copy",)) for i in range(length))
    specs = tuple(SymbolSpec(f"s{i}", 0, 1 << 20, 0, i) for i in range(symbols))
    procedure = Procedure("main", tuple(tensors), (0,), (length,), calls, symbols=specs)
    module = Module("m", "native", ("copy",), image(machine))
    return Program.from_description(ProgramDescription((procedure,), (module,), {}), threads=1)


def one_node_program(rank: int = 1, symbols: int = 0) -> Program:
    """Return a program y = x for one float32 element, the first axes of which are symbols."""
    shape: tuple[Extent, ...] = (*(Symbol(f"s{i}") for i in range(symbols)), *(1,) * (rank - symbols))
    tensors = [
        TensorSpec("x", "float32", shape, "input", index=0),
        TensorSpec("y", "float32", shape, "output", index=0),
    ]
    return program_of(tensors, 1, symbols)


def chain_program(length: int) -> Program:
    """Return a program of many nodes on float32[s0, k], where k has a few values."""
    row = [
        TensorSpec(f"t{i}", "float32", (Symbol("s0"), (64, 256, 1024)[i % 3]), "arena") for i in range(1, length)
    ]  # fmt: skip
    x = TensorSpec("x", "float32", (Symbol("s0"), 64), "input", index=0)
    return program_of([x, *row, TensorSpec("y", "float32", (Symbol("s0"), 64), "output", index=0)], length, 1)


def onnxruntime_session() -> Callable[[np.ndarray], object]:
    """Return a call of the same in ONNX Runtime (a Relu: ONNX Runtime removes an Identity)."""
    import onnxruntime

    from graft.testkit.models.net import Net

    net = Net(opset=20)
    model = net.model(net.Relu(net.input("x", 1)))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda array: session.run(None, {"x": array})


def nanoseconds(function: Callable[[np.ndarray], object], array: np.ndarray, calls: int) -> float:
    """Return the mean time of one call."""
    start = perf_counter()
    for _ in range(calls):
        function(array)
    return (perf_counter() - start) / calls * 1e9


def measure(rounds: int = 50, calls: int = 2000) -> dict[str, list[float]]:
    """Return the nanoseconds per call of each contestant, one figure a round, taken in turns."""
    program = one_node_program()
    contestants = {
        "graft, program(x)": program,
        "graft, program.run({'x': x})": lambda array: program.run({"x": array}),
        "onnxruntime, session.run(None, {'x': x})": onnxruntime_session(),
    }
    contestants |= {
        f"graft, {symbols} symbols of {rank} axes": one_node_program(rank, symbols)
        for rank, symbols in ((4, 0), (1, 1), (4, 1), (4, 4))
    }
    times: dict[str, list[float]] = {name: [] for name in contestants}
    arrays = {name: np.ones((1,) * (4 if "4 axes" in name else 1), np.float32) for name in contestants}
    for _ in range(rounds):
        for name, function in contestants.items():
            times[name].append(nanoseconds(function, arrays[name], calls))
    return times


def planning(length: int, rounds: int = 20) -> tuple[float, float]:
    """Return the median microseconds of a call with a new shape, and of one with the same shape as before."""
    program = chain_program(length)
    new, same = [], []
    program(np.ones((64, 64), np.float32))  # the largest: its arena serves all
    for number in range(rounds):
        array = np.ones((63 - number, 64), np.float32)
        new.append(nanoseconds(program, array, 1))
        same.append(min(nanoseconds(program, array, 1) for _ in range(5)))
    return float(np.median(new)) / 1000, float(np.median(same)) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--calls", type=int, default=2000)
    arguments = parser.parse_args()
    times = measure(arguments.rounds, arguments.calls)
    peer = np.array(times["onnxruntime, session.run(None, {'x': x})"])
    print(f"{'call':45} {'median ns':>10} {'min ns':>8} {'of onnxruntime':>15}")
    for name, values in times.items():
        ratio = float(np.median(np.array(values) / peer))
        print(f"{name:45} {np.median(values):10.0f} {min(values):8.0f} {ratio:15.2f}")
    for length in (50, 500, 1500):
        new, same = planning(length)
        print(f"{length} nodes: a new shape {new:.0f} us, the same again {same:.0f} us")


if __name__ == "__main__":
    main()
