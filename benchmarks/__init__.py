"""Benchmarks: each prints a table for each setting, with a peer beside this package in the same run."""
