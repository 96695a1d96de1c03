"""The operator table: one definition per ONNX operator."""
