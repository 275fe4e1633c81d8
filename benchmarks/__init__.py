"""Benchmarks: each prints one table, with a peer beside this package in the same run."""
