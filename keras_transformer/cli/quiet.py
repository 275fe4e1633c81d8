"""Suppresses the log lines that TensorFlow writes on every import.

The C++ libraries of TensorFlow write them to file descriptor 2 before they read TF_CPP_MIN_LOG_LEVEL.
"""

import contextlib
import importlib.machinery
import logging
import os
import subprocess
import sys
from collections.abc import Iterator

#: Lines to suppress: info messages of absl, and messages about GPU libraries that are registered twice.
_NOISE = r"""(?x)
    ^I\d{4}\ [\d:.]+\ |
    ^WARNING:\ All\ log\ messages\ before\ absl::InitializeLog\(\) |
    ^To\ enable\ the\ following\ instructions: |
    Unable\ to\ register\ cu\w+\ factory |
    computation\ placer\ already\ registered
"""
_FILTER = """
import re, sys
noise = re.compile(sys.argv[1].encode())
for line in sys.stdin.buffer:
    if not noise.search(line):
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()
"""


def quiet_tensorflow() -> None:
    """Suppresses log lines of TensorFlow in this process, unless TF_CPP_MIN_LOG_LEVEL is set below 3."""
    if os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3") < "3":
        return
    logging.getLogger("tensorflow").addFilter(_is_no_retracing)
    if "tensorflow" not in sys.modules and not any(isinstance(finder, _QuietFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _QuietFinder())


def _is_no_retracing(record: logging.LogRecord) -> bool:
    """Filters a false warning: TensorFlow counts the compiled searches of several models as one retraced function."""
    return "triggered tf.function retracing" not in str(record.msg)


class _QuietFinder:
    """An import finder that filters standard error during the import of TensorFlow."""

    def find_spec(self, name, path=None, target=None):
        # The finder stays installed, because `importlib.util.find_spec` also calls it, before the import.
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if name == "tensorflow" else None
        if spec:
            spec.loader.exec_module = filtered_stderr()(spec.loader.exec_module)
        return spec


@contextlib.contextmanager
def filtered_stderr() -> Iterator[None]:
    """Context manager that suppresses known log lines on file descriptor 2.

    A separate process filters the lines, so the last lines of a crashing process are not lost.
    """
    if sys.stderr is None:  # Standard error is closed.
        yield
        return
    command = [sys.executable, "-ISc", _FILTER, _NOISE]
    # In a session of its own, it does not receive the Ctrl-C that the terminal sends to this process.
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        kept = os.dup(2)
        os.dup2(process.stdin.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
