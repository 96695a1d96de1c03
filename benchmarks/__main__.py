"""Runs the main benchmarks: whole models with the built-in compiler alone, then with oneDNN where it is installed."""

import subprocess
import sys

for arguments in (
    ["benchmarks.peers"],
    ["benchmarks.peers", "--backends", "onednn,llvm"],
    ["benchmarks.call_overhead"],
):
    subprocess.run([sys.executable, "-m", *arguments], check=True)
