import numpy as np
import pytest

from graft.core.machine.target import host_target, target_named
from graft.core.operators.definition import build as b
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.ir import (
    Allocate,
    Binary,
    Bitcast,
    Block,
    Broadcast,
    Buffer,
    Cast,
    Constant,
    For,
    Function,
    Horizontal,
    If,
    Intrinsic,
    Let,
    Load,
    Ramp,
    Select,
    Shuffle,
    Statement,
    Store,
    Unary,
    Variable,
)
from graft.core.types import FLOAT32, INT64, Type
from graft.errors import CompileError
from graft.plugins.llvm.emit import compile_functions, emit_ir
from graft.plugins.llvm.emit_function import BRIEF
from graft.runtime.dtypes import numpy_dtype
from tests.plugins.llvm.kernels import LANES, lanes, map_function, vector

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
BASELINE = target_named("x86-64")


def samples(dtype: str, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.integers(0, 2, 256).astype(bool)
    if dtype in INTEGERS:
        info = np.iinfo(dtype)
        edges = [info.min, info.max, 0, 1, info.max // 2, max(info.min, -1), 2, 3]
        rest = random.integers(info.min, info.max, 248 - 64, dtype=dtype, endpoint=True)
        return np.concatenate([np.array(edges, dtype), random.integers(0, 9, 64).astype(dtype), rest])
    kind = numpy_dtype(dtype)
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.5, 2.5, 0.5, -0.5, 65504.0, 1e-7, 3.0, 127.5, -128.5, 255.0]
    scale = np.exp(random.uniform(-20, 20, 240))
    with np.errstate(over="ignore", under="ignore"):
        return np.concatenate([np.array(edges), random.standard_normal(240) * scale]).astype(kind)


def check(run, function: Function, arrays: list[np.ndarray]) -> None:
    """Native code gives the bits that the interpreter gives, any NaN for a NaN."""
    with np.errstate(all="ignore"):
        expected = run_function(function, arrays)
    outputs = [np.full(item.shape, 77).astype(item.dtype) for item in expected]
    run(function, arrays, outputs)
    for got, wanted in zip(outputs, expected, strict=True):
        if got.dtype.kind not in "biu":
            nan = np.isnan(wanted.astype("float64"))
            np.testing.assert_array_equal(np.isnan(got.astype("float64")), nan)
            got, wanted = got[~nan], wanted[~nan]
        np.testing.assert_array_equal(got.view(np.uint8), wanted.view(np.uint8))


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
@pytest.mark.parametrize("operator", ["add", "sub", "mul", "div", "min", "max", "eq", "ne", "lt", "le", "gt", "ge"])
def test_arithmetic_is_the_interpreters(run, operator: str, dtype: str) -> None:
    result = "bool" if operator in ("eq", "ne", "lt", "le", "gt", "ge") else dtype
    function = map_function(result, [dtype, dtype], lambda x, y: Binary(operator, x, y))
    other = samples(dtype, 1)
    if operator == "div" and dtype in INTEGERS:
        other = np.where((other == 0) | (other == -1), 3, other).astype(dtype)
    if operator in ("min", "max") and dtype in FLOATS:
        other[1] = 1.0  # which zero is the smaller is not specified
    check(run, function, [samples(dtype), other])


@pytest.mark.parametrize("dtype", INTEGERS)
def test_an_integer_division_never_traps(run, dtype: str) -> None:
    function = map_function(dtype, [dtype, dtype], lambda x, y: Binary("mod", Binary("div", x, y), y))
    with np.errstate(all="ignore"):
        divisors = samples(dtype)
        divisors[:128] = 0
        divisors[128:] = np.array(-1).astype(dtype)
    output = np.empty(256, dtype)
    run(function, [samples(dtype, 1), divisors], [output])


@pytest.mark.parametrize("dtype", [*INTEGERS, "bool"])
@pytest.mark.parametrize("operator", ["and", "or", "xor"])
def test_logic_is_the_interpreters(run, operator: str, dtype: str) -> None:
    function = map_function(dtype, [dtype, dtype], lambda x, y: Binary(operator, x, y))
    check(run, function, [samples(dtype), samples(dtype, 1)])


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("operator", ["shl", "shr"])
def test_shifts_are_the_interpreters(run, operator: str, dtype: str) -> None:
    amounts = np.arange(256).astype(dtype) % np.array(np.dtype(dtype).itemsize * 8).astype(dtype)
    check(run, map_function(dtype, [dtype, dtype], lambda x, y: Binary(operator, x, y)), [samples(dtype), amounts])


@pytest.mark.parametrize("dtype", ["int16", "int64", "uint8"])
def test_an_integer_remainder_has_the_sign_of_the_dividend(run, dtype: str) -> None:
    function = map_function(dtype, [dtype, dtype], lambda x, y: Binary("mod", x, y))
    divisors = samples(dtype, 1)
    check(run, function, [samples(dtype), np.where((divisors == 0) | (divisors == -1), 7, divisors).astype(dtype)])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_float_remainder_is_exact(run, dtype: str) -> None:
    divisors = samples(dtype, 1)[np.random.default_rng(2).permutation(256)]
    check(run, map_function(dtype, [dtype, dtype], lambda x, y: Binary("fmod", x, y)), [samples(dtype), divisors])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_remainder_by_a_subnormal_number_is_exact(run, dtype: str) -> None:
    random, least = np.random.default_rng(3), float(np.finfo(dtype).smallest_subnormal)
    dividends = samples(dtype)
    dividends[::2] = (random.integers(1, 100_000, 128) * least).astype(dtype)
    divisors = (random.integers(1, 1000, 256) * least).astype(dtype)
    check(run, map_function(dtype, [dtype, dtype], lambda x, y: Binary("fmod", x, y)), [dividends, divisors])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("operator", ["neg", "abs", "sqrt", "floor", "ceil", "trunc", "round_even"])
def test_unary_functions_of_floats_are_the_interpreters(run, operator: str, dtype: str) -> None:
    check(run, map_function(dtype, [dtype], lambda x: Unary(operator, x)), [samples(dtype)])


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("operator", ["neg", "abs", "bitnot", "clz", "popcount"])
def test_unary_functions_of_integers_are_the_interpreters(run, operator: str, dtype: str) -> None:
    check(run, map_function(dtype, [dtype], lambda x: Unary(operator, x)), [samples(dtype)])


@pytest.mark.parametrize("target", ["bool", *INTEGERS, *FLOATS])
@pytest.mark.parametrize("source", ["bool", *INTEGERS, *FLOATS])
def test_casts_saturate_and_round_to_nearest_even(run, source: str, target: str) -> None:
    check(run, map_function(target, [source], lambda x: Cast(x, target)), [samples(source)])


@pytest.mark.parametrize("source", ["float16", "float32", "float64"])
@pytest.mark.parametrize("target", ["float16", "bfloat16", "float32"])
def test_narrowing_needs_no_conversion_instructions(source: str, target: str, load_image) -> None:
    function = map_function(target, [source], lambda x: Cast(x, target), 4096)
    bits = np.random.default_rng(5).integers(0, 2**63, 4096, dtype=np.uint64) * 2
    array = bits.view(np.float64) if source == "float64" else bits.astype(f"uint{source[5:]}").view(source)
    output = np.empty(4096, numpy_dtype(target))
    image = load_image(compile_functions([function], BASELINE))
    assert image.status("kernel", [array], [output]) == 0
    with np.errstate(all="ignore"):
        (expected,) = run_function(function, [array])
        nan = np.isnan(expected.astype("float64"))
        assert np.isnan(output[nan].astype("float64")).all()
    np.testing.assert_array_equal(output[~nan].view(np.uint8), expected[~nan].view(np.uint8))


@pytest.mark.parametrize("operator", ["floor", "ceil", "trunc", "round_even"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounding_needs_no_library(operator: str, dtype: str, load_image) -> None:
    function = map_function(dtype, [dtype], lambda x: Unary(operator, x))
    array = samples(dtype)
    (expected,) = run_function(function, [array])
    output = np.empty(256, dtype)
    image = load_image(compile_functions([function], BASELINE))
    assert image.status("kernel", [array], [output]) == 0
    numbers = ~np.isnan(array)
    np.testing.assert_array_equal(output[numbers].view(np.uint8), expected[numbers].view(np.uint8))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_fused_multiply_add_rounds_once(run, dtype: str) -> None:
    kind = Type(dtype, LANES)
    function = map_function(dtype, [dtype] * 3, lambda x, y, z: Intrinsic("fma", (x, y, z), kind))
    check(run, function, [samples(dtype), samples(dtype, 1), samples(dtype, 2)])


def test_transcendental_functions_are_expanded(run) -> None:
    kind = Type("float32", LANES)
    function = map_function("float32", ["float32"], lambda x: Intrinsic("tanh", (Intrinsic("exp", (x,), kind),), kind))
    array, output = np.linspace(-3, 3, 256, dtype="float32"), np.empty(256, "float32")
    run(function, [array], [output])
    np.testing.assert_allclose(output, np.tanh(np.exp(array)), rtol=1e-6)


def test_a_select_takes_lanes(run) -> None:
    function = map_function("float32", ["bool", "float32", "float32"], Select)
    check(run, function, [samples("bool"), samples("float32"), samples("float32", 1)])


@pytest.mark.parametrize(
    "pair", [("float32", "uint32"), ("int64", "float64"), ("bfloat16", "uint16"), ("uint8", "int8")]
)
def test_a_bitcast_keeps_the_bits(run, pair: tuple[str, str]) -> None:
    function = map_function(pair[1], [pair[0]], lambda x: Bitcast(x, pair[1]))
    check(run, function, [samples(pair[0])])


def test_custom_datatypes_travel_as_their_storage(run) -> None:
    inside, outside = vector("x", "custom[posit]16"), vector("out", "custom[posit]16")
    bits = Bitcast(Load(inside, (lanes(),)), "uint16")
    body = Store(
        outside, (lanes(),), Bitcast(Binary("add", bits, Constant(1, Type("uint16", LANES))), "custom[posit]16")
    )
    output = np.zeros(LANES, "uint16")
    run(Function("kernel", (inside, outside), 1, body), [np.arange(LANES, dtype="uint16")], [output])
    np.testing.assert_array_equal(output, np.arange(1, LANES + 1))


@pytest.mark.parametrize("operator", ["add", "mul", "min", "max"])
@pytest.mark.parametrize("dtype", ["int32", "uint8", "float16", "float32", "float64"])
@pytest.mark.parametrize("count", [1, 5, 16])
def test_a_horizontal_reduction_gives_one_value(run, operator: str, dtype: str, count: int) -> None:
    x, out = vector("x", dtype, count), vector("out", dtype, 1)
    value = Load(x, (lanes(0, count) if count > 1 else b.index(0),))
    body = Store(out, (b.index(0),), Horizontal(operator, value))
    array = (np.arange(count) % 3 + 1).astype(dtype)
    check(run, Function("kernel", (x, out), 1, body), [array])


@pytest.mark.parametrize("operator", ["and", "or"])
@pytest.mark.parametrize("number", [0, 255, 4])
def test_a_horizontal_reduction_of_conditions(run, operator: str, number: int) -> None:
    x, out = vector("x", "bool"), vector("out", "bool", 1)
    body = Store(out, (b.index(0),), Horizontal(operator, Load(x, (lanes(),))))
    check(run, Function("kernel", (x, out), 1, body), [np.array([bool(number >> bit & 1) for bit in range(8)])])


def test_a_horizontal_maximum_keeps_a_nan(run) -> None:
    x, out = vector("x", "float32", 7), vector("out", "float32", 1)
    body = Store(out, (b.index(0),), Horizontal("max", Load(x, (lanes(0, 7),))))
    check(run, Function("kernel", (x, out), 1, body), [np.array([1, 2, np.nan, 4, 5, 6, 7], "float32")])


@pytest.mark.parametrize("chosen", [(3, 1, 11, 8), (2,), (15, 14, 13, 12, 0, 1, 2, 3)])
def test_a_shuffle_chooses_lanes(run, chosen: tuple[int, ...]) -> None:
    x, y, out = vector("x", "float32"), vector("y", "float32"), vector("out", "float32", len(chosen))
    place = lanes(0, len(chosen)) if len(chosen) > 1 else b.index(0)
    body = Store(out, (place,), Shuffle((Load(x, (lanes(),)), Load(y, (lanes(),))), chosen))
    check(run, Function("kernel", (x, y, out), 1, body), [samples("float32")[:8], samples("float32", 1)[:8]])


def test_scalars_are_shuffled_into_a_vector(run) -> None:
    x, out = vector("x", "float32"), vector("out", "float32", 3)
    scalars = tuple(Load(x, (b.index(lane),)) for lane in (5, 0, 2))
    body = Store(out, (lanes(0, 3),), Shuffle(scalars, (2, 1, 0)))
    check(run, Function("kernel", (x, out), 1, body), [np.arange(8, dtype="float32")])


@pytest.mark.parametrize("stride", [-2, -1, 0, 1, 2, 3, 4, 7])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bool", "int64", "uint8"])
def test_any_step_from_lane_to_lane_is_loaded(run, stride: int, masked: bool, dtype: str) -> None:
    size = abs(stride) * 7 + 1
    x, out, limit = vector("x", dtype, size), vector("out", dtype), vector("limit", "int64", 1)
    base = b.index(size - 1 if stride < 0 else 0)
    mask = None
    if masked:
        mask = Binary("lt", lanes(), Broadcast(Load(limit, (b.index(0),)), LANES))
    body = Store(out, (lanes(),), Load(x, (Ramp(base, stride, LANES),), mask))
    array = (np.arange(size) % 2 if dtype == "bool" else np.arange(size) + 1).astype(dtype)
    for number in (0, 5, 8):
        check(run, Function("kernel", (x, limit, out), 1, body), [array, np.array([number])])


@pytest.mark.parametrize("stride", [-1, 1, 2])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_any_step_from_lane_to_lane_is_stored(run, stride: int, masked: bool, dtype: str) -> None:
    size = abs(stride) * 7 + 1
    x, out = vector("x", dtype), vector("out", dtype, size)
    base = b.index(size - 1 if stride < 0 else 0)
    mask = Binary("ge", lanes(), Constant(3, Type("int64", LANES))) if masked else None
    clear = Block(tuple(Store(out, (b.index(place),), b.constant(0, dtype)) for place in range(size)))
    body = Block((clear, Store(out, (Ramp(base, stride, LANES),), Load(x, (lanes(),)), mask)))
    check(run, Function("kernel", (x, out), 1, body), [samples(dtype)[:8]])


def test_lanes_are_gathered_from_anywhere(run) -> None:
    x, where, out = vector("x", "float32", 9), vector("where", "int64"), vector("out", "float32")
    body = Store(out, (lanes(),), Load(x, (Load(where, (lanes(),)),)))
    places = np.array([8, 0, 3, 3, 1, 7, 2, 5])
    check(run, Function("kernel", (x, where, out), 1, body), [np.arange(9, dtype="float32"), places])


def test_a_scalar_that_is_switched_off_is_neither_read_nor_written(run) -> None:
    x, out, on = vector("x", "float32", 1), vector("out", "float32", 2), vector("on", "bool", 1)
    switch = Load(on, (b.index(0),))
    inside = Load(x, (b.select(switch, b.index(0), b.index(1 << 40)),), switch)
    body = Block(
        (
            Store(out, (b.index(0),), inside),
            Store(out, (b.index(1),), b.constant(0, "float32")),
            Store(out, (b.select(switch, b.index(1), b.index(1 << 40)),), b.constant(9, "float32"), switch),
        )
    )
    function = Function("kernel", (x, on, out), 1, body)
    for value in (True, False):
        check(run, function, [np.array([5], "float32"), np.array([value])])


@pytest.mark.parametrize("operator", ["lt", "le", "gt", "ge", "eq"])
@pytest.mark.parametrize("step", [1, 3, -2])
def test_masks_that_count_are_those_of_the_comparison(run, operator: str, step: int) -> None:
    bound, out = vector("bound", "int64", 1), vector("out", "bool")
    mask = Binary(operator, Ramp(b.index(1), step, LANES), Broadcast(Load(bound, (b.index(0),)), LANES))
    function = Function("kernel", (bound, out), 1, Store(out, (lanes(),), mask))
    for number in range(-20, 30, 3):
        check(run, function, [np.array([number])])


def test_statements_nest(run) -> None:
    x, out = vector("x", "int64", 6), vector("out", "int64", 6)
    i, j, total = Variable("i"), Variable("j"), Variable("total")
    memory = Buffer("memory", "int64", (b.index(2),), memory="register")
    first, second = (b.index(0),), (b.index(1),)
    body = For(
        i,
        b.index(6),
        "serial",
        Allocate(
            memory,
            Block(
                (
                    Store(memory, first, b.index(0)),
                    For(j, Load(x, (i,)), "serial", Store(memory, first, b.add(Load(memory, first), j))),
                    For(j, b.index(2), "unrolled", Store(memory, (j,), b.add(Load(memory, first), j))),
                    Let(
                        total,
                        b.add(Load(memory, first), Load(memory, second)),
                        If(b.less(total, 9), Store(out, (i,), total), Store(out, (i,), b.index(-1))),
                    ),
                )
            ),
        ),
    )
    check(run, Function("kernel", (x, out), 1, body), [np.array([0, 1, 2, 3, 4, 5])])


def squares_in_branches() -> Function:
    """Stores of ``(3 i) * (3 i)`` before, in both arms of, and after a condition, in that many of 4 rows."""
    x, out = vector("x", "int64", 6), Buffer("out", "int64", (b.index(4), b.index(6)))
    i = Variable("i")

    def store(row: int) -> Store:
        triple = b.multiply(Load(x, (i,)), 3)
        return Store(out, (b.index(row), i), Binary("mul", triple, b.multiply(b.add(i, 1), b.add(i, 1))))

    arms = If(b.less(Load(x, (i,)), 3), store(1), Block((store(2), store(1))))
    zeros = tuple(Store(out, (b.index(row), i), b.index(0)) for row in range(4))
    return Function("kernel", (x, out), 1, For(i, b.index(6), "serial", Block((*zeros, arms, store(3), store(0)))))


def test_what_is_known_outside_a_block_is_used_inside_and_not_the_other_way_round(run) -> None:
    check(run, squares_in_branches(), [np.array([0, 5, 2, 3, 1, 9])])
    lines = [line.partition(" = ")[2] for line in emit_ir(squares_in_branches(), BASELINE).splitlines()]
    assert lines.count("add i64 %loop1.i, 1") == 3  # once in each arm, and once behind both
    assert lines.count("getelementptr inbounds i64, ptr %p0, i64 %loop1.i") == 1
    assert lines.count("load i64, ptr %v6, align 8") == 6  # of which one for the condition: memory may have changed


def tile_and_loop(uses_tile: bool, beside: bool = False, tiles: int = 1) -> Function:
    """Sums in a register, kept in memory, and a loop of exponentials over that memory or over the register.

    The loop stands behind the sums, where their register is still theirs, or ``beside`` them and a loop over ``tiles``.
    """
    x, out = vector("x", "float32"), Buffer("out", "float32", (b.index(32), b.index(LANES)))
    totals = Buffer("totals", "float32", (b.index(LANES),), memory="register")
    sums = Buffer("sums", "float32", (b.index(LANES),), memory="scratch")
    tile, row = Variable("tile"), Variable("row")
    source = totals if uses_tile else sums
    value = b.multiply(Intrinsic("exp", (Load(source, (lanes(),)),), Type("float32", LANES)), 2.0)
    count = b.cast(b.add(row, tile), "float32")
    loop = For(row, b.index(32), "serial", Store(out, (row, lanes()), b.add(value, Broadcast(count, LANES))))
    keep = Store(sums, (lanes(),), Load(totals, (lanes(),)))
    sum_up = Store(totals, (lanes(),), b.multiply(Load(x, (lanes(),)), 0.5))
    body: Statement = Allocate(totals, Block((sum_up, Allocate(sums, Block((keep, loop))))))
    if beside:
        own = For(Variable("own"), b.index(tiles), "serial", Allocate(totals, Block((sum_up, keep))))
        body = Allocate(sums, Block((own, loop)))
    return Function("kernel", (x, out), 1, For(tile, b.index(3), "serial", body))


@pytest.mark.parametrize("uses_tile", [False, True])
def test_a_loop_behind_a_tile_of_registers_is_a_function_of_its_own(run, uses_tile: bool) -> None:
    check_tile_and_loop(run, tile_and_loop(uses_tile), is_apart=not uses_tile)


@pytest.mark.parametrize("tiles", [1, 2])
def test_a_loop_of_intrinsics_beside_a_tile_in_the_same_loop_is_a_function_of_its_own(run, tiles: int) -> None:
    check_tile_and_loop(run, tile_and_loop(uses_tile=False, beside=True, tiles=tiles), is_apart=tiles == 1)


def check_tile_and_loop(run, function: Function, is_apart: bool) -> None:
    assert ("@kernel.part1(" in emit_ir(function, host_target())) is is_apart
    array, outputs = np.linspace(-2, 2, LANES, dtype="float32"), [np.zeros((32, LANES), "float32")]
    run(function, [array], outputs)
    expected = 2 * np.exp(array / 2) + np.arange(2, 34)[:, None]
    np.testing.assert_allclose(outputs[0], expected, rtol=1e-6)


def test_an_unknown_intrinsic_is_refused() -> None:
    function = map_function("float32", ["float32"], lambda x: Intrinsic("extern:magic", (x,), Type("float32", LANES)))
    with pytest.raises(CompileError) as error:
        emit_ir(function, host_target())
    assert str(error.value) == (
        "the built-in compiler has no intrinsic 'extern:magic' of type float32x8; expand it to arithmetic first"
    )


def test_the_text_of_a_small_kernel(golden) -> None:
    x, out, i = vector("x", "float32", 100), vector("out", "float32", 100), Variable("i")
    place = (Ramp(Binary("mul", i, Constant(16, INT64)), 1, 16),)
    mask = Binary("lt", place[0], Constant(100, INT64.with_lanes(16)))
    value = Binary("max", Load(x, place, mask), Constant(0.0, FLOAT32.with_lanes(16)))
    body = For(i, b.index(7), "serial", Store(out, place, value, mask))
    target = target_named("x86-64-v4")
    golden("llvm_relu.ll", emit_ir(Function("relu", (x, out), 1, body), target))


@pytest.mark.parametrize(("size", "brief"), [(64, True), (256 * 64, False)])
def test_a_kernel_of_little_work_is_brief(size: int, brief: bool) -> None:
    function = map_function("float32", ["float32"], lambda x: Unary("neg", x), size)
    assert (BRIEF in emit_ir(function, host_target())) is brief


def test_a_kernel_of_unknown_extent_is_not_brief() -> None:
    extent, i = Variable("n"), Variable("i")
    x, out = Buffer("x", "float32", (extent,)), Buffer("out", "float32", (extent,))
    body = For(i, extent, "serial", Store(out, (i,), Load(x, (i,))))
    assert BRIEF not in emit_ir(Function("copy", (x, out), 1, body), host_target())


def test_products_and_sums_round_alike_in_kernels_of_any_size(run) -> None:
    random = np.random.default_rng(5)
    x, y, z = (random.standard_normal(4096).astype("float32") for _ in range(3))
    results = []
    for size in (64, 4096):
        function = map_function("float32", ["float32"] * 3, lambda x, y, z: Binary("add", Binary("mul", x, y), z), size)
        results.append(np.empty(size, "float32"))
        run(function, [x[:size], y[:size], z[:size]], [results[-1]])
    np.testing.assert_array_equal(results[0], results[1][:64])
