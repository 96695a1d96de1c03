"""The cost of a call: a program of one trivial node beside the same model in ONNX Runtime, in turns.

The node (Relu of one element) takes nanoseconds, so what is measured is the way in and out: checking and wrapping the
arrays, finding memory, and calling the function. Run: python -m benchmarks.call_overhead
"""

from __future__ import annotations

import argparse
import struct
from collections.abc import Callable
from time import perf_counter

import numpy as np

from graft.runtime.procedure import Call, Module, Procedure, ProgramDescription, TensorSpec
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


def one_node_program() -> Program:
    """Return a program y = x for one float32 element."""
    import platform

    machine = 62 if platform.machine() == "x86_64" else 183
    tensors = (
        TensorSpec("x", "float32", (1,), "input", index=0),
        TensorSpec("y", "float32", (1,), "output", index=0),
    )
    call = Call("call", (0,), (1,), module=0, function="copy", origin=("copy",))
    procedure = Procedure("main", tensors, (0,), (1,), (call,))
    module = Module("m", "native", ("copy",), image(machine))
    return Program.from_description(ProgramDescription((procedure,), (module,), {}), threads=1)


def onnxruntime_session() -> Callable[[np.ndarray], object]:
    """Return a call of the same in ONNX Runtime (a Relu: ONNX Runtime removes an Identity)."""
    import onnxruntime
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "one", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
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
    array = np.ones(1, np.float32)
    program = one_node_program()
    contestants = {
        "graft, program(x)": program,
        "graft, program.run({'x': x})": lambda array: program.run({"x": array}),
        "onnxruntime, session.run(None, {'x': x})": onnxruntime_session(),
    }
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, function in contestants.items():
            times[name].append(nanoseconds(function, array, calls))
    return times


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


if __name__ == "__main__":
    main()
