"""Speed of the format `web` in headless Chromium: `python -m benchmarks.browser --help`.

The folder is served from this machine with the headers that threads need. Each row of the table is a separate
translator, which translates the text one sentence at a time. The translators take turns after each pass, so that
varying load of the machine affects all of them equally. Needs the package playwright, Chromium, and npm.
"""

import argparse
import contextlib
import functools
import http.server
import shutil
import statistics
import tempfile
import threading
from pathlib import Path

from keras_transformer.decoding import BeamSearch
from keras_transformer.model_directory import ModelDirectory

_OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
#: Loads a translator and keeps it under a name. Returns the seconds.
_LOAD = """async ([name, url, threads]) => {
    const started = performance.now();
    const { Translator } = await import(`${url}translator.js`);
    (globalThis.translators ??= {})[name] = await Translator.load(url, { threads });
    return (performance.now() - started) / 1000;
}"""
#: Translates lines. Returns the seconds and the tokens of the translations.
_TRANSLATE = """async ([name, lines]) => {
    const started = performance.now();
    const found = await translators[name].translate(lines);
    return [(performance.now() - started) / 1000, found.map(({ tokens }) => tokens)];
}"""


def main():
    options = parsed()

    from benchmarks.decode import texts

    lines = texts(options.source, None)[0][: options.sentences]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        expected = {beam: write(options.directory, beam, Path(folder), lines) for beam in options.beams}
        page = stack.enter_context(browser_page(options.timeout))
        page.goto(f"{stack.enter_context(served(folder))}/index.html")
        kinds = {f"beam {beam}, {n} threads": (beam, n) for beam in options.beams for n in options.threads}
        loading = {name: page.evaluate(_LOAD, [name, f"/{beam}/", n]) for name, (beam, n) in kinds.items()}
        seconds, equal = {name: [] for name in kinds}, {}
        for number in range(options.passes + 1):
            for name, (beam, _) in kinds.items():
                taken, tokens = page.evaluate(_TRANSLATE, [name, lines])
                equal[name] = sum(map(list.__eq__, tokens, expected[beam]))
                if number:  # The first pass is a warm-up.
                    seconds[name].append(taken)
        show(f"{len(lines)} sentences, median of {options.passes} passes", len(lines), loading, seconds, equal)


def parsed():
    def numbers(text):
        return [int(number) for number in text.split(",")]

    parser = argparse.ArgumentParser(prog="python -m benchmarks.browser", description=__doc__)
    parser.add_argument("directory", nargs="?", default="runs/quickstart", help="a finished model directory")
    parser.add_argument("--source", help="text to translate, one sentence per line; default: held-out numbers")
    parser.add_argument("--sentences", type=int, default=200, help="maximum number of sentences")
    parser.add_argument("--beams", type=numbers, default="1,4", help="beam sizes")
    parser.add_argument("--threads", type=numbers, default="1,2", help="numbers of threads")
    parser.add_argument("--passes", type=int, default=3, help="passes over the text; the table shows the median")
    parser.add_argument("--timeout", type=float, default=600, help="timeout of the browser in seconds")
    options = parser.parse_args()
    try:
        ModelDirectory(options.directory).require_finished()
    except ValueError as error:
        parser.error(str(error))
    return options


def write(directory, beam, folder, lines):
    """Writes the export of a search to `folder/BEAM`. Returns the tokens that onnxruntime finds with it in Python."""
    from keras_transformer.export import OnnxTranslator
    from keras_transformer.export.registry import FORMATS
    from keras_transformer.text.finished_model import load_finished

    source, place = ModelDirectory(directory), folder / str(beam)
    model, tokenizers = load_finished(source)
    FORMATS["web"].prepare()
    FORMATS["web"].write(model, source, tokenizers, BeamSearch(beam_size=beam), place)
    translator = OnnxTranslator(place)
    return [list(translator.translate([line])[0].tokens) for line in lines]


@contextlib.contextmanager
def served(folder):
    """The address of a file server whose pages are cross-origin isolated."""
    (Path(folder) / "index.html").write_text("<!doctype html><title>Benchmark</title><link rel=icon href='data:,'>")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def end_headers(self):
            self.send_header("Cross-Origin-Opener-Policy", "same-origin")
            self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
            super().end_headers()

        def log_message(self, *args):
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
    threading.Thread(target=server.serve_forever).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def browser_page(timeout):
    """A page of a new headless Chromium."""
    from playwright.sync_api import sync_playwright

    file = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as context:
        browser = context.chromium.launch(executable_path=file, args=_OPTIONS, timeout=1000 * timeout)
        page = browser.new_page()
        page.set_default_timeout(1000 * timeout)
        yield page
        browser.close()


def show(title, count, loading, seconds, equal):
    from rich.console import Console
    from rich.table import Table

    headings = ("sentences/s", "load s", "tokens as in Python")
    table = Table("translator", *headings, title=title)
    for name, taken in seconds.items():
        speed = count / statistics.median(taken)
        table.add_row(name, f"{speed:.1f}", f"{loading[name]:.2f}", f"{equal[name]} of {count}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
