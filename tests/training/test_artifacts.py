"""ONNX Runtime's training artifacts: checkpoints that its own tables write, and steps as its kernels state them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import flatbuffers
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs import (
    Checkpoint,
    ModuleState,
    OptimizerGroup,
    ParameterOptimizerState,
    Tensor,
)

from graft.errors import ModelError
from graft.training import SGD, from_artifacts
from graft.training.artifacts import read_checkpoint

RNG = np.random.default_rng(0)
WEIGHTS = {"w": RNG.normal(size=(4, 3)).astype(np.float32), "b": RNG.normal(size=3).astype(np.float32)}
FROZEN = {"scale": np.float32([1.5])}
STATES = {
    name: [RNG.normal(size=array.shape).astype(np.float32) * 0.1, np.full(array.shape, 0.01, np.float32)]
    for name, array in WEIGHTS.items()
}
BATCH = {"x": RNG.normal(size=(5, 4)).astype(np.float32), "labels": np.array([0, 2, 1, 1, 0])}
RATE = np.float32(0.01)


def vector(builder: flatbuffers.Builder, items: Sequence[int]) -> int:
    builder.StartVector(4, len(items), 4)
    for item in reversed(items):
        builder.PrependUOffsetTRelative(item)
    return builder.EndVector()


def tensor(builder: flatbuffers.Builder, name: str, array: np.ndarray, offset: int = -1) -> int:
    text = builder.CreateString(name)
    dims = builder.CreateNumpyVector(np.array(array.shape, np.int64))
    raw = builder.CreateNumpyVector(np.frombuffer(array.tobytes(), np.uint8)) if offset < 0 else 0
    Tensor.Start(builder)
    Tensor.AddName(builder, text)
    Tensor.AddDims(builder, dims)
    Tensor.AddDataType(builder, helper.np_dtype_to_tensor_dtype(array.dtype))
    if offset < 0:
        Tensor.AddRawData(builder, raw)
    Tensor.AddExternalDataOffset(builder, offset)
    return Tensor.End(builder)


def checkpoint(
    weights: Mapping[str, np.ndarray] = WEIGHTS, steps: int = 0, nominal: bool = False, external: bool = False
) -> bytes:
    """The bytes of a checkpoint; one that has taken steps has states."""
    builder = flatbuffers.Builder(1024)
    offsets, end = dict[str, int](), 0
    for name, array in weights.items():
        offsets[name], end = end if external else -1, end + array.nbytes
    trained = vector(builder, [tensor(builder, name, array, offsets[name]) for name, array in weights.items()])
    frozen = vector(builder, [tensor(builder, name, array) for name, array in FROZEN.items()])
    ModuleState.Start(builder)
    ModuleState.AddRequiresGradParams(builder, trained)
    ModuleState.AddFrozenParams(builder, frozen)
    ModuleState.AddIsNominalState(builder, nominal)
    ModuleState.AddHasExternalData(builder, external)
    module, groups = ModuleState.End(builder), 0
    if steps:
        states = []
        for name, arrays in STATES.items():
            text = builder.CreateString(name)
            moments = vector(builder, [tensor(builder, f"momentum{place}", one) for place, one in enumerate(arrays)])
            ParameterOptimizerState.Start(builder)
            ParameterOptimizerState.AddParamName(builder, text)
            ParameterOptimizerState.AddMomentums(builder, moments)
            states.append(ParameterOptimizerState.End(builder))
        every, group = vector(builder, states), builder.CreateString("group0")
        OptimizerGroup.Start(builder)
        OptimizerGroup.AddGroupName(builder, group)
        OptimizerGroup.AddStep(builder, steps)
        OptimizerGroup.AddInitialLearningRate(builder, RATE)
        OptimizerGroup.AddOptimizerStates(builder, every)
        groups = vector(builder, [OptimizerGroup.End(builder)])
    Checkpoint.Start(builder)
    Checkpoint.AddVersion(builder, 1)
    Checkpoint.AddModuleState(builder, module)
    if groups:
        Checkpoint.AddOptimizerGroups(builder, groups)
    builder.Finish(Checkpoint.End(builder), b"ODTC")
    return bytes(builder.Output())


EVALUATION = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[n,4] x, int64[n] labels, float[4,3] w, float[3] b, float[1] scale) => (float loss, float[n,3] logits) {
        h = Gemm (x, w, b) logits = Mul (h, scale)
        loss = SoftmaxCrossEntropyLoss <reduction = "mean"> (logits, labels) }"""
