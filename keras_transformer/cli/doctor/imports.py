"""Imports packages, each in a separate process, so that a crash or output of one does not affect this process."""

import concurrent.futures
import json
import os
import signal
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

_PROBE = Path(__file__).with_name("probe.py")
_SECONDS = 120
#: Distribution -> module, where the names differ by more than a hyphen.
_MODULES = {"pyyaml": "yaml"}


class Imported(NamedTuple):
    """The result of an import.

    Attributes:
        error: one line; empty if the import succeeded.
        devices: the devices that TensorFlow, JAX or PyTorch finds; empty for other packages.
    """

    error: str
    devices: tuple[str, ...] = ()


def import_packages(names: Collection[str]) -> dict[str, Imported]:
    """Imports packages in parallel.

    Args:
        names: names of installed distributions.

    Returns:
        Name of a distribution -> result of its import.
    """
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(names, pool.map(_import, names), strict=True))


def _import(name) -> Imported:
    module = _MODULES.get(name, name.replace("-", "_"))
    # By default, JAX reserves most of a GPU's memory.
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    # -P: a folder in the working directory cannot hide a package of the same name.
    command = [sys.executable, "-P", str(_PROBE), module]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return Imported(f"`import {module}` did not end within {_SECONDS} seconds")
    if done.returncode < 0:
        return Imported(f"`import {module}` crashed ({signal.Signals(-done.returncode).name})")
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return Imported(f"`import {module}` ended the process with status {done.returncode}")
    result = json.loads(lines[-1])
    return Imported(result["error"], tuple(result["devices"]))
