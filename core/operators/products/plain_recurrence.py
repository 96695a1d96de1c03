"""RNN, GRU and LSTM as a Scan over plain operators: what they are differentiated through."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnx import TypeProto, helper

from graft.core.operators.definition.function_body import Body

DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
"""Functions of the gates, in ONNX's order."""
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
TAKES = {
    "LeakyRelu": {"alpha": 0.01}, "ThresholdedRelu": {"alpha": 1.0}, "Elu": {"alpha": 1.0},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5}, "Affine": {"alpha": 1.0, "beta": 0.0},
    "ScaledTanh": {"alpha": 1.0, "beta": 1.0},
}  # fmt: skip
"""Parameters of functions, with their defaults."""
Function = Callable[[str], str]
Step = Callable[[list[str], str], list[str]]
"""The states after a step, of those before it and the product of its input."""


def recurrence(f: Body) -> None:
    """Give all hidden states, the last one, and the last cell."""
    x, lengths = f.input(0), f.input(4)
    directions = 2 if f.attribute("direction", "forward") == "bidirectional" else 1
    by_batch = bool(f.attribute("layout", 0))
    x = f.transposed(x, 1, 0, 2) if by_batch else x
    functions = _functions(f, directions)
    all_states, last_states, last_cells = [], [], []
    for number in range(directions):
        backwards = f.attribute("direction", "forward") == "reverse" or number == 1
        found = _direction(f, x, lengths, number, functions[number], backwards, by_batch)
        all_states.append(f.unsqueezed(found[0], 1))
        last_states.append(f.unsqueezed(found[1], 0))
        last_cells.append(f.unsqueezed(found[2], 0) if len(found) > 2 else "")
    for number, (parts, axis) in enumerate(((all_states, 1), (last_states, 0), (last_cells, 0))):
        if f.wants(number):
            whole = f.concatenated(*parts, axis=axis) if directions > 1 else parts[0]
            if by_batch:
                whole = f.transposed(whole, 2, 0, 1, 3) if number == 0 else f.transposed(whole, 1, 0, 2)
            f.give(number, whole)


def _functions(f: Body, directions: int) -> list[list[Function]]:
    """Return the functions of each direction; parameters go in order to those that take some."""
    names = f.attribute("activations") or DEFAULTS[f.node.op_type] * directions
    alphas, betas = list(f.attribute("activation_alpha") or []), list(f.attribute("activation_beta") or [])
    known = {name.lower(): name for name in (*TAKES, "Relu", "Tanh", "Sigmoid", "Softsign", "Softplus")}
    found: list[Function] = []
    for name in (known[one.lower()] for one in names):
        takes = TAKES.get(name, {})
        alpha = alphas.pop(0) if "alpha" in takes and alphas else takes.get("alpha", 0.0)
        beta = betas.pop(0) if "beta" in takes and betas else takes.get("beta", 0.0)
        found.append(_function(f, name, alpha, beta))
    each = len(DEFAULTS[f.node.op_type])
    return [found[place : place + each] for place in range(0, len(found), each)]


def _function(f: Body, name: str, alpha: float, beta: float) -> Function:
    if name == "Affine":
        return lambda x: f("Add", f.scaled(x, alpha), f.like(beta, x))
    if name == "ScaledTanh":
        return lambda x: f.scaled(f("Tanh", f.scaled(x, beta)), alpha)
    given = {key: value for key, value in (("alpha", alpha), ("beta", beta)) if key in TAKES.get(name, {})}
    return lambda x: f(name, x, **given)


def _direction(
    f: Body, x: str, lengths: str, number: int, functions: list[Function], backwards: bool, by_batch: bool
) -> list[str]:
    """Return all hidden states ``[step, batch, unit]``, the last one, and the last cell of an LSTM."""
    kind, size = f.node.op_type, f.attribute("hidden_size")
    weights, recurrent = (_part(f, f.input(place), number) for place in (1, 2))
    bias = _part(f, f.input(3), number) if f.input(3) else ""
    count = GATES[kind] * size
    own, other = [f.sliced(bias, 0, 0, count), f.sliced(bias, 0, count, 2 * count)] if bias else ["", ""]
    states = [_initial(f, x, place, number, size, by_batch) for place in ((5, 6) if kind == "LSTM" else (5,))]
    peepholes = _part(f, f.input(7), number) if kind == "LSTM" and f.input(7) else ""
    step = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}[kind](f, recurrent, other, peepholes, functions, size)
    if backwards and lengths:
        x = f("ReverseSequence", x, f.cast(lengths, 7), time_axis=0, batch_axis=1)
    product = f("MatMul", x, f.swapped(weights))
    product = f("Add", product, own) if own else product
    found = _scan(f, states, product, step, lengths, backwards and not lengths)
    every = found[-1]
    if backwards and lengths:
        every = f("ReverseSequence", every, f.cast(lengths, 7), time_axis=0, batch_axis=1)
    return [every, *found[:-1]]


def _part(f: Body, value: str, number: int) -> str:
    """Return what a direction has of a value."""
    return f("Squeeze", f.sliced(value, 0, number, number + 1), f.ints(0))


def _initial(f: Body, x: str, place: int, number: int, size: int, by_batch: bool) -> str:
    if f.input(place):
        given = f.transposed(f.input(place), 1, 0, 2) if by_batch else f.input(place)
        return _part(f, given, number)
    zeros = f("Expand", f.like(0.0, x), f.concatenated(f.extent(x, 1), f.ints(size), axis=0))
    kind = TypeProto()
    kind.CopyFrom(f.types[x])
    del kind.tensor_type.shape.dim[0]
    kind.tensor_type.shape.dim[1].dim_value = size
    f.types[zeros] = kind
    return zeros


