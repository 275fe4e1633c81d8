"""The number of cores."""

import math
import os
import sys
from pathlib import Path

#: Linux's file with the control groups of this process, and the folder of all control groups, of version 2.
_GROUPS = Path("/proc/self/cgroup")
_ROOT = Path("/sys/fs/cgroup")


def num_cores() -> int:
    """Number of cores available to this process: its CPU affinity, or the limit of its control group if that is less.

    Docker, Kubernetes and systemd limit a process by control groups. A limit of 1.5 cores is rounded up to 2.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _limit())


def _limit():
    """The smallest limit of the control groups that contain this process; `sys.maxsize` if there is none."""
    try:
        groups = _GROUPS.read_text().splitlines()
        group = _ROOT / next(line[3:].strip("/") for line in groups if line.startswith("0::"))
    except (OSError, StopIteration):
        return sys.maxsize
    folders = [group, *(folder for folder in group.parents if folder.is_relative_to(_ROOT))]
    return min(map(_group_limit, folders))


def _group_limit(folder):
    """The limit of one group: its CPU time per period, divided by the period."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except OSError:
        return sys.maxsize
    return sys.maxsize if quota == "max" else math.ceil(int(quota) / int(period))
