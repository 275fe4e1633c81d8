"""Weights from and for other frameworks."""
