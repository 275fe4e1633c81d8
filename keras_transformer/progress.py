"""Progress on standard error: a bar on a terminal, a plain line now and then in a file or a pipe."""

import sys
from collections.abc import Iterable

from tqdm import tqdm

#: Seconds between two lines of progress where standard error is no terminal.
LINE_EVERY = 30


class _Lines:
    """A file for tqdm that writes each new drawing of a bar as one line, without carriage returns."""

    def __init__(self):
        self._last = ""

    def write(self, text: str) -> None:
        text = text.strip("\r\n ")
        count = text.partition("[")[0]  # Without the time: the end is drawn twice.
        if count not in ("", self._last):
            print(text, file=sys.stderr, flush=True)
            self._last = count

    def flush(self) -> None:
        sys.stderr.flush()


def progress_bar(iterable: Iterable | None = None, **options) -> tqdm:
    """A tqdm bar on standard error.

    Where standard error is no terminal, the bar becomes one line every `LINE_EVERY` seconds and one at the end; work
    that takes less time than that prints no line. Use `bar.write(text, file=sys.stderr)` for other lines in between.

    Args:
        iterable: what is gone through. Default: the bar is updated by hand.
        **options: of `tqdm`, such as `total`, `desc` and `unit`.

    Returns:
        The bar.
    """
    if sys.stderr.isatty():
        return tqdm(iterable, **{"file": sys.stderr, "dynamic_ncols": True, **options})
    # Without a width, tqdm draws no bar; a layout of the caller's is kept.
    plain = {"file": _Lines(), "ascii": True, "dynamic_ncols": False, "ncols": None if "bar_format" in options else 0}
    # With `miniters`, no monitor thread draws in between; with `delay`, there is no line at the beginning.
    seldom = {"mininterval": LINE_EVERY, "miniters": 1, "delay": LINE_EVERY}
    return tqdm(iterable, **{**options, **plain, **seldom})
