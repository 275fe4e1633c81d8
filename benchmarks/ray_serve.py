"""Throughput of Ray Serve, and what clients see if a replica dies: `python -m benchmarks.ray_serve --help`.

The service is `examples/ray/serve_app.py`. Each client is a thread that sends one sentence after another. An answer is
wrong if it is not the translation by the same runtime without a server. The export must not have a shortlist, since
translations would depend on the batch. A request without an answer is lost. The last row kills a replica with
`kill -9` after a third of the time. It has recovered when all replicas run again.
"""

import argparse
import contextlib
import http.client
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Start of the command line of a replica's process.
REPLICA = b"ray::ServeReplica:default:Replica"


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray_serve", description=__doc__)
    parser.add_argument("directory", nargs="?", default="runs/quickstart", help="a model directory with exports")
    parser.add_argument("--source", help="text to translate, one sentence per line; default: 500 held-out numbers")
    parser.add_argument("--runtime", default="onnx_int8", help="runtime that translates")
    parser.add_argument(
        "--replicas",
        default="1,2",
        help="numbers of replicas, separated by commas; with the last number, one replica is killed under load",
    )
    parser.add_argument("--clients", type=int, default=16, help="number of clients")
    parser.add_argument("--seconds", type=float, default=60, help="duration of each row")
    options = parser.parse_args()

    from benchmarks.decode import texts
    from keras_transformer.translate import load_translator
    from keras_transformer.translate.splitting_translator import SplittingTranslator

    if has_shortlist(options.directory, options.runtime):
        parser.error(
            f"the export must not have a shortlist. Received: {options.directory}, --runtime {options.runtime}"
        )
    lines = texts(options.source, None)[0]
    translator = SplittingTranslator(load_translator(options.directory, options.runtime), "en")
    expected = [translation.text for translation in translator.translate(lines)]
    rows, counts = [], [int(count) for count in options.replicas.split(",")]
    for count in counts:
        with service(options, count) as port:
            load(port, lines, expected, options.clients, 3)  # Warms up.
            rows.append({"replicas": str(count), **load(port, lines, expected, options.clients, options.seconds)})
            if count == counts[-1]:
                with killing(count, options.seconds / 3) as recovery:
                    row = load(port, lines, expected, options.clients, options.seconds)
                rows.append({"replicas": f"{count}, one killed", **row, **recovery})
    show(rows, options)
    if any(row["wrong"] or row["lost"] or row["other"] for row in rows):
        sys.exit("Some requests were lost or have wrong answers")


def has_shortlist(directory, runtime):
    """Whether an export searches with a shortlist, as far as it is recorded."""
    from keras_transformer.storage.model_directory import ModelDirectory

    file = ModelDirectory(directory).verification_file
    record = json.loads(file.read_text()) if file.exists() else {}
    return record.get(runtime, {}).get("search", {}).get("shortlist", False)


@contextlib.contextmanager
def service(options, replicas):
    """Runs the service. Yields its port."""
    port = free_port()
    arguments = {"directories": str(Path(options.directory).resolve()), "languages": "en-de"}
    arguments |= {"runtime": options.runtime, "replicas": replicas}
    environment = {"env_vars": {"PYTHONPATH": str(ROOT / "examples/ray")}}
    application = {"name": "default", "import_path": "serve_app:build", "args": arguments, "runtime_env": environment}
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.yaml")
        config.write_text(json.dumps({"http_options": {"port": port}, "applications": [application]}))  # JSON is YAML.
        serve = Path(sys.executable).with_name("serve")
        process = subprocess.Popen([serve, "run", config])
        try:
            while not is_healthy(port):
                if process.poll() is not None:
                    sys.exit("The service did not start")
                time.sleep(1)
            yield port
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


def is_healthy(port):
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as answer:
        return answer.status == 200
    return False


def free_port():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def load(port, lines, expected, clients, seconds):
    """Sends requests for a time. Returns a row of the table."""
    numbers, results, end = itertools.count(), [], time.perf_counter() + seconds

    def client():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        while (started := time.perf_counter()) < end:
            i = next(numbers) % len(lines)
            outcome = request(connection, lines[i], expected[i])
            results.append((outcome, time.perf_counter() - started))
            if outcome == "unavailable":
                time.sleep(0.1)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - started
    latencies = [latency for outcome, latency in results if outcome == "right"]
    percentiles = statistics.quantiles(latencies, n=100) if len(latencies) > 1 else [float("nan")] * 99
    count = {name: sum(outcome == name for outcome, _ in results) for name in OUTCOMES}
    times = {"p50": 1000 * percentiles[49], "p99": 1000 * percentiles[98], "longest": 1000 * max(latencies, default=0)}
    return {"rate": len(latencies) / elapsed, **times, **count}


#: What can become of a request.
OUTCOMES = ("right", "unavailable", "wrong", "other", "lost")


def request(connection, text, expected):
    """Sends one request. Returns one of `OUTCOMES`."""
    body = json.dumps({"q": text, "source": "en", "target": "de"})
    try:
        connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read()
    except (OSError, http.client.HTTPException):
        connection.close()
        return "lost"
    if response.status == 200:
        return "right" if json.loads(answer) == {"translatedText": expected} else "wrong"
    return "unavailable" if response.status == 503 else "other"


@contextlib.contextmanager
def killing(replicas, after):
    """Kills a replica after some seconds. Yields a mapping, which then has the time until all replicas run again."""
    recovery = {}
    stop = threading.Event()

    def run():
        stop.wait(after)
        os.kill(replica_processes()[0], signal.SIGKILL)
        killed, has_fallen = time.perf_counter(), False
        while not stop.wait(0.1):
            running = running_replicas()
            has_fallen |= running < replicas
            if has_fallen and running == replicas:
                recovery["recovery"] = time.perf_counter() - killed
                return

    import ray

    ray.init(os.environ.get("RAY_ADDRESS", "auto"), log_to_driver=False, logging_level="warning")
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield recovery
        thread.join(120)
    finally:
        stop.set()
        thread.join()
        ray.shutdown()


def replica_processes():
    """The ids of the processes of all replicas on this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # A process that has ended.
            if path.read_bytes().startswith(REPLICA):
                found.append(int(path.parent.name))
    return sorted(found)


def running_replicas():
    from ray import serve

    deployment = serve.status().applications["default"].deployments["Replica"]
    return deployment.replica_states.get("RUNNING", 0)


def show(rows, options):
    from rich.console import Console
    from rich.table import Table

    columns = {
        "replicas": ("replicas", ""),
        "sentences/s": ("rate", ".0f"),
        "p50 ms": ("p50", ".1f"),
        "p99 ms": ("p99", ".1f"),
        "longest ms": ("longest", ".0f"),
        "answers": ("right", ""),
        "503": ("unavailable", ""),
        "other errors": ("other", ""),
        "wrong": ("wrong", ""),
        "lost": ("lost", ""),
        "recovered after s": ("recovery", ".1f"),
    }
    table = Table(*columns, title=f"{options.clients} clients, {options.seconds:.0f} s for each row")
    for row in rows:
        table.add_row(*(format(row[name], form) if name in row else "" for name, form in columns.values()))
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
