"""The number of cores."""

import os


def num_cores() -> int:
    """Number of cores available to this process: its CPU affinity, on systems that have one."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
