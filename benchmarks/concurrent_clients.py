"""Errors, latency and memory of a shared translator: `python -m benchmarks.concurrent_clients --help`.

Each client is a thread that translates batches of one text repeatedly. The same translator has translated each batch
before, without other clients. A client's result that differs counts as wrong.
"""

import argparse
import itertools
import statistics
import sys
import threading
import time

RUNTIMES = ("keras", "onnx", "saved_model", "ctranslate2")


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.concurrent_clients", description=__doc__)
    parser.add_argument("directory", nargs="?", default="runs/quickstart", help="a model directory with all exports")
    parser.add_argument("--source", help="text to translate, one sentence per line; default: 500 held-out numbers")
    parser.add_argument("--seconds", type=float, default=60, help="duration for each runtime")
    parser.add_argument("--clients", type=int, default=4, help="number of threads")
    parser.add_argument("--batch_size", type=int, default=4, help="sentences per request")
    parser.add_argument("--runtimes", default=",".join(RUNTIMES), help="runtimes to measure, separated by commas")
    options = parser.parse_args()

    from benchmarks.decode import texts
    from keras_transformer.translate import load_translator

    lines = texts(options.source, None)[0]
    batches = [lines[start : start + options.batch_size] for start in range(0, len(lines), options.batch_size)]
    results = {}
    for runtime in options.runtimes.split(","):
        translator = load_translator(options.directory, runtime)
        results[runtime] = Load(translator, batches).run(options.clients, options.seconds)
    show(f"{options.clients} clients, {options.batch_size} sentences per request, {options.seconds:.0f} s", results)
    if any(load.wrong for load in results.values()):
        sys.exit("Some translations are wrong")
    if any(load.memory_at(float("inf")) > 1.05 * load.memory_at(10) + 16 for load in results.values()):
        sys.exit("Memory use has grown")


class Load:
    """Threads that translate with one translator.

    Attributes:
        latencies: seconds of each request.
        wrong: pairs of a batch and its wrong translations.
        memory: pairs of the time since the start and the resident memory of the process in MiB.
    """

    def __init__(self, translator, batches):
        self._translator = translator
        self._batches = batches
        self._expected = [self._translate(batch) for batch in batches]
        self.latencies, self.wrong, self.memory = [], [], []

    def run(self, clients, seconds):
        """Runs a number of clients for a time, and returns itself."""
        started = time.perf_counter()
        arguments = [(started + seconds, len(self._batches) * i // clients) for i in range(clients)]
        threads = [threading.Thread(target=self._client, args=each) for each in arguments]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            self.memory.append((time.perf_counter() - started, resident_memory()))
            time.sleep(0.2)
        return self

    def memory_at(self, seconds):
        """The resident memory in MiB after a time, or at the end."""
        return next((mib for at, mib in self.memory if at >= seconds), self.memory[-1][1])

    def _client(self, end, first):
        for i in itertools.count(first):
            if time.perf_counter() >= end:
                return
            started = time.perf_counter()
            batch, expected = (given[i % len(self._batches)] for given in (self._batches, self._expected))
            try:
                found = self._translate(batch)
            except Exception as error:  # Any error counts as a wrong result. It would only end this thread.
                found = repr(error)
            self.latencies.append(time.perf_counter() - started)
            if found != expected:
                self.wrong.append((batch, found))

    def _translate(self, batch):
        return [translation.text for translation in self._translator.translate(batch)]


def resident_memory():
    """Resident memory of this process in MiB."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:")) / 1024


def show(title, results):
    from rich.console import Console
    from rich.table import Table

    headings = ("requests", "wrong", "p50 ms", "p95 ms", "MiB at start", "MiB after 10 s", "MiB at the end")
    table = Table("runtime", *headings, title=title)
    for runtime, load in results.items():
        percentiles = statistics.quantiles(load.latencies, n=20)
        table.add_row(
            runtime,
            f"{len(load.latencies):,}",
            f"{len(load.wrong):,}",
            *(f"{1000 * percentiles[i]:.1f}" for i in (9, 18)),
            *(f"{load.memory_at(seconds):,.0f}" for seconds in (0, 10, float("inf"))),
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
