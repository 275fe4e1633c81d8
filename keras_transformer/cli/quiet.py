"""TensorFlow loads without the lines that it writes on every machine and that help nobody.

Its C++ libraries write them to file descriptor 2, before TF_CPP_MIN_LOG_LEVEL is read.
"""

import contextlib
import importlib.machinery
import logging
import os
import subprocess
import sys
from collections.abc import Iterator

#: Lines that are left out: absl's information, and what it says of itself; libraries that register twice on GPUs.
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
    """Makes TensorFlow quiet in this process, unless the user has set TF_CPP_MIN_LOG_LEVEL below 3."""
    if os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3") < "3":
        return
    logging.getLogger("tensorflow").addFilter(_is_no_retracing)
    if "tensorflow" not in sys.modules and not any(isinstance(finder, _QuietFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _QuietFinder())


def _is_no_retracing(record: logging.LogRecord) -> bool:
    """TensorFlow counts the searches of several models, each of which is traced once, as one function traced often."""
    return "triggered tf.function retracing" not in str(record.msg)


class _QuietFinder:
    """Finds TensorFlow as the other finders do, and filters standard error while it loads."""

    def find_spec(self, name, path=None, target=None):
        # It stays for the import that follows where somebody only asks whether there is TensorFlow.
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if name == "tensorflow" else None
        if spec:
            spec.loader.exec_module = filtered_stderr()(spec.loader.exec_module)
        return spec


@contextlib.contextmanager
def filtered_stderr() -> Iterator[None]:
    """Within it, what is written to file descriptor 2 arrives without the known noise.

    A process of its own filters the lines, so that the last words of a process that crashes arrive too.
    """
    if sys.stderr is None:  # It is closed.
        yield
        return
    with subprocess.Popen([sys.executable, "-ISc", _FILTER, _NOISE], stdin=subprocess.PIPE) as process:
        kept = os.dup(2)
        os.dup2(process.stdin.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
