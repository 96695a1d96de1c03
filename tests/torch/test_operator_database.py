"""A sample of PyTorch's database of operators, by seed; `make test-torch` runs more of it."""

import logging
import random

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")
pytest.importorskip("expecttest", reason="the database of operators needs expecttest")

from tests.torch import operator_database as database  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
DRAWN = random.Random(32).sample(sorted({database.name_of(one) for one in database.op_db}), 40)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16", "bool", "float64"])
def test_a_sample_agrees_with_eager_pytorch(dtype, caplog):
    caplog.set_level(logging.ERROR, logger="graft")
    place = list(database.TYPES).index(dtype)
    names = DRAWN[place * 8 : place * 8 + 8]
    found = [one for name in names for one in database.outcomes(dtype, 1, 0, 1, dtype == "float32", name)]
    assert [f"{one.operator}: {one.fault}" for one in found if one.fault] == []


def test_wrong_numbers_strides_and_types_are_found():
    (operator,) = [one for one in database.op_db if one.name == "sin"]
    x = torch.arange(6.0).reshape(2, 3)
    assert "wrong numbers" in database._compared(operator, None, [x], [x + 1])
    assert "strides" in database._compared(operator, None, [x], [x.t().contiguous().t()])
    assert "float64" in database._compared(operator, None, [x], [x.double()])
    assert database._compared(operator, None, [x], [x.clone()]) == ""
