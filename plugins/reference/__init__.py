"""The backend of last resort: every ONNX operator through onnx.reference."""
