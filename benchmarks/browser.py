"""Speed of the format `web` in headless Chromium: `python -m benchmarks.browser --help`.

The folder is served from this machine with the headers that threads need. Each row of the table is a translator in a
page of its own, which translates the text one sentence at a time. The translators take turns after each pass, so that
varying load of the machine affects all of them equally. Needs the package playwright, Chromium, and npm.

With --optimum, transformers.js translates greedily with the same model: `--format huggingface`, converted to ONNX by
optimum and to int8 weights by onnxruntime's `quantize_dynamic`. It gets subword ids instead of text. The column "tokens
as in Python" compares both with this package's int8 export.
"""

import argparse
import contextlib
import functools
import http.server
import json
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from keras_transformer.decoding import BeamSearch
from keras_transformer.storage.model_directory import ModelDirectory

_OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
#: The package of transformers.js. It says which version of onnxruntime-web it needs.
_PEER = "@huggingface/transformers@4.3.1"
_PEER_FILES = ("dist/transformers.min.js", "package.json")
_RUNTIME_FILES = tuple(f"dist/ort-wasm-simd-threaded.asyncify.{kind}" for kind in ("mjs", "wasm"))
#: Defines `translate` on the page. Returns the seconds.
_LOAD = """async ([url, threads]) => {
    const started = performance.now();
    const { Translator } = await import(`${url}translator.js`);
    const translator = await Translator.load(url, { threads });
    globalThis.translate = async (lines) => (await translator.translate(lines)).map(({ tokens }) => tokens);
    return (performance.now() - started) / 1000;
}"""
#: The same for transformers.js.
_LOAD_PEER = """async ([url, threads]) => {
    const started = performance.now();
    const { env, MarianMTModel, Tensor } = await import(`${url}transformers.min.js`);
    Object.assign(env, { allowRemoteModels: false, allowLocalModels: true, localModelPath: url });
    Object.assign(env.backends.onnx.wasm, { wasmPaths: url, numThreads: threads });
    const model = await MarianMTModel.from_pretrained("model", { dtype: "q8", device: "wasm" });
    const row = (ids) => new Tensor("int64", BigInt64Array.from(ids.map(BigInt)), [1, ids.length]);
    globalThis.translate = async (lines, ids) => {
        const found = [];
        for (const each of ids) {
            const mask = row(each.map(() => 1));
            const output = await model.generate({ inputs: row(each), attention_mask: mask, num_beams: 1 });
            found.push(output.tolist()[0].map(Number));
        }
        return found;
    };
    return (performance.now() - started) / 1000;
}"""
#: Translates lines, or their ids. Returns the seconds and the ids of the translations.
_TRANSLATE = """async ([lines, ids]) => {
    const started = performance.now();
    const found = await translate(lines, ids);
    return [(performance.now() - started) / 1000, found];
}"""


@dataclass(frozen=True, eq=False)
class Export:
    """A folder of the server, and the script that loads it. `tokens` converts what its `translate` returns for a line.

    `expected` has the tokens of each line in Python.
    """

    name: str
    url: str
    load: str
    tokens: Callable[[list[int]], list[int]]
    expected: list[list[int]]


def main():
    options = parsed()

    from benchmarks.decode import texts

    lines = texts(options.source, None)[0][: options.sentences]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        exports, ids = write(options, Path(folder), lines)
        address = stack.enter_context(served(folder))
        new_page = stack.enter_context(browser(options.timeout))
        pages, loading = {}, {}
        for export in exports:
            for threads in options.threads:
                key = export, threads
                pages[key] = new_page()
                pages[key].goto(f"{address}/index.html")
                loading[key] = pages[key].evaluate(export.load, [export.url, threads])
        seconds, equal = {key: [] for key in pages}, {}
        for number in range(options.passes + 1):
            for key, page in pages.items():
                taken, found = page.evaluate(_TRANSLATE, [lines, ids])
                equal[key] = sum(map(list.__eq__, map(key[0].tokens, found), key[0].expected))
                if number:  # The first pass is a warm-up.
                    seconds[key].append(taken)
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
    parser.add_argument("--optimum", help="for transformers.js: Python with `optimum[onnxruntime]<2 torch<2.8`")
    parser.add_argument("--timeout", type=float, default=600, help="timeout of the browser in seconds")
    options = parser.parse_args()
    if options.optimum and 1 not in options.beams:
        parser.error(f"--optimum requires the beam size 1. Received: --beams={','.join(map(str, options.beams))}")
    try:
        ModelDirectory(options.directory).require_finished()
    except ValueError as error:
        parser.error(str(error))
    return options


