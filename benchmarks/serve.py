"""Throughput and latency of `keras-transformer serve`: `python -m benchmarks.serve --help`.

The load comes from wrk (Debian's package of this name). An answer is wrong if `translate` gives it for none of the
texts. The first row is `translate` alone. The peer is the same application around CTranslate2's own
queue: each request calls `translate_batch` by itself.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

#: The name of the peer in `--runtimes`.
PEER = "ctranslate2_queue"


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serve", description=__doc__)
    parser.add_argument("directory", nargs="?", default="runs/quickstart", help="a model directory with exports")
    parser.add_argument("--source", help="text to translate, one sentence per line; default: 500 held-out numbers")
    parser.add_argument("--runtimes", default="onnx_int8", help=f"runtimes, separated by commas, or {PEER}")
    parser.add_argument("--clients", default="1,8,64,256", help="numbers of clients, separated by commas")
    parser.add_argument("--texts", type=int, default=1, help="texts per request")
    parser.add_argument("--seconds", type=int, default=60, help="duration for each number of clients")
    parser.add_argument("--only_serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only_serve:
        serve_peer(options.directory)
        return
    if not shutil.which("wrk"):
        sys.exit("wrk is not installed: apt install wrk")

    from benchmarks.decode import texts

    lines = texts(options.source, None)[0]
    rows = []
    for runtime in options.runtimes.split(","):
        rows += measure(options, runtime, lines)
    show(rows, options)
    if any(row.get("errors") or row.get("wrong") for row in rows):
        sys.exit("Some requests failed or have wrong answers")


def measure(options, runtime, lines):
    """The rows of the table for one runtime."""
    from keras_transformer.translate import load_translator
    from keras_transformer.translate.splitting_translator import SplittingTranslator

    name = runtime.removesuffix("_queue")
    translator = SplittingTranslator(load_translator(options.directory, name, parallel_batches=None), "en")
    expected = [translation.text for translation in translator.translate(lines)]
    rates = [len(lines) / seconds_of(lambda: translator.translate(lines)) for _ in range(3)]
    rate = statistics.median(rates)
    rows = [{"runtime": runtime, "clients": "translate", "rate": rate, "share": 1.0}]
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8") as file:
        for body, answer in requests_of(lines, expected, options.texts):
            print(json.dumps(body, ensure_ascii=False), json.dumps(answer, ensure_ascii=False), sep="\t", file=file)
        file.flush()
        with server(options.directory, runtime) as (address, process):
            load(address, file.name, clients=16, seconds=3)  # Warms up.
            for clients in map(int, options.clients.split(",")):
                row = measured_load(address, file.name, clients, options.seconds, process)
                row["rate"] = row["requests"] * options.texts / row["seconds"]
                rows.append({"runtime": runtime, "clients": clients, "share": row["rate"] / rate, **row})
    return rows


def seconds_of(function):
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def requests_of(lines, expected, size):
    """Pairs of a request and its answer, with `size` texts each."""
    for start in range(0, len(lines), size):
        q, answer = (texts[start : start + size] for texts in (lines, expected))
        if size == 1:
            q, answer = q[0], answer[0]
        yield {"q": q, "source": "en", "target": "de"}, {"translatedText": answer}


@contextlib.contextmanager
def server(directory, runtime):
    """Runs a server. Yields its address and its process."""
    command = [sys.executable, "-m", "keras_transformer", "serve", directory, "--languages=en-de", "--page=false"]
    command += ["--port=0", f"--runtime={runtime}"]
    if runtime == PEER:
        command = [sys.executable, "-m", "benchmarks.serve", directory, "--only_serve"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        for line in process.stderr:
            if found := re.search(r"Serving on (http://\S+)", line):
                break
        else:
            sys.exit("The server did not start")
        yield found[1], process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def load(address, file, clients, seconds):
    """The result of one run of wrk."""
    script = Path(__file__).with_suffix(".lua")
    command = ["wrk", "--threads=1", f"--connections={clients}", f"--duration={seconds}s", "--timeout=60s", "--latency"]
    output = subprocess.run([*command, f"--script={script}", f"{address}/translate", "--", file], capture_output=True)
    return json.loads(output.stdout.decode().splitlines()[-1])


def measured_load(address, file, clients, seconds, process):
    """The result of wrk with processor seconds of client, HTTP and model, and the memory of the server in MiB.

    The memory is measured before the load, after a fifth of its time, and after it.
    """
    begin, memories = cpu_seconds(process.pid), [memory(process.pid)]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    timer = threading.Timer(seconds / 5, lambda: memories.append(memory(process.pid)))
    timer.start()
    result = load(address, file, clients, seconds)
    timer.join()
    memories.append(memory(process.pid))
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    end = cpu_seconds(process.pid)
    client = spent.ru_utime + spent.ru_stime - used.ru_utime - used.ru_stime
    http, model = (after - before for after, before in zip(end, begin, strict=True))
    return {**result, "client": client, "http": http, "model": model, "memory": "/".join(f"{m:.0f}" for m in memories)}


def cpu_seconds(pid):
    """Processor seconds of the main thread, which speaks HTTP, and of all others."""
    seconds = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # A thread that has ended.
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            seconds[int(task.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds[pid], sum(seconds.values()) - seconds[pid]


def memory(pid):
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024


def serve_peer(directory):
    """Serves CTranslate2 without the queue of this package."""
    import uvicorn

    from keras_transformer.apps.serve.app import make_app
    from keras_transformer.apps.serve.config import ServeConfig
    from keras_transformer.apps.serve.metrics import Metrics
    from keras_transformer.apps.serve.pairs import LanguagePair
    from keras_transformer.text.sentences import SentenceSplitter
    from keras_transformer.translate import load_translator
    from keras_transformer.translate.threads import num_cores

    translator = load_translator(directory, "ctranslate2", parallel_batches=num_cores())
    translator.parallel_batches = 1  # Each thread of the server translates a batch.

    class Queue:
        queue_length = 0

        async def translate(self, sentences, n_best, languages):
            return await asyncio.to_thread(translator.translate, sentences, n_best=n_best)

    config = ServeConfig(page=False)
    splitter = SentenceSplitter("en", translator.count_tokens, translator.max_source_length)
    app = make_app([LanguagePair("en", "de", PEER, translator, Queue(), splitter)], config, Metrics())
    listener = uvicorn.Config(app, port=0, log_level="warning", access_log=False)
    socket = listener.bind_socket()
    socket.listen()
    print(f"Serving on http://127.0.0.1:{socket.getsockname()[1]}", file=sys.stderr, flush=True)
    uvicorn.Server(listener).run(sockets=[socket])


def show(rows, options):
    from rich.console import Console
    from rich.table import Table

    columns = {
        "runtime": ("runtime", ""),
        "clients": ("clients", ""),
        "sentences/s": ("rate", ".0f"),
        "of translate": ("share", ".2f"),
        "p50 ms": ("p50", ".1f"),
        "p99 ms": ("p99", ".1f"),
        "errors": ("errors", ""),
        "wrong": ("wrong", ""),
        "client CPU s": ("client", ".1f"),
        "HTTP CPU s": ("http", ".1f"),
        "model CPU s": ("model", ".1f"),
        "MiB before/at 1/5/after": ("memory", ""),
    }
    title = f"{options.texts} text{'s' * (options.texts > 1)} per request, {options.seconds} s for each row"
    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*(format(row[name], form) if name in row else "" for name, form in columns.values()))
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
