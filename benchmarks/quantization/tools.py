"""Ten networks in int8 by Graft and by other tools: `python -m benchmarks.quantization.tools FOLDER TOOL=PYTHON ...`.

A tool is a name of `other_tool` and the Python in which it is installed. Models are written into the folder; each is
run by ONNX Runtime on inputs that calibration has not seen, node by node as ONNX defines them, for its own products of
bytes saturate on processors without VNNI. ``--times`` instead prints how long a run of each model in the folder takes
in Graft, in ONNX Runtime, and in it node by node, in turns, on one thread. ``--networks=NAME,...`` takes these alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

import graft
from benchmarks import zoo
from benchmarks.quantization import other_tool
from benchmarks.quantization.perplexity import feeds
from examples.digits.data import load_split
from examples.quantization import shapes, text
from graft.core.shapes.sample_inputs import sample_inputs
from graft.quantization.preparation import in_floats

CALIBRATION, HELD_OUT, SAMPLES, HELD_OUT_SAMPLES = 100, 1000, 16, 64
SEEDED = (*zoo.TINY, "light_squeezenet")
"""Networks with drawn weights: of these only the signal counts."""
Feeds = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Task:
    """A model, what calibrates it, what it is tried on, and the classes of the latter if there are any."""

    name: str
    model: ir.Model
    calibration: list[Feeds]
    held_out: list[Feeds]
    labels: np.ndarray | None = None


def tasks(names: Collection[str] = ()) -> Iterator[Task]:
    """Yield the ten networks, or those of these names."""
    return (task for task in _tasks() if not names or task.name in names)


def names_given(arguments: list[str]) -> list[str]:
    """Take the names of ``--networks=NAME,...`` out of arguments."""
    found = [one for one in arguments if one.startswith("--networks=")]
    arguments[:] = [one for one in arguments if one not in found]
    return [name for one in found for name in one.partition("=")[2].split(",")]


def _tasks() -> Iterator[Task]:
    train, held_out, _, labels = load_split()
    yield _of_images("digits", in_floats(zoo.path_of("digits")), train, held_out, labels)
    held_out, labels = shapes.images(HELD_OUT, 0)
    for name, path in shapes.MODELS.items():
        yield _of_images(name, in_floats(path), shapes.images(CALIBRATION, 1)[0], held_out, labels)
    for name, path in text.MODELS.items():
        model = in_floats(onnx.load(path))
        parts = [
            text.asked(name, text.windows(held_out=one)[:: 6 if one else 60][:CALIBRATION])[0] for one in (False, True)
        ]
        batches = [[feeds(model, rows[place : place + 1]) for place in range(len(rows))] for rows in parts]
        yield Task(name, model, *batches)
    for name in SEEDED:
        model = in_floats(ir.to_proto(zoo.model(name)))
        samples = [sample_inputs(model, seed) for seed in range(SAMPLES + HELD_OUT_SAMPLES)]
        yield Task(name, model, samples[:SAMPLES], samples[SAMPLES:])


def _of_images(name: str, model: ir.Model, train: np.ndarray, held_out: np.ndarray, labels: np.ndarray) -> Task:
    one = model.graph.inputs[0].name or ""
    given = [[{one: rows[place : place + 1]} for place in range(len(rows))] for rows in (train[:CALIBRATION], held_out)]
    return Task(name, model, *given, labels)


def write(task: Task, folder: Path, tools: Mapping[str, str]) -> Iterator[tuple[str, Path, float]]:
    """Yield form, file and seconds of the model in floats, by Graft and by each tool that does not fail."""
    before, data = folder / f"{task.name}.float32.onnx", folder / f"{task.name}.npz"
    onnx.save(ir.to_proto(task.model), before)
    np.savez(data, **{name: np.stack([one[name] for one in task.calibration]) for name in task.calibration[0]})
    yield "float32", before, 0.0
    after = folder / f"{task.name}.graft.onnx"
    began = time.perf_counter()
    onnx.save(ir.to_proto(graft.quantize(task.model, "int8-channel", task.calibration)), after)
    yield "graft", after, time.perf_counter() - began
    for tool, python in tools.items():
        after = folder / f"{task.name}.{tool}.onnx"
        given = [python, other_tool.__file__, tool, before, data, after]
        done = subprocess.run(given, cwd=folder, capture_output=True, text=True, check=False)  # some leave files there
        if done.returncode or not after.exists():
            print(f"{task.name:24} {tool:18} {(done.stderr.strip().splitlines() or ['?'])[-1][:100]}", flush=True)
            continue
        yield tool, after, float(done.stdout.strip().splitlines()[-1])


def session(model: Path | bytes, *, by_node: bool = False) -> object:
    """Return what runs a model in ONNX Runtime, on one thread; ``by_node`` with no products of bytes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    options.add_session_config_entry("session.disable_quant_qdq", "1" if by_node else "0")
    return onnxruntime.InferenceSession(model, options)


