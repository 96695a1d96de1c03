"""Conversions to MX types beside microxcaling and TOSA's reference model, where these are there.

microxcaling has no package (`PYTHONPATH=FOLDER`); the model is that of `tosa-tools`, in an environment of its own
(`PATH=ENVIRONMENT/bin:$PATH`). Both choose in two places what section 6.3 of OCP's specification 1.0 does not say:

- microxcaling rounds ties away from zero unless it is told otherwise (6.3: to even), and takes exponents from a
  logarithm in float32, which rounds up just below a power of two (6.3: the largest power that is not above).
- TOSA takes the least scale that does not clip the block's largest number, rounded as an element (6.3: floor, and
  clips): that is the rule `even`, and E4M3, whose largest significand is 1.75, goes one further above it.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graft.datatypes.scaled.blocks import decode_scaled, encode_scaled
from graft.datatypes.scaled.scaled_type import SCALED_TYPES
from tests.datatypes.scaled.test_blocks import blocks_of_every_kind

NAMES = {
    "mxfp8e4m3": "fp8_e4m3", "mxfp8e5m2": "fp8_e5m2", "mxfp6e2m3": "fp6_e2m3", "mxfp6e3m2": "fp6_e3m2",
    "mxfp4": "fp4_e2m1", "mxint8": "int8",
}  # fmt: skip
TOSA = {
    "mxfp8e4m3": ("FP8E4M3", 8), "mxfp8e5m2": ("FP8E5M2", 8), "mxfp6e2m3": ("FP6E2M3", 6), "mxfp6e3m2": ("FP6E3M2", 6),
    "mxfp4": ("FP4E2M1", 4), "mxint8": ("MXINT8", 8),
}  # fmt: skip
WRITER = """
import sys
import serializer.tosa_serializer as tosa
from tosa.BlockSize import BlockSize
from tosa.DType import DType
from tosa.Op import Op
rows, kind = int(sys.argv[1]), getattr(DType, sys.argv[2])
model = tosa.TosaSerializer(".")
x = model.addPlaceholder([rows, 32], DType.FP32, None)
elements, scales = model.addOutput([rows, 32], kind), model.addOutput([rows, 1], DType.FP8UE8M0)
attribute = tosa.TosaSerializerAttribute()
attribute.CastToBlockScaledAttribute(BlockSize.BLOCK_SIZE_32)
model.addOperator(Op.CAST_TO_BLOCK_SCALED, [x.name], [elements.name, scales.name], attribute)
open("cast.tosa", "wb").write(model.serialize())
print(x.name, elements.name, scales.name)
"""


def microxcaling(x: np.ndarray, name: str) -> np.ndarray:
    reason = "microxcaling is not installed"
    mx_ops, specs = (pytest.importorskip(f"mx.{one}", reason=reason) for one in ("mx_ops", "specs"))
    torch = pytest.importorskip("torch", reason="torch is not installed")
    given = specs.MxSpecs()
    given["scale_bits"], given["block_size"], given["custom_cuda"] = 8, 32, False
    kind, tensor = NAMES[name], torch.from_numpy(x.copy())
    return np.asarray(mx_ops.quantize_mx_op(tensor, given, elem_format=kind, axes=[-1], round="even").numpy())


@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_those_of_microxcaling(name: str) -> None:
    x = blocks_of_every_kind(4000, 32, 9)
    found = encode_scaled(x, replace(SCALED_TYPES[name], rule="floor"))
    np.testing.assert_array_equal(decode_scaled(found), microxcaling(x, name))


@pytest.mark.parametrize("name", NAMES)
def test_just_below_a_power_of_two_the_exponent_is_the_one_below(name: str) -> None:
    powers = np.exp2(np.arange(-20, 20)).astype(np.float32)[:, np.newaxis]
    at, below = (
        encode_scaled(one, replace(SCALED_TYPES[name], rule="floor")) for one in (powers, np.nextafter(powers, 0))
    )
    assert (at.scales - below.scales == 1).all()


def tosa(x: np.ndarray, name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The codes of elements and scales; elements are packed, low bits first."""
    model = shutil.which("tosa_reference_model")
    if model is None:
        pytest.skip("tosa_reference_model is not on the path")
    kind, bits = TOSA[name]
    python = [str(Path(model).with_name("python")), "-W", "ignore", "-c", WRITER]
    written = subprocess.run([*python, str(len(x)), kind], cwd=folder, check=True, capture_output=True, text=True)
    given, *made = written.stdout.split()
    np.save(folder / "x.npy", x)
    files = ["--ifm_name", given, "--ifm_file", "x.npy", "--ofm_name", ",".join(made), "--ofm_file", "e.npy,s.npy"]
    places = ["--tosa_file", "cast.tosa", "--flatbuffer_dir", ".", "--output_dir", ".", "--tosa_level", "NONE"]
    subprocess.run([model, *places, *files], cwd=folder, check=True, capture_output=True)
    packed, scales = (np.load(folder / file).view(np.uint8) for file in ("e.npy", "s.npy"))
    unpacked = np.unpackbits(packed, axis=1, bitorder="little").reshape(len(x), 32, bits)
    return (unpacked << np.arange(bits, dtype=np.uint8)).sum(axis=2), scales


@pytest.mark.parametrize("name", TOSA)
def test_codes_are_those_of_tosas_reference_model(name: str, tmp_path: Path) -> None:
    x = blocks_of_every_kind(300, 32, 9)
    elements, scales = tosa(x, name, tmp_path)
    found = encode_scaled(x, replace(SCALED_TYPES[name], rule="even"))
    above = (scales != found.scales)[:, 0]
    np.testing.assert_array_equal(scales, found.scales + above[:, np.newaxis])
    held = encode_scaled(x, name, scales=np.ldexp(1.0, scales.astype(int) - 127))
    np.testing.assert_array_equal(held.elements, elements)
    assert above.any() == (name == "mxfp8e4m3")
    quotients = np.ldexp(np.abs(x).max(axis=1)[above], 127 - found.scales[above, 0].astype(int))
    assert (quotients > 448 + 16).all()  # the middle between the largest number and the one that would come next