TRAINING = helper.make_model(
    helper.make_graph(
        [helper.make_node("InPlaceAccumulatorV2", [name], [f"{name}_grad.accumulation.out"], domain="com.microsoft")
         for name in WEIGHTS], "training", [],
        [helper.make_tensor_value_info(f"{name}_grad.accumulation.out", 1, array.shape)
         for name, array in WEIGHTS.items()],
    )
)  # fmt: skip


def optimizer(node: str, clips: float | None = None) -> onnx.ModelProto:
    attributes = {} if node == "SGDOptimizerV2" else {
        "alpha": 0.9, "beta": 0.999, "epsilon": 1e-6, "weight_decay": 0.1, "adam_mode": 1, "correct_bias": 1
    }  # fmt: skip
    nodes = [helper.make_node(node, ["learning_rate", "step"], ["flag"], "step", domain="com.microsoft", **attributes)]
    tensors = []
    if clips is not None:
        nodes.insert(0, helper.make_node("Div", ["max_norm", "norm"], ["share"]))
        tensors.append(numpy_helper.from_array(np.float32([clips]), "max_norm"))
    return helper.make_model(helper.make_graph(nodes, "optimizer", [], [], tensors))


def folder(path: Path, data: bytes, model: onnx.ModelProto | None = None, prefix: str = "") -> Path:
    (path / f"{prefix}checkpoint").write_bytes(data)
    onnx.save(onnx.parser.parse_model(EVALUATION), path / f"{prefix}eval_model.onnx")
    onnx.save(TRAINING, path / f"{prefix}training_model.onnx")
    if model is not None:
        onnx.save(model, path / f"{prefix}optimizer_model.onnx")
    return path


def gradients(weights: Mapping[str, np.ndarray]) -> tuple[float, dict[str, np.ndarray]]:
    """The loss and its gradients, by hand."""
    logits = (BATCH["x"] @ weights["w"] + weights["b"]) * FROZEN["scale"]
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    rows = np.arange(len(shares))
    loss = -np.log(shares[rows, BATCH["labels"]]).mean()
    shares[rows, BATCH["labels"]] -= 1
    inner = shares / len(shares) * FROZEN["scale"]
    return float(loss), {"w": BATCH["x"].T @ inner, "b": inner.sum(0)}


