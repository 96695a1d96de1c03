"""A module of TensorRT's habits without a device: failures are None or False, engines belong to one device.

Names, signatures and the order of calls are those of TensorRT's Python API (docs.nvidia.com, 11.4); networks are
computed by onnx's reference, from and to memory that `cuda.Driver` gave.
"""

import ctypes
import pickle
from enum import IntEnum

import cuda
import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

__version__ = "11.4.0.106"
WEIGHTS = ("Conv", "Gemm", "MatMul")
built = []
"""Flags of the engines that were built."""
BuilderFlag = IntEnum("BuilderFlag", "TF32 REFIT STRIP_PLAN STRICT_NANS")
NetworkDefinitionCreationFlag = IntEnum("NetworkDefinitionCreationFlag", "STRONGLY_TYPED")


class Logger:
    WARNING = 1

    def __init__(self, least):
        self.least = least


class ParserError:
    def __init__(self, text):
        self._text = text

    def desc(self):
        return self._text


class Parser:
    """What both parsers have: errors by number."""

    def __init__(self, target, logger):
        self.target, self._errors = target, []

    @property
    def num_errors(self):
        return len(self._errors)

    def get_error(self, number):
        return ParserError(self._errors[number])


class OnnxParser(Parser):
    def parse(self, model, path=None):
        proto = onnx.load_from_string(model)
        self._errors = [f"no importer for {one.op_type}" for one in proto.graph.node if one.op_type == "Softplus"]
        self.target.proto = proto
        return not self._errors


class Named:
    def __init__(self, name):
        self.name = name


class Network:
    num_inputs = property(lambda self: len(self.proto.graph.input))
    num_outputs = property(lambda self: len(self.proto.graph.output))

    def get_input(self, place):
        return Named(self.proto.graph.input[place].name)

    def get_output(self, place):
        return Named(self.proto.graph.output[place].name)


class Config:
    def __init__(self):
        self.flags, self.builder_optimization_level = {BuilderFlag.TF32}, 3

    def set_flag(self, flag):
        self.flags.add(flag)

    def clear_flag(self, flag):
        self.flags.discard(flag)


class Builder:
    def __init__(self, logger):
        assert cuda.driver.current, "no current device"

    def create_network(self, flags=0):
        return Network()

    def create_builder_config(self):
        return Config()

    def build_serialized_network(self, network, config):
        if config.builder_optimization_level == 5:
            print("[E] no tactic")
            return None
        built.append(set(config.flags))
        proto, lacking = network.proto, {}
        if BuilderFlag.STRIP_PLAN in config.flags:
            assert BuilderFlag.REFIT in config.flags
            lacking = {name for one in proto.graph.node if one.op_type in WEIGHTS for name in one.input[1:]}
            lacking = {one.name: list(one.dims) for one in proto.graph.initializer if one.name in lacking}
            kept = [one for one in proto.graph.initializer if one.name not in lacking]
            del proto.graph.initializer[:]
            proto.graph.initializer.extend(kept)
        return memoryview(pickle.dumps((cuda.driver.current[-1], proto.SerializeToString(), lacking)))


class Runtime:
    def __init__(self, logger):
        pass

    def deserialize_cuda_engine(self, data):
        device, model, lacking = pickle.loads(data)
        return Engine(onnx.load_from_string(model), lacking) if device == cuda.driver.current[-1] else None


class Engine:
    def __init__(self, proto, lacking):
        self.proto, self.lacking = proto, lacking
        self.types = {one.name: one.type.tensor_type for one in (*proto.graph.input, *proto.graph.output)}

    def get_tensor_shape(self, name):
        return [one.dim_value for one in self.types[name].shape.dim]

    def get_tensor_dtype(self, name):
        return self.types[name].elem_type

    def create_execution_context(self):
        return Context(self)


def nptype(number):
    return onnx.helper.tensor_dtype_to_np_dtype(number).type


class Refitter:
    def __init__(self, engine, logger):
        self.engine = engine

    def refit_cuda_engine(self):
        return not self.engine.lacking

    def get_missing_weights(self):
        return list(self.engine.lacking)


class OnnxParserRefitter(Parser):
    def refit_from_bytes(self, model, path=None):
        engine = self.target.engine
        for one in onnx.load_from_string(model).graph.initializer:
            if one.name in engine.lacking:
                if engine.lacking.pop(one.name) != list(one.dims):
                    self._errors.append(f"another count of {one.name}")
                engine.proto.graph.initializer.append(one)
        return not self._errors


class Context:
    def __init__(self, engine):
        assert not engine.lacking
        self._engine, self._addresses = engine, {}
        self._evaluator = ReferenceEvaluator(engine.proto)

    def set_tensor_address(self, name, address):
        self._addresses[name] = address
        return True

    def _array(self, name):
        dtype, shape = np.dtype(nptype(self._engine.get_tensor_dtype(name))), self._engine.get_tensor_shape(name)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        whole = (ctypes.c_char * size).from_address(self._addresses[name])
        return np.frombuffer(whole, dtype).reshape(shape)

    def execute_async_v3(self, stream):
        assert cuda.driver.current and stream in cuda.driver.streams
        graph = self._engine.proto.graph
        results = self._evaluator.run(None, {one.name: self._array(one.name).copy() for one in graph.input})
        for one, result in zip(graph.output, results, strict=True):
            self._array(one.name)[...] = result
        return True
