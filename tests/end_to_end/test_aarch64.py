"""Programs for 64-bit ARM give the answers of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

import graft
from benchmarks.zoo import model
from graft.errors import GraftError

from .emulators import TEXTS, Emulated, emulated, network_of


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    return emulated("aarch64", "armv8-a", tmp_path_factory.mktemp("aarch64"))


@pytest.mark.parametrize(
    "name", [*TEXTS, "cnn", "transformer", "lstm", "digits", pytest.param("light_shufflenet", marks=pytest.mark.slow)]
)
def test_a_program_for_aarch64_gives_the_answers_of_this_machine(machine: Emulated, tmp_path: Path, name: str) -> None:
    machine.check(tmp_path, network_of(name))


def test_threads_of_aarch64_give_the_same_answers(machine: Emulated, tmp_path: Path) -> None:
    machine.check(tmp_path, network_of("cnn"), threads=3)


def test_products_in_bfloat16_are_the_same_without_instructions_for_them(machine: Emulated, tmp_path: Path) -> None:
    machine.check(tmp_path, network_of("products"), 2e-3, precision="bf16")


def test_a_quantised_network_is_the_same_to_the_bit_but_for_ties(machine: Emulated, tmp_path: Path) -> None:
    machine.check(tmp_path, model("int8_digits"), 1e-3)


def test_a_program_for_another_architecture_is_not_loaded_here() -> None:
    with pytest.raises(GraftError, match="the program was compiled for aarch64, and this machine is"):
        graft.compile(network_of("products"), ["llvm"], target="armv8-a")
