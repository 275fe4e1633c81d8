"""Progress on standard error: a bar on a terminal, a plain line every 30 seconds in a file or a pipe."""

import sys
from collections.abc import Iterable

from tqdm import tqdm

#: Seconds between two lines of progress if standard error is not a terminal.
LINE_EVERY = 30


class _Lines:
    """A file object for tqdm that prints each update of a bar as one line, without carriage returns."""

    def __init__(self):
        self._last = ""

    def write(self, text: str) -> None:
        text = text.strip("\r\n ")
        count = text.partition("[")[0]  # Ignores the time, because tqdm draws the last update twice.
        if count not in ("", self._last):
            print(text, file=sys.stderr, flush=True)
            self._last = count

    def flush(self) -> None:
        sys.stderr.flush()


def progress_bar(iterable: Iterable | None = None, **options) -> tqdm:
    """A tqdm bar on standard error.

    If standard error is not a terminal, the bar prints one line every `LINE_EVERY` seconds and one at the end. It
    prints no line if the work ends earlier. Use `bar.write(text, file=sys.stderr)` to print other lines meanwhile.

    Args:
        iterable: the iterable to wrap. Default: call `update` on the bar.
        **options: arguments of `tqdm`, such as `total`, `desc` and `unit`.

    Returns:
        The `tqdm` bar.
    """
    if sys.stderr.isatty():
        return tqdm(iterable, **{"file": sys.stderr, "dynamic_ncols": True, **options})
    # With 0 columns tqdm draws no bar. A `bar_format` of the caller is kept.
    plain = {"file": _Lines(), "ascii": True, "dynamic_ncols": False, "ncols": None if "bar_format" in options else 0}
    # `miniters` turns off tqdm's monitor thread, which would print earlier. `delay` leaves out the line at the start.
    seldom = {"mininterval": LINE_EVERY, "miniters": 1, "delay": LINE_EVERY}
    return tqdm(iterable, **{**options, **plain, **seldom})
