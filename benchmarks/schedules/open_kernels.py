"""Operators of open extents beside the same of one size: ``python -m benchmarks.schedules.open_kernels [--threads N]``.

Programs of symbols, of numbers, and ONNX Runtime run in turns; an axis of the cases with a letter is a symbol.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence
from functools import partial

import numpy as np
import onnx
import onnxruntime
from onnx import parser

import graft
from benchmarks.peers import best_turns

CASES = {
    "product": "a m:128,k:128; b k,n:128 : y = MatMul(a, b)",
    "products of a batch": "a b:8,m:128,64; c b,64,n:128 : y = MatMul(a, c)",
    "scores by Einsum": 'q b:2,m:128,8,32; k b,n:128,8,32 : y = Einsum<equation="bihd,bjhd->bhij">(q, k)',
    "scores of one query": 'q b:8,m:1,64; k b,n:333,64 : y = Einsum<equation="bid,bjd->bij">(q, k)',
    "similarities": 'a m:300,1024; c n:500,1024 : y = Einsum<equation="id,jd->ij">(a, c)',
    "Gemm, transposed": "a m:200,64; c n:300,64 : y = Gemm<transB=1>(a, c)",
    "MaxPool": "x b:1,64,h:56,w:56 : y = MaxPool<kernel_shape=[3,3],strides=[2,2],pads=[1,1,1,1]>(x)",
    "AveragePool": "x b:1,64,h:56,w:56 : y = AveragePool<kernel_shape=[3,3],pads=[1,1,1,1]>(x)",
    "AveragePool of 448": "x b:1,64,h:56,w:448 : y = AveragePool<kernel_shape=[3,3],pads=[1,1,1,1]>(x)",
    "Resize, linear": (
        'x b:1,32,h:56,w:56 : s = Constant<value_floats=[1.0,1.0,2.0,2.0]>() y = Resize<mode="linear">(x, , s)'
    ),
    "Resize, linear, 1.5": (
        'x b:1,32,h:56,w:56 : s = Constant<value_floats=[1.0,1.0,1.5,1.5]>() y = Resize<mode="linear">(x, , s)'
    ),
    "Resize, cubic": (
        'x b:1,32,h:56,w:56 : s = Constant<value_floats=[1.0,1.0,2.0,2.0]>() y = Resize<mode="cubic">(x, , s)'
    ),
    "Pad by a mirror": (
        'x b:1,32,h:56,w:56 : p = Constant<value_ints=[0,0,1,1,0,0,1,1]>() y = Pad<mode="reflect">(x, p)'
    ),
    "Pad by edges": ('x b:1,32,h:56,w:56 : p = Constant<value_ints=[0,0,2,2,0,0,2,2]>() y = Pad<mode="edge">(x, p)'),
    "DepthToSpace": "x b:1,64,h:56,w:56 : y = DepthToSpace<blocksize=2>(x)",
    "Softmax": "x b:8,l:128,m:128 : y = Softmax<axis=-1>(x)",
    "Softmax of a middle axis": "x b:8,l:128,m:128 : y = Softmax<axis=1>(x)",
    "Transpose": "x b:8,l:128,d:256 : y = Transpose<perm=[0,2,1]>(x)",
    "Concat": "x b:8,l:64,256; z b,m:64,256 : y = Concat<axis=1>(x, z)",
    "CumSum": "x b:8,l:128,d:256 : a = Constant<value_int=1>() y = CumSum(x, a)",
}
"""Inputs with their axes, and what is computed of them; ``m:128`` is a symbol and its number where both run."""


def models(text: str) -> tuple[onnx.ModelProto, onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a case as a model of symbols and as one of numbers, and inputs of both."""
    declared, body = text.split(" : ")
    numbers = dict(re.findall(r"(\w+):(\d+)", declared))
    random, feeds = np.random.default_rng(0), dict[str, np.ndarray]()
    forms: tuple[list[str], list[str]] = ([], [])
    for name, shape in (one.split() for one in declared.split(";")):
        symbols = [axis.partition(":")[0] for axis in shape.split(",")]
        extents = [int(numbers.get(axis, axis)) for axis in symbols]
        feeds[name] = random.standard_normal(extents).astype(np.float32)
        forms[0].append(f"float[{','.join(symbols)}] {name}")
        forms[1].append(f"float[{','.join(map(str, extents))}] {name}")
    made = []
    for inputs in forms:
        header = f'<ir_version: 10, opset_import: ["": 20]> g ({", ".join(inputs)}) => (float[] y)'
        model = parser.parse_model(f"{header} {{ {body} }}")
        model.graph.output[0].type.tensor_type.ClearField("shape")
        made.append(model)
    return made[0], made[1], feeds


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--only", default="", help="a part of the names of the cases")
    chosen = options.parse_args(arguments)
    own = onnxruntime.SessionOptions()
    own.intra_op_num_threads = chosen.threads
    print("| operator | symbolic, us | of static | of ONNX Runtime |\n|---|---:|---:|---:|")
    ratios = list[tuple[float, float]]()
    for name, text in CASES.items():
        if chosen.only not in name:
            continue
        open_form, static_form, feeds = models(text)
        peer = onnxruntime.InferenceSession(open_form.SerializeToString(), own, providers=["CPUExecutionProvider"])
        programs = [
            graft.compile(one, ["llvm"], threads=chosen.threads, tuned=False) for one in (open_form, static_form)
        ]
        runs = [*(partial(one.run, feeds) for one in programs), partial(peer.run, None, feeds)]
        times = best_turns(runs)
        ratios.append((times[0] / times[1], times[0] / times[2]))
        print(f"| {name} | {1e6 * times[0]:.1f} | {ratios[-1][0]:.2f} | {ratios[-1][1]:.2f} |", flush=True)
    if ratios:
        means = (math.prod(column) ** (1 / len(ratios)) for column in zip(*ratios, strict=True))
        print("\ngeometric means {:.3f} of static, {:.3f} of ONNX Runtime".format(*means))


if __name__ == "__main__":
    main()
