"""Runs the benchmarks whose tables stand in docs/performance.md and docs/datatypes.md, one after the other."""

import subprocess
import sys

for arguments in (
    ["benchmarks.peers"],
    ["benchmarks.peers", "--backends", "onednn,llvm"],
    ["benchmarks.peers", "bert_base", "light_resnet50", "--precision", "bf16"],
    ["benchmarks.dynamic", "--reduced"],
    ["benchmarks.placement"],
    ["benchmarks.kernels"],
    ["benchmarks.operators"],
    ["benchmarks.call_overhead"],
    ["benchmarks.threads"],
    ["benchmarks.partition"],
    ["benchmarks.planning", "1000", "10000"],
    ["benchmarks.compile_time"],
    ["benchmarks.memory"],
    ["benchmarks.datatypes"],
):
    print(f"\npython -m {' '.join(arguments)}\n", flush=True)
    subprocess.run([sys.executable, "-m", *arguments], check=True)
