"""Text to trained model directory: data, tokenizer, `fit`, evaluation. Needs TensorFlow."""
