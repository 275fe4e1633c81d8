"""Export to ONNX, and its client."""