def _scan(f: Body, states: Sequence[str], product: str, step: Step, lengths: str, backwards: bool) -> list[str]:
    """Return states after all steps, and the first state after each; rows that are at their end keep theirs."""
    sliced = f.types[product]
    inner_type = TypeProto()
    inner_type.CopyFrom(sliced)
    del inner_type.tensor_type.shape.dim[0]
    carried = [f.fresh(f"{name}/carried") for name in states]
    part = f.fresh(f"{product}/step")
    f.types.update({name: f.types[state] for name, state in zip(carried, states, strict=True)} | {part: inner_type})
    slices, parts = [product], [part]
    if lengths:
        place = f.counted(f.extent(product, 0))
        going = f("Less", f.unsqueezed(place, 1), f.unsqueezed(f.cast(lengths, 7), 0))
        slices.append(f.unsqueezed(going, 2))
        parts.append(f.fresh(f"{going}/step"))
        f.types[parts[1]] = helper.make_tensor_type_proto(9, [None, 1])
    with f.apart() as inner:
        after = step(carried, part)
        every = after[0]
        if lengths:
            every = f("Where", parts[1], every, f.like(0.0, every))
            after = [f("Where", parts[1], new, old) for new, old in zip(after, carried, strict=True)]
        every = f("Identity", every)
        for new, old in zip((*after, every), (*states, states[0]), strict=True):
            f.types[new] = f.types[old]
    given, made = (
        [helper.make_value_info(name, f.types[name]) for name in names]
        for names in ((*carried, *parts), (*after, every))
    )
    body = helper.make_graph(inner, f"{product}/steps", given, made)
    found = f.several(
        len(states) + 1, "Scan", *states, *slices, body=body, num_scan_inputs=len(slices),
        scan_input_directions=[int(backwards)] * len(slices), scan_output_directions=[int(backwards)],
    )  # fmt: skip
    for name, state in zip(found, states, strict=False):
        f.types[name] = f.types[state]
    whole = TypeProto()
    whole.CopyFrom(sliced)
    whole.tensor_type.shape.dim[2].CopyFrom(f.types[states[0]].tensor_type.shape.dim[1])
    f.types[found[-1]] = whole
    return found


def _clipped(f: Body, value: str) -> str:
    bound = f.attribute("clip", 0.0)
    return f("Clip", value, f.like(-bound, value), f.like(bound, value)) if bound else value


def _gates(f: Body, value: str, size: int, count: int) -> list[str]:
    return [f.sliced(value, -1, place * size, (place + 1) * size) for place in range(count)]


def _onward(f: Body, state: str, transposed: str, bias: str) -> str:
    """Return what a state adds; the weights are transposed already, once for all steps."""
    product = f("MatMul", state, transposed)
    return f("Add", product, bias) if bias else product


def _rnn(f: Body, recurrent: str, bias: str, peepholes: str, functions: list[Function], size: int) -> Step:
    transposed = f.swapped(recurrent)

    def step(states: list[str], part: str) -> list[str]:
        return [functions[0](_clipped(f, f("Add", part, _onward(f, states[0], transposed, bias))))]

    return step


def _gru(f: Body, recurrent: str, bias: str, peepholes: str, functions: list[Function], size: int) -> Step:
    """Update gate z, reset gate r, and what the state becomes."""
    weights = [f.swapped(f.sliced(recurrent, 0, place * size, (place + 1) * size)) for place in range(3)]
    biases = [f.sliced(bias, 0, place * size, (place + 1) * size) if bias else "" for place in range(3)]

    def step(states: list[str], part: str) -> list[str]:
        hidden, parts = states[0], _gates(f, part, size, 3)
        z, r = (
            functions[0](_clipped(f, f("Add", parts[place], _onward(f, hidden, weights[place], biases[place]))))
            for place in range(2)
        )
        if f.attribute("linear_before_reset", 0):
            onward = f("Mul", r, _onward(f, hidden, weights[2], biases[2]))
        else:
            onward = _onward(f, f("Mul", r, hidden), weights[2], biases[2])
        new = functions[1](_clipped(f, f("Add", parts[2], onward)))
        return [f("Add", f("Mul", f("Sub", f.like(1.0, z), z), new), f("Mul", z, hidden))]

    return step


def _lstm(f: Body, recurrent: str, bias: str, peepholes: str, functions: list[Function], size: int) -> Step:
    """Input, output and forget gate, and the new part of the cell, in ONNX's order; peepholes of the first three."""
    seen, transposed = _gates(f, peepholes, size, 3) if peepholes else [], f.swapped(recurrent)

    def gate(value: str, cell: str, number: int) -> str:
        value = f("Add", value, f("Mul", seen[number], cell)) if seen else value
        return functions[0](_clipped(f, value))

    def step(states: list[str], part: str) -> list[str]:
        hidden, cell = states
        i, o, g, c = _gates(f, f("Add", part, _onward(f, hidden, transposed, bias)), size, 4)
        enter = gate(i, cell, 0)
        keep = f("Sub", f.like(1.0, enter), enter) if f.attribute("input_forget", 0) else gate(g, cell, 2)
        new = f("Add", f("Mul", keep, cell), f("Mul", enter, functions[1](_clipped(f, c))))
        return [f("Mul", gate(o, new, 1), functions[2](new)), new]

    return step
