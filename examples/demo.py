"""The main job on two real models: ONNX in, oneDNN and built-in code stitched, one artifact out, verified.

The digits network has trained weights and a real accuracy; light_resnet50 has seeded ones. Run it with ``make demo``.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

import numpy as np
from digits.data import accuracy, held_out
from models.seed_weights import SeedWeights

import graft
from graft.compiler.request import plugins
from graft.measure.latency import bench

HERE = Path(__file__).parent
BACKENDS = ("onednn", "llvm")


def shared(chosen: list[str]) -> graft.Policy:
    """Return a policy that keeps two operators from oneDNN, which would take all: so there is something to stitch."""
    return graft.Policy(exclude_op=("onednn:Gemm", "onednn:MaxPool") if "onednn" in chosen else ())


def backends() -> list[str]:
    """Return the backends of the demo that can run here, and say what the others lack."""
    available = []
    for backend in plugins().backends(list(BACKENDS)):
        reason = backend.available()
        if reason is None:
            available.append(backend.name)
        else:
            print(f"  {backend.name} is left out: {reason}")
    return available


def digits(chosen: list[str], folder: Path) -> bool:
    """Compile, save, load and run the digits network; the accuracy must be the same through every choice."""
    print("digits: a small CNN trained on scikit-learn's handwritten digits")
    model = graft.load(HERE / "digits" / "digits.onnx")
    print("  plan     ", graft.plan(model, chosen, policy=shared(chosen)).summary())
    artifact = folder / "digits.graft"
    graft.compile(model, chosen, policy=shared(chosen)).save(artifact)
    program = graft.runtime.load(artifact)
    images, labels = held_out()
    results = {"+".join(chosen): accuracy(program, images, labels)}
    results |= {name: accuracy(graft.compile(model, [name, "reference"]), images, labels) for name in chosen}
    for name, value in results.items():
        print(f"  accuracy  {value:.4f} on {len(labels)} held-out digits through {name}")
    report = graft.verify(model, chosen, inputs={"image": images[:1]}, policy=shared(chosen), per_region=True)
    print(
        f"  verified  against onnx.reference: {'ok' if report.ok else 'FAILED'}, {len(report.regions)} region outputs"
    )
    print(f"  artifact  {artifact} ({artifact.stat().st_size / 1024:.0f} KiB)")
    return report.ok and len(set(results.values())) == 1


def resnet(chosen: list[str], folder: Path) -> bool:
    """Compile, verify and time light_resnet50 with seeded weights."""
    print("light_resnet50: weights He-initialised from seed 0")
    model = graft.load(str(files("onnx.backend.test") / "data" / "light" / "light_resnet50.onnx"))
    SeedWeights(0).run(model)
    print("  plan     ", graft.plan(model, chosen, policy=shared(chosen)).summary())
    started = perf_counter()
    program = graft.compile(model, chosen, policy=shared(chosen))
    print(f"  compiled  in {perf_counter() - started:.1f} s")
    artifact = folder / "light_resnet50.graft"
    program.save(artifact)
    program = graft.runtime.load(artifact)
    has_peer = find_spec("onnxruntime") is not None
    report = graft.verify(model, chosen, program=program, against="onnxruntime" if has_peer else "reference")
    worst = max(row.difference.max_abs for row in report.outputs)
    print(f"  verified  against {report.against}: {'ok' if report.ok else 'FAILED'}, largest error {worst:.1e}")
    times = bench(model, program=program, compare=["onnxruntime"] if has_peer else [], seconds=4.0)
    for row in times.rows:
        print(f"  latency   {row.median_ms:.1f} ms  {row.name} ({times.threads} threads)")
    print(f"  artifact  {artifact} ({artifact.stat().st_size / 2**20:.0f} MiB)")
    return report.ok


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="graft-demo-"))
    np.set_printoptions(precision=4)
    chosen = backends()
    passed = [digits(chosen, folder), resnet(chosen, folder)]
    print("demo: everything holds" if all(passed) else "demo: FAILED")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