def outputs(model: Path | bytes, batches: list[Feeds]) -> np.ndarray:
    """Return the first output of ONNX Runtime for all batches."""
    run = session(model, by_node=True).run  # type: ignore[attr-defined]
    return np.concatenate([run(None, dict(one))[0] for one in batches])


def compared(tools: Mapping[str, str], folder: Path, names: Collection[str] = ()) -> None:
    """Print what each form of each model is worth."""
    print(f"{'model':24} {'by':18} {'accuracy':>8} {'same':>7} {'SNR dB':>7} {'kB':>8} {'seconds':>8}", flush=True)
    for task in tasks(names):
        exact = np.zeros(0)
        for form, path, seconds in write(task, folder, tools):
            try:
                found = outputs(path, task.held_out)
            except Exception as error:  # whatever ONNX Runtime says of another tool's model
                print(f"{task.name:24} {form:18} is not run: {str(error).splitlines()[0][:90]}", flush=True)
                continue
            exact = exact if len(exact) else found
            noise = np.sum((found - exact) ** 2, dtype=np.float64)
            snr = 10 * np.log10(np.sum(exact**2, dtype=np.float64) / noise) if noise else np.inf
            right = "" if task.labels is None else f"{np.mean(found.argmax(1) == task.labels):.4f}"
            same = np.mean(found.argmax(-1) == exact.argmax(-1)) if found.ndim > 1 else 1.0
            size = sum(part.stat().st_size for part in path.parent.glob(f"{path.name}*")) / 1000  # data beside it, too
            print(f"{task.name:24} {form:18} {right:>8} {same:7.4f} {snr:7.1f} {size:8.0f} {seconds:8.2f}", flush=True)


def timed(folder: Path, names: list[str], rounds: int = 15) -> None:
    """Print the least time of a run of each model in each, in milliseconds, and their ratios to Graft's.

    A ratio is the median of those of rounds, with the first and last quarter of them.
    """
    print(
        f"{'model':20} {'by':16} {'Graft ms':>9} {'ORT ms':>8} {'Graft/ORT':>18} {'by node':>8} {'Graft/by node':>18}"
    )
    for path in sorted(folder.glob("*.onnx")):
        name, form = path.name.split(".")[:2]
        if names and name not in names:
            continue
        given = {one: array[0] for one, array in np.load(folder / f"{name}.npz").items()}
        runs = [session(path, by_node=by_node).run for by_node in (False, True)]  # type: ignore[attr-defined]
        calls = [partial(graft.compile(path, threads=1).run, given), *(partial(run, None, given) for run in runs)]
        times = np.array([[_seconds(call) for call in calls] for _ in range(rounds)])
        least = 1000 * times.min(axis=0)
        ratios = [
            "{1:.2f} ({0:.2f}-{2:.2f})".format(*np.quantile(times[:, 0] / times[:, place], (0.25, 0.5, 0.75)))
            for place in (1, 2)
        ]
        print(
            f"{name:20} {form:16} {least[0]:9.3f} {least[1]:8.3f} {ratios[0]:>18} {least[2]:8.3f} {ratios[1]:>18}",
            flush=True,
        )


def _seconds(call: Callable[[], object], least: float = 0.004) -> float:
    """Return the seconds of a call, the mean of as many as take the least time."""
    count, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < least or not count:
        call()
        count += 1
    return spent / count


def main() -> None:
    """Print the table, or that of times."""
    arguments = sys.argv[1:]
    names = names_given(arguments)
    folder = Path(arguments.pop(0)).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if arguments == ["--times"]:
        return timed(folder, names)
    tools = {name: os.path.abspath(python) for name, python in (one.split("=", 1) for one in arguments)}
    if wrong := tools.keys() - other_tool.TOOLS.keys():
        sys.exit(f"no tool is called {', '.join(sorted(wrong))}; there are {', '.join(other_tool.TOOLS)}")
    return compared(tools, folder, names)


if __name__ == "__main__":
    main()
