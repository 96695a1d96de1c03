"""Operators as functions over ONNX's own, written in their place when a model is loaded."""
