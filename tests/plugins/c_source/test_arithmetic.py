"""What the LLVM emitter is held to, in C: the interpreter's bits for every operation, vectors taken apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from graft.core.machine.target import host_target
from graft.core.tensor_ir.ir import Function
from graft.plugins.c_source.backend import CBackend
from tests.plugins.conftest import Image
from tests.plugins.llvm.test_emit import (  # noqa: F401 - collected here with this file's `run`
    test_a_bitcast_keeps_the_bits,
    test_a_float_remainder_is_exact,
    test_a_horizontal_maximum_keeps_a_nan,
    test_a_horizontal_reduction_gives_one_value,
    test_a_horizontal_reduction_of_conditions,
    test_a_scalar_that_is_switched_off_is_neither_read_nor_written,
    test_a_select_takes_lanes,
    test_a_shuffle_chooses_lanes,
    test_an_integer_division_never_traps,
    test_an_integer_remainder_has_the_sign_of_the_dividend,
    test_any_step_from_lane_to_lane_is_loaded,
    test_any_step_from_lane_to_lane_is_stored,
    test_arithmetic_is_the_interpreters,
    test_casts_saturate_and_round_to_nearest_even,
    test_lanes_are_gathered_from_anywhere,
    test_logic_is_the_interpreters,
    test_masks_that_count_are_those_of_the_comparison,
    test_scalars_are_shuffled_into_a_vector,
    test_shifts_are_the_interpreters,
    test_statements_nest,
    test_transcendental_functions_are_expanded,
    test_unary_functions_of_floats_are_the_interpreters,
    test_unary_functions_of_integers_are_the_interpreters,
    test_what_is_known_outside_a_block_is_used_inside_and_not_the_other_way_round,
)


@pytest.fixture
def run() -> Callable[[Function, Sequence[np.ndarray], Sequence[np.ndarray]], None]:
    """Compile a function by the system's compiler and run it on arrays."""
    backend = CBackend()

    def call(function: Function, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        image = Image(backend.emit([function], backend.machine(host_target())).data)
        assert image.status(function.name, inputs, outputs) == 0

    return call
