"""Text to trained model directory: data, tokenizer, `fit`, evaluation. On TensorFlow or JAX."""
