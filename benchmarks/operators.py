"""Operators that memory limits, against other runtimes: ``python -m benchmarks.operators [--threads N] [--seconds S]``.

Every row is one small model. Ours and the peers' run in turns in one process, as in `benchmarks.peers`; the peers are
ONNX Runtime and, where it is installed, OpenVINO. GB/s counts what must at least be read and written; the heading says
what the machine's memory gives. *of best* is our time by that of the fastest peer.
"""

from __future__ import annotations

import argparse

import numpy as np
import onnx

import graft
from graft.core.machine.target import host_target
from graft.core.model.load import load
from graft.core.model.sample_inputs import sample_inputs
from graft.measure.latency import measure, program_run
from graft.measure.peers.peer_table import installed, peer
from graft.measure.roofline_kernels import read_bandwidth

CHAIN = "a = Mul(x, x) b = Add(a, x) c = Relu(b) d = Mul(c, x) e = Sub(d, a) f = Abs(e) y = Sqrt(f)"
CASES = {
    "matrix-vector 4096x4096": "float[1,4096] x, float[4096,4096] w) => (float[1,4096] y) { y = MatMul(x, w) }",
    "softmax 12x128x128": "float[12,128,128] x) => (float[12,128,128] y) { y = Softmax<axis=-1>(x) }",
    "softmax 1024x1024": "float[1024,1024] x) => (float[1024,1024] y) { y = Softmax<axis=-1>(x) }",
    "layernorm 128x768": "float[128,768] x, float[768] s, float[768] b) => (float[128,768] y) "
    "{ y = LayerNormalization<axis=-1>(x, s, b) }",
    "chain of 7, a million": f"float[1000000] x) => (float[1000000] y) {{ {CHAIN} }}",
    "tanh, a million": "float[1000000] x) => (float[1000000] y) { y = Tanh(x) }",
    "gelu 128x3072": "float[128,3072] x) => (float[128,3072] y) { y = Gelu(x) }",
    "transpose 2048x2048": "float[2048,2048] x) => (float[2048,2048] y) { y = Transpose<perm=[1, 0]>(x) }",
    "transpose heads": "float[1,128,12,64] x) => (float[1,12,128,64] y) { y = Transpose<perm=[0, 2, 1, 3]>(x) }",
    "sum of rows 4096x4096": "float[4096,4096] x) => (float[4096,1] y) <int64[1] a = {1}> { y = ReduceSum(x, a) }",
    "mean of columns 4096x4096": "float[4096,4096] x) => (float[1,4096] y) <int64[1] a = {0}> { y = ReduceMean(x, a) }",
}


def model_of(text: str) -> onnx.ModelProto:
    """Return a model of a text; inputs after the first become random constants."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g ({text}')
    random = np.random.default_rng(0)
    for value in model.graph.input[1:]:
        shape = [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
        array = random.standard_normal(shape, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
    del model.graph.input[1:]
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    print(f"reading memory: {read_bandwidth(1 << 28, host_target()) / 1e9:.0f} GB/s; {options.threads} thread(s)\n")
    peers = [name for name in ("onnxruntime", "openvino") if installed(name)]
    print(f"| operator | µs | GB/s |{''.join(f' {name} µs |' for name in peers)} of best |")
    print("|---|---:|---:|" + "---:|" * (len(peers) + 1))
    for name, text in CASES.items():
        source = load(model_of(text))
        feeds = sample_inputs(source)
        program = graft.compile(source, ["llvm"], threads=options.threads)
        runs = {"graft": program_run(program, feeds)}
        runs |= {name: peer(name, source, feeds, options.threads) for name in peers}
        ours, *theirs = measure(runs, options.seconds, minimum=30)
        constants = [value.const_value for value in source.graph.initializers.values() if value.const_value is not None]
        outputs = program.run(feeds).values()
        moved = sum(one.nbytes for one in (*feeds.values(), *map(np.asarray, outputs), *constants))
        gigabytes = moved / ours.median_ms / 1e6
        best = min(theirs, key=lambda one: one.median_ms)
        times = "".join(f" {1e3 * one.median_ms:.0f} |" for one in theirs)
        print(f"| {name} | {1e3 * ours.median_ms:.0f} | {gigabytes:.1f} |{times} {best.ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
