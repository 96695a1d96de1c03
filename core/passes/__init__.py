"""Graph passes over ONNX models, one per file."""
