"""Programs for 64-bit RISC-V give the answers of this machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import graft
from benchmarks.zoo import model
from graft.errors import GraftError

from .emulators import TEXTS, Emulated, emulated, network_of


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    return emulated("riscv64", "riscv64", tmp_path_factory.mktemp("riscv64"))


@pytest.mark.parametrize("name", [*TEXTS, "transformer", pytest.param("lstm", marks=pytest.mark.slow), "digits"])
def test_a_program_for_riscv64_gives_the_answers_of_this_machine(machine: Emulated, tmp_path: Path, name: str) -> None:
    machine.check(tmp_path, network_of(name))


def test_threads_of_riscv64_give_the_same_answers(machine: Emulated, tmp_path: Path) -> None:
    machine.check(tmp_path, network_of("cnn"), threads=3)


def test_a_quantised_network_is_the_same_to_the_bit_but_for_ties(machine: Emulated, tmp_path: Path) -> None:
    machine.check(tmp_path, model("int8_digits"), 1e-3)


def test_a_program_for_riscv64_is_not_loaded_here() -> None:
    with pytest.raises(GraftError, match="the program was compiled for riscv64, and this machine is"):
        graft.compile(network_of("products"), ["llvm"], target="riscv64")


@pytest.fixture(scope="module")
def vectors(machine: Emulated) -> Emulated:
    return replace(machine, target="riscv64+v", cpu="rv64,v=true,vext_spec=v1.0,vlen=256")


@pytest.mark.parametrize("name", [*TEXTS, "transformer", pytest.param("lstm", marks=pytest.mark.slow), "digits"])
def test_vectors_of_riscv64_give_the_answers_of_this_machine(vectors: Emulated, tmp_path: Path, name: str) -> None:
    vectors.check(tmp_path, network_of(name))


def test_a_quantised_network_is_the_same_with_vectors_of_riscv64(vectors: Emulated, tmp_path: Path) -> None:
    vectors.check(tmp_path, model("int8_digits"), 1e-3)


def test_a_processor_of_riscv64_without_vectors_is_told(vectors: Emulated, tmp_path: Path) -> None:
    plain = replace(vectors, cpu="rv64")
    with pytest.raises(AssertionError, match="compiled for a processor with v, which this one lacks"):
        plain.check(tmp_path, network_of("products"))
