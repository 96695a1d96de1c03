import time

from graft.core.operators.definition import build as b
from graft.core.tensor_ir.ir import Buffer, For, Let, Load, Ramp, Store, Variable
from graft.core.tensor_ir.rewriting.sharing import bind_shared
from tests.core.tensor_ir.test_deep_expressions import deep

INDEX = Variable("i")
X, Y = (Buffer(name, "float32", (b.index(9),)) for name in "xy")


def test_a_deep_statement_is_bound_to_names():
    output = Buffer("y", "float32", ())
    started = time.process_time()
    bind_shared(Store(output, (), deep(2000)))
    assert time.process_time() - started < 20


def test_what_is_used_twice_is_named_before_what_holds_it():
    loaded = Load(X, (INDEX,))
    square = b.multiply(loaded, loaded)
    first, second = Variable("v0", loaded.type), Variable("v1", loaded.type)
    stored = Store(Y, (INDEX,), b.add(second, second))
    product = Let(second, b.multiply(first, first), stored)
    assert str(bind_shared(Store(Y, (INDEX,), b.add(square, square)))) == str(Let(first, loaded, product))


def test_what_an_index_and_a_value_share_is_computed_once():
    place = b.add(INDEX, 1)
    name = Variable("v0", place.type)
    found = bind_shared(Store(Y, (place,), Load(X, (place,))))
    assert str(found) == str(Let(name, place, Store(Y, (name,), Load(X, (name,)))))


def test_what_is_used_once_stays_where_it_is():
    statement = Store(Y, (INDEX,), b.add(Load(X, (INDEX,)), 1.0))
    assert bind_shared(statement) is statement


def test_ramps_stay_visible_in_indices():
    place = Ramp(INDEX, 1, 4)
    statement = Store(Y, (place,), Load(X, (place,)))
    assert bind_shared(statement) is statement


def test_the_value_of_a_name_is_shared_and_its_body_is_left():
    loaded = Load(X, (INDEX,))
    variable, name = Variable("t", loaded.type), Variable("v0", loaded.type)
    body = Store(Y, (INDEX,), b.multiply(variable, variable))
    found = bind_shared(Let(variable, b.add(loaded, loaded), body))
    assert str(found) == str(Let(name, loaded, Let(variable, b.add(name, name), body)))
    loop = For(INDEX, b.index(9), "serial", Store(Y, (INDEX,), b.add(loaded, loaded)))
    assert bind_shared(loop) is loop
