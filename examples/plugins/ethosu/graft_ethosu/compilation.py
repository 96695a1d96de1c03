"""From a region to a module: its layers in one TOSA graph, that graph by Vela, both in the module's bytes."""

import json
from functools import lru_cache

import numpy as np

import graft
from graft.core.graph.view import NodeView
from graft.errors import CompileError
from graft.plugins.c_driver import driven
from graft.plugins.toolkits.compile_cache import remembered
from graft.runtime.c_source import Driver
from graft_ethosu import elementwise, moves, pooling, products, softmax
from graft_ethosu.blob import KIND, NAMES, opened, packed, parts_of
from graft_ethosu.building import Builder
from graft_ethosu.lowering import lower
from graft_ethosu.reading import Refused, read, table_of
from graft_ethosu.vela import compiled, configuration

TABLE = "ethosu.table"
FAMILIES = (elementwise, moves, pooling, products, softmax)
"""Where lowerings stand: what is imported adds its rows."""
known = lru_cache(maxsize=256)(compiled)
ESTIMATES = {}
"""The seconds of graphs that were compiled, by hash and options: of those from the cache Vela is not asked."""


def add(root, builder, is_table):
    """Add what ends in a node to a graph; raise Refused."""
    if is_table:
        builder.graph.origin = root.name
        elementwise.add_table(*table_of(root, builder), builder)
    else:
        lower(read(root), builder)


def refusal(root, options, is_table=False):
    """Return why the NPU does not compute what ends in a node, None if it does: Vela is asked."""
    builder = Builder(options.family)
    try:
        add(root, builder, is_table)
        for value in root.outputs:
            if value.name:
                builder.output(value)
        known(builder.graph.flatbuffer(), options, root.where)
    except Refused as refused:
        return refused.reject
    except CompileError as error:
        return graft.Reject("size", error.message.removeprefix("ethosu: "))
    return None


def graph_of(region, family):
    """Return the TOSA graph of a region; raise CompileError that names the nodes that have no place in it."""
    builder = Builder(family)
    for value in region.inputs:
        builder.read(value)
    for node in region.nodes():
        found = region.composite(node)
        try:
            if found is None:
                add(node, builder, False)
                continue
            name, body = found
            _bind(builder, body.inputs, node.node.inputs)
            add(NodeView(body.outputs[0].producer()), builder, name == TABLE)
            _bind(builder, node.node.outputs, body.outputs)
        except Refused as refused:
            names = [one.name for one in region.opened(node)]
            raise CompileError(f"ethosu: {node.where}: {refused}", nodes=names, reject=refused.reject) from refused
    for value in region.outputs:
        builder.output(value)
    return builder.graph


def _bind(builder, names, values):
    """Let tensors have the values of others."""
    for name, value in zip(names, values, strict=True):
        if value is not None and value.name in builder.values:
            builder.values[name.name] = builder.values[value.name]


def seconds_of(region, options):
    """Return the time that Vela estimates of a region."""
    data = graph_of(region, options.family).flatbuffer()
    return ESTIMATES.get((hash(data), options)) or known(data, options, f"region '{region.name}'").seconds


def module_of(region, options, cache, version):
    """Return the module of a region; Vela is not asked where any process had the same graph compiled into ``cache``."""
    graph = graph_of(region, options.family)
    header = {name: [{"dtype": one.dtype, "shape": one.static_shape} for one in views]
              for name, views in (("inputs", region.inputs), ("outputs", region.outputs))}  # fmt: skip
    known_by = [KIND, 1, version, options.accelerator, options.optimise, *configuration(options), header]
    parts = json.dumps(known_by).encode(), graph.flatbuffer()
    data = remembered(cache, parts, lambda: _bytes_of(graph, options, header, f"region '{region.name}'"))
    header, _ = opened(data)
    ESTIMATES[hash(parts[-1]), options] = header["cycles"] / header["clock"]
    driver = Driver("ethosu", {name: at for name, at in parts_of(data).items() if name != "graph"}, 16)
    source = driven(region, driver, -(-header["scratch"] // 16) * 16 + header["fast_scratch"])
    return graft.Module(region.name, KIND, (region.name,), data, install="pip install graft-ethosu", source=source)


def _bytes_of(graph, options, header, where):
    """Return a module's bytes, by Vela."""
    from graft_ethosu.tosa_graph import SIMULATED

    made = known(graph.flatbuffer(), options, where)
    places = np.array([*made.inputs, *made.outputs, -(-made.scratch // 16) * 16], "<u4").tobytes()
    sections = (made.commands, made.weights, places, graph.flatbuffer(SIMULATED))
    named = ("scratch", "fast_scratch", "cycles", "clock", "macs", "memories", "messages")
    header |= {name: getattr(made, name) for name in named}
    header |= {"accelerator": options.accelerator, "layers": _layers(made), "transposed": graph.transposed_at_edges()}
    return packed(header, dict(zip(NAMES, sections, strict=True)))


def _layers(made):
    """Return name, operator and cycles of each of Vela's layers that takes any."""
    rows = ((row["name"], row["operator"], int(row["op_cycles"]), int(row["mac_count"])) for row in made.layers)
    return [list(row) for row in rows if row[2]]