def test_a_training_goes_on_with_the_states_and_steps_of_the_checkpoint(tmp_path: Path) -> None:
    trainer = from_artifacts(
        folder(tmp_path, checkpoint(steps=7), optimizer("AdamWOptimizer", 1.0), "my_"), prefix="my_"
    )
    assert (trainer.steps, trainer.weights, trainer.optimizer.learning_rate) == (7, ("w", "b"), pytest.approx(0.01))
    weights, states = dict(WEIGHTS), {name: list(arrays) for name, arrays in STATES.items()}
    for step in (8, 9):
        loss, found = gradients(weights)
        assert trainer.step(BATCH) == pytest.approx(loss, rel=1e-5)
        norm = np.sqrt(sum((one**2).sum() for one in found.values()))
        for name, one in found.items():
            one = one * min(1.0, 1.0 / (norm + 1e-6))
            first, second = states[name]
            states[name] = first, second = 0.9 * first + 0.1 * one, 0.999 * second + 0.001 * one**2
            rate = RATE * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
            moved = weights[name] - rate * first / (np.sqrt(second) + 1e-6)
            weights[name] = moved - RATE * 0.1 * moved
    for name, array in weights.items():
        np.testing.assert_allclose(trainer.arrays[name], array, rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(trainer.arrays[f"{name}_square"], states[name][1], rtol=2e-5)


def test_steepest_descent_begins_at_the_weights_of_the_checkpoint(tmp_path: Path) -> None:
    trainer = from_artifacts(folder(tmp_path, checkpoint(), optimizer("SGDOptimizerV2")))
    assert isinstance(trainer.optimizer, SGD)
    loss, found = gradients(WEIGHTS)
    assert trainer.step(BATCH, 0.5) == pytest.approx(loss, rel=1e-5)
    np.testing.assert_allclose(trainer.arrays["w"], WEIGHTS["w"] - 0.5 * found["w"], rtol=1e-5, atol=1e-6)
    assert trainer.evaluate(BATCH, batch=5) == pytest.approx(gradients(trainer.arrays)[0], rel=1e-5)


def test_settings_of_the_trainer_come_before_those_of_the_artifacts(tmp_path: Path) -> None:
    at = folder(tmp_path, checkpoint(), optimizer("SGDOptimizerV2"))
    (tmp_path / "later").write_bytes(checkpoint(steps=3))
    trainer = from_artifacts(at, checkpoint=at / "later", optimizer=SGD(0.25), wrt=["b"])
    assert (trainer.weights, trainer.optimizer.learning_rate, trainer.steps) == (("b",), 0.25, 3)


def test_weights_beside_the_checkpoint_are_read(tmp_path: Path) -> None:
    at = folder(tmp_path, checkpoint(external=True))
    (at / "checkpoint.data").write_bytes(b"".join(array.tobytes() for array in WEIGHTS.values()))
    trainer = from_artifacts(at)
    assert all(np.array_equal(trainer.arrays[name], array) for name, array in WEIGHTS.items())
    (at / "checkpoint.data").unlink()
    with pytest.raises(ModelError, match=re.escape("checkpoint.data', in which 'w' is: No such file or directory")):
        from_artifacts(at)


OTHER = {**WEIGHTS, "v": np.zeros(2, np.float32)}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (checkpoint(nominal=True), "is nominal: it names weights and has none; give one with weights"),
        (b"\x08\0\0\0ONNX" + bytes(8), "is no checkpoint of ONNX Runtime: it does not begin with 'ODTC'"),
        (checkpoint()[:100], "is damaged: an offset leads out of it"),
        (checkpoint(OTHER), "has no gradient of 'v', which the checkpoint"),
        (checkpoint({"w": WEIGHTS["w"][:2]}), "is of another model: 'w' is [2, 3], and [4, 3] in the evaluation model"),
    ],
)
def test_a_checkpoint_that_does_not_fit_says_why(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(ModelError, match=re.escape(said)):
        from_artifacts(folder(tmp_path, data))


def test_a_weight_that_the_model_has_not_is_named(tmp_path: Path) -> None:
    at = folder(tmp_path, checkpoint(OTHER))
    (at / "training_model.onnx").unlink()
    with pytest.raises(ModelError, match="its weight 'v' is no input of the evaluation model, which has x, labels, w"):
        from_artifacts(at)


def test_missing_and_unknown_artifacts_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot read the checkpoint '.*checkpoint': No such file"):
        from_artifacts(tmp_path)
    at = folder(tmp_path, checkpoint(), optimizer("LambOptimizer"))
    with pytest.raises(ModelError, match="no optimiser that is known, AdamWOptimizer or SGDOptimizerV2; it has Lamb"):
        from_artifacts(at)
    onnx.save(optimizer("AdamWOptimizer"), at / "optimizer_model.onnx")
    model = onnx.load(at / "optimizer_model.onnx")
    next(one for one in model.graph.node[0].attribute if one.name == "adam_mode").i = 0
    onnx.save(model, at / "optimizer_model.onnx")
    with pytest.raises(ModelError, match="adds epsilon behind the correction of the bias"):
        from_artifacts(at)
    (at / "eval_model.onnx").write_bytes(b"\xff\xff")
    with pytest.raises(ModelError, match="is no ONNX model"):
        from_artifacts(at)
    (at / "checkpoint").unlink()
    (at / "checkpoint").mkdir()
    with pytest.raises(ModelError, match=r"is a folder: checkpoints of that form are not read"):
        from_artifacts(at)


def test_no_byte_of_a_checkpoint_brings_the_reader_down(tmp_path: Path) -> None:
    """Each prefix of a checkpoint, and one with each byte changed, is read or refused."""
    data, path = checkpoint(steps=1), tmp_path / "checkpoint"
    for place in range(len(data)):
        for changed in (data[:place], data[:place] + bytes([data[place] ^ 0x85]) + data[place + 1 :]):
            path.write_bytes(changed)
            with suppress(ModelError):
                read_checkpoint(path)
