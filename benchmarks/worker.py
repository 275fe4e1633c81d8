"""A process of a benchmark, which answers lines of JSON."""

import json
import subprocess
import sys
import tempfile


class Worker:
    """A process that prints a line of JSON when it is ready, and one for each line of JSON that it reads.

    Args:
        arguments: the arguments of Python.
        python: the Python. Default: that of this process.

    Attributes:
        start: the first answer.

    Raises:
        RuntimeError: if the process ends without an answer.
    """

    def __init__(self, *arguments, python=sys.executable):
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [python, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.start = self._answer()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._process.stdin.close()
        self._process.wait()

    def ask(self, request=None):
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self):
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            self._errors.seek(0)
            last = self._errors.read().strip().splitlines()[-1:]
            raise RuntimeError(f"its process ended with {status}: {''.join(last)}")
        return json.loads(line)
