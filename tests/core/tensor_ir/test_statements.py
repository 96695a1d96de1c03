from graft.core.operators.definition import build as b
from graft.core.tensor_ir.ir import Buffer, Expression, Store, Variable
from graft.core.tensor_ir.printer import print_statement
from graft.core.tensor_ir.statements import allocate, bind, bound, loops_over

TARGET = Buffer("y", "int64", (b.index(4), b.index(4)))


def stored(*place: Expression) -> Store:
    return Store(TARGET, place, b.index(0))


def test_the_first_of_several_loops_is_the_outermost() -> None:
    i, j = Variable("i"), Variable("j")
    assert print_statement(loops_over([(i, b.index(4)), (j, b.index(3))], stored(i, j), "parallel")) == (
        "parallel i < 4 {\n  parallel j < 3 {\n    y[i, j] = 0\n  }\n}\n"
    )


def test_no_axes_make_no_loop() -> None:
    body = stored(b.index(0), b.index(1))
    assert loops_over([], body) is body


def test_a_value_may_speak_of_those_that_are_bound_before_it() -> None:
    i, j = Variable("i"), Variable("j")
    known = ((i, b.index(2)), (j, b.add(i, 1)))
    assert print_statement(bind(iter(known), stored(i, j))) == "let i: int64 = 2\nlet j: int64 = i + 1\ny[i, j] = 0\n"


def test_bound_values_are_variables_of_their_types() -> None:
    found: list[Expression] = []

    def body(names: list[Expression]) -> Store:
        found.extend(names)
        return Store(TARGET, (b.index(0), b.index(0)), names[1])

    text = print_statement(bound("v", [b.constant(3, "float32"), b.index(4)], body))
    assert [one.type.dtype for one in found] == ["float32", "int64"]
    assert text.splitlines()[-1] == "y[0, 0] = v1"


def test_the_first_of_several_buffers_lives_longest() -> None:
    memory = [Buffer(name, "float32", (b.index(2),), memory="scratch") for name in ("first", "second")]
    lines = print_statement(allocate(memory, stored(b.index(0), b.index(0)))).splitlines()
    assert [line.split()[1] for line in lines[:2]] == ["first:", "second:"]
