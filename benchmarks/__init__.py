"""Benchmarks. Each prints tables that compare this package with other libraries, measured in the same run."""
