"""Compiled parts as they are called: allocation, strides, tensors with gaps, errors."""

import copy
import pickle

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

from graft.errors import InputError  # noqa: E402
from graft.torch.region import EXCHANGE, Region  # noqa: E402
from tests.torch.whole import compiled  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def region_of(function, *inputs, mode="fake"):
    graph = compiled(function, *inputs, mode=mode)
    (found,) = [one.target for one in graph.module.graph.nodes if isinstance(one.target, Region)]
    return found


def test_a_part_writes_into_new_tensors_with_the_strides_that_pytorch_expects():
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    region = region_of(lambda x: torch.relu(x), x)
    (one,), (other,) = region(x), region(x)
    assert one.stride() == x.stride()
    assert one.data_ptr() != other.data_ptr()
    torch.testing.assert_close(one, torch.relu(x))


def test_outputs_of_extents_that_vary_are_allocated_by_formulas():
    region = region_of(lambda x: torch.cat([x, x], 1)[:, 1:] + 1, torch.randn(5, 7), mode="symbolic")
    for shape in ((5, 7), (3, 4)):
        x = torch.randn(shape)
        torch.testing.assert_close(region(x)[0], torch.cat([x, x], 1)[:, 1:] + 1)


def test_tensors_with_gaps_or_a_sign_to_be_resolved_are_read_as_they_are():
    x = torch.randn(4, 6)[:, ::2]
    torch.testing.assert_close(region_of(lambda x: x * 2 + 1, x)(x)[0], x * 2 + 1)
    plain = torch.randn(3)
    (result,) = region_of(lambda x: x * 2 + 1, plain)(torch.randn(6)[::2].copy_(plain))
    torch.testing.assert_close(result, plain * 2 + 1)


def test_a_part_is_shared_by_copies_and_not_pickled():
    region = region_of(lambda x: x + 1, torch.ones(2))
    assert copy.deepcopy(region) is region
    with pytest.raises(TypeError, match="is not pickled"):
        pickle.dumps(region)


def test_the_native_call_refuses_other_types_shapes_and_strides():
    region = region_of(lambda x: x + 1, torch.ones(2, 3))
    run = region.program._native.run_exchanged
    x, y = torch.ones(2, 3), torch.empty(2, 3)
    assert run(EXCHANGE, (x,), (y,)) is None
    torch.testing.assert_close(y, x + 1)
    with pytest.raises(InputError, match="input 'in_0' must be float32"):
        run(EXCHANGE, (x.double(),), (y,))
    for wrong in (torch.empty(3, 2).t(), torch.empty(2, 4)):
        with pytest.raises(InputError, match="out_0"):
            run(EXCHANGE, (x,), (wrong,))
    with pytest.raises(TypeError, match="a tuple of inputs"):
        run(EXCHANGE, [x], (y,))
    with pytest.raises(ValueError, match="PyCapsule_GetPointer"):
        run(object(), (x,), (y,))
    with pytest.raises(InputError, match="takes 1 input"):
        run(EXCHANGE, (x, x), (y,))
