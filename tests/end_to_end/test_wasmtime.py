"""Modules for the web in an engine without a browser: wasmtime gives the answers of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
import onnx_ir as ir
import pytest

import graft
from graft.compiler.api import compile_model
from graft.compiler.request import Request
from graft.core.shapes.sample_inputs import sample_inputs
from graft.runtime.export.wasm_plan import WEIGHTS_HEADER, Place, wasm_program

from .emulators import network_of

wasmtime = pytest.importorskip("wasmtime", reason="wasmtime is not installed; pip install 'graft-compiler[wasmtime]'")
RELAXED = "wasm32+relaxed-simd"


def run(network: ir.Model, feeds: Mapping[str, np.ndarray], target: str) -> dict[str, np.ndarray]:
    """Compile a network, write weights and inputs into the memory of its module, call it and read the outputs."""
    request = Request(["llvm"], target=target, strict=True, threads=1)
    program = wasm_program(compile_model(network, request).description)
    store = wasmtime.Store()
    instance = wasmtime.Instance(store, wasmtime.Module(store.engine, program.module), [])
    memory = instance.exports(store)["memory"]
    memory.write(store, program.weights[WEIGHTS_HEADER:], program.weights_address)
    for place in program.inputs:
        memory.write(store, feeds[place.name].tobytes(), place.address)
    assert instance.exports(store)["run"](store) == 0

    def read(place: Place) -> np.ndarray:
        assert isinstance(place.address, int)
        assert place.static_shape is not None
        dtype = np.dtype(place.dtype)
        data = memory.read(store, place.address, place.address + dtype.itemsize * prod(place.static_shape))
        return np.frombuffer(bytes(data), dtype).reshape(place.static_shape)

    return {place.name: read(place) for place in program.outputs}


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("digits", "wasm32"),
        ("digits", "wasm32+simd128"),
        ("products", RELAXED),
        pytest.param("functions", RELAXED, marks=pytest.mark.slow),
        *(pytest.param("transformer", target, marks=pytest.mark.slow) for target in ("wasm32+simd128", RELAXED)),
    ],
)
def test_wasmtime_computes_what_this_machine_does(name: str, target: str) -> None:
    network = network_of(name)
    feeds = sample_inputs(network)
    found = run(network, feeds, target)
    for output, array in graft.compile(network, ["llvm"], strict=True).run(feeds).items():
        np.testing.assert_allclose(found[output], array, rtol=1e-4, atol=1e-4 * np.nanmax(np.abs(array)))


def test_multiply_adds_are_used_where_the_target_has_them() -> None:
    """The opcode of f32x4.relaxed_madd is 0xfd with 0x105 in LEB128."""
    modules = {}
    for target in ("wasm32+simd128", RELAXED):
        request = Request(["llvm"], target=target, strict=True, threads=1)
        modules[target] = wasm_program(compile_model(network_of("products"), request).description).module
    assert modules[RELAXED].count(b"\xfd\x85\x02") > 8
    assert b"\xfd\x85\x02" not in modules["wasm32+simd128"]
