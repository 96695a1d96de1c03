"""ONNX Runtime as a vendor's library: regions of a model run in sessions of its own."""
