"""Comparison of an export with the Keras model."""