def write(options, folder, lines):
    """Writes the exports. Returns them, and the source ids of the lines."""
    from keras_transformer.export.format import Exported
    from keras_transformer.export.registry import FORMATS
    from keras_transformer.storage.origin import write_origin
    from keras_transformer.storage.source_text import source_text_of
    from keras_transformer.translate.finished_model import load_finished

    directory = ModelDirectory(options.directory)
    model, tokenizers = load_finished(directory)
    FORMATS["web"].prepare()

    def write_format(name, beam, place):
        exported = Exported(model, directory, tokenizers, BeamSearch(beam_size=beam))
        FORMATS[name].write(exported, place)
        write_origin(place, None, source_text_of(directory.path), exported.languages)

    exports = {}
    for beam in options.beams:
        place = folder / f"beam{beam}"
        write_format("web", beam, place)
        exports[beam] = Export(f"beam {beam}", f"/beam{beam}/", _LOAD, list, tokens_in_python(place, lines))
    found = [*exports.values()]
    if options.optimum:
        write_format("huggingface", 1, folder / "huggingface")
        write_peer(options.optimum, folder / "huggingface", folder / "transformers_js")
        # The first id is that of the start token.
        peer = Export("transformers.js", "/transformers_js/", _LOAD_PEER, lambda ids: ids[1:], exports[1].expected)
        found.append(peer)
    return found, [list(map(int, row)) for row in tokenizers[0].encode(lines)]


def tokens_in_python(folder, lines):
    """The tokens that onnxruntime finds in Python, for each line by itself."""
    from keras_transformer.export import OnnxTranslator

    translator = OnnxTranslator(folder)
    return [list(translator.translate([line])[0].tokens) for line in lines]


def write_peer(python, model, folder):
    """Writes the converted model, transformers.js, and the version of onnxruntime-web that it needs."""
    convert = [python, Path(__file__).with_name("transformers_js_worker.py"), model, folder / "model"]
    subprocess.run(convert, check=True, stdout=sys.stderr)
    extract(_PEER, _PEER_FILES, folder)
    version = json.loads((folder / "package.json").read_text())["dependencies"]["onnxruntime-web"]
    extract(f"onnxruntime-web@{version}", _RUNTIME_FILES, folder)


def extract(package, names, folder):
    """Downloads an npm package, and writes some of its files into a folder."""
    with tempfile.TemporaryDirectory() as temporary:
        subprocess.run(["npm", "pack", "--silent", package], cwd=temporary, check=True, stdout=sys.stderr)
        with tarfile.open(next(Path(temporary).glob("*.tgz"))) as archive:
            for name in names:
                (folder / Path(name).name).write_bytes(archive.extractfile(f"package/{name}").read())


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
def browser(timeout):
    """A function that opens a page of a new headless Chromium."""
    from playwright.sync_api import sync_playwright

    def new_page():
        page = chromium.new_page()
        page.set_default_timeout(1000 * timeout)
        return page

    file = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as context:
        chromium = context.chromium.launch(executable_path=file, args=_OPTIONS, timeout=1000 * timeout)
        yield new_page
        chromium.close()


def show(title, count, loading, seconds, equal):
    from rich.console import Console
    from rich.table import Table

    headings = ("sentences/s", "load s", "tokens as in Python")
    table = Table("translator", *headings, title=title)
    for key, taken in seconds.items():
        export, threads = key
        speed = count / statistics.median(taken)
        name = f"{export.name}, {threads} thread{'s' * (threads > 1)}"
        table.add_row(name, f"{speed:.1f}", f"{loading[key]:.2f}", f"{equal[key]} of {count}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
