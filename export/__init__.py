"""Model directory to SavedModel and ONNX, proven equal, and their small clients."""
