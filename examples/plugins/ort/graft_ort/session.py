"""A region in ONNX Runtime: the JSON graph becomes an ONNX model, the model a session."""

import onnxruntime

from graft_ort.onnx_bytes import encode, is_weight


class Session:
    """The engine of a region: arrays in, arrays out, in the graph's order.

    It has one thread: Graft calls regions from threads of its own, and what forks would inherit a pool without its
    threads. It takes no memory pool, since a pool never gives back what one large call has needed.
    """

    def __init__(self, graph, constants):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = False
        options.log_severity_level = 3
        self.constants = constants  # the session reads weights where they are: mapped from the artifact, not copied
        arrays = {f"v{at}": constants[node.name] for at, node in enumerate(graph.nodes) if node.op == "const"}
        weights = {name: array for name, array in arrays.items() if is_weight(array)}
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
        options.add_external_initializers(list(weights), values)
        model = encode(graph, constants)
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.names = [one.name for one in self.session.get_inputs()]

    def __call__(self, inputs):
        """Compute the region."""
        return self.session.run(None, dict(zip(self.names, inputs, strict=True)))
