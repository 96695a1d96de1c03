from __future__ import annotations

import subprocess
import sys


def test_building_patterns_imports_neither_onnx_nor_numpy() -> None:
    code = (
        "import sys, graft.patterns\n"
        "heavy = {'onnx', 'onnx_ir', 'numpy', 'llvmlite'} & {name.split('.')[0] for name in sys.modules}\n"
        "print(sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
