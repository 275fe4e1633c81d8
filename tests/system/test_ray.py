"""The examples for Ray. Those that need Ray itself run at night, if it is installed: the extra `ray`."""

import asyncio
import importlib.util
import json
import pathlib
import re
import subprocess
import sys

import pytest
from starlette.requests import Request

from keras_transformer.cli import main
from keras_transformer.translate.batching import BatchLimits
from keras_transformer.translate.translator import Translation

ROOT = pathlib.Path(__file__).parents[2]
HAS_RAY = importlib.util.find_spec("ray") is not None

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # When Ray Serve is imported.


@pytest.fixture(scope="module")
def example_model(arguments, toy_files, build_once):
    """A tiny model with an ONNX export, and a text."""

    def build(folder):
        assert main(arguments(folder / "run")) == 0
        assert main(["export", str(folder / "run"), "--format=onnx", "--quantize=int8", "--extra_length=5"]) == 0

    return build_once("example_model", build) / "run", toy_files / "train.en"


needs_ray = pytest.mark.skipif(not HAS_RAY, reason="needs Ray: pip install 'keras-transformer-kit[ray]'")


def load(name):
    """A module of the examples, under its own name: its classes are pickled by it."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples/ray" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def serve_app():
    return load("serve_app")


@pytest.fixture(scope="module")
def translate_files():
    return load("translate_files")


# Serving


async def echo(scope, receive, send):
    """An ASGI application that answers with what it received."""
    message = await receive()
    await send({"type": "http.response.start", "status": 201, "headers": [(b"x-path", scope["path"].encode())]})
    await send({"type": "http.response.body", "body": message["body"][::-1], "more_body": True})
    await send({"type": "http.response.body", "body": b"!"})


class Replicas:
    """A handle of replicas. The first `deaths` calls fail as if their replicas died; the others run `echo`."""

    def __init__(self, serve_app, deaths=0, seconds=0.0):
        self.serve_app, self.deaths, self.seconds = serve_app, deaths, seconds
        self.calls = self.cancelled = 0
        self.answer = self

    def remote(self, scope, body):
        self.calls += 1
        return Response(self, scope, body, self.calls <= self.deaths)


class Response:
    def __init__(self, replicas, scope, body, dies):
        self.replicas, self.scope, self.body, self.dies = replicas, scope, body, dies

    def __await__(self):
        return self._run().__await__()

    async def _run(self):
        await asyncio.sleep(self.replicas.seconds)
        if self.dies:
            from ray.exceptions import RayActorError

            raise RayActorError
        return await self.replicas.serve_app.run_asgi(echo, self.scope, self.body)

    def cancel(self):
        self.replicas.cancelled += 1


def ask(serve_app, replicas, path="/translate", body=b"abc", max_body=10, retries=2, seconds=5.0):
    """The response of the ingress."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        return messages.pop()

    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": [], "client": ["a", 1]}
    ingress = serve_app.Ingress(replicas, max_body, retries, seconds)
    return asyncio.run(ingress(Request({**scope, "app": object()}, receive)))


@pytest.mark.nightly
@needs_ray
def test_the_ingress_passes_a_request(serve_app):
    response = ask(serve_app, Replicas(serve_app))
    assert (response.status_code, response.body) == (201, b"cba!")
    assert response.headers["x-path"] == "/translate"


@pytest.mark.nightly
@needs_ray
@pytest.mark.parametrize(("deaths", "status", "calls"), [(1, 201, 2), (2, 201, 3), (3, 503, 3), (9, 503, 3)])
def test_a_lost_call_is_repeated_at_most_twice(serve_app, deaths, status, calls):
    replicas = Replicas(serve_app, deaths)
    response = ask(serve_app, replicas)
    assert (response.status_code, replicas.calls) == (status, calls)
    assert ("retry-after" in response.headers) == (status == 503)


@pytest.mark.nightly
@needs_ray
def test_a_request_that_takes_too_long_is_cancelled(serve_app):
    replicas = Replicas(serve_app, seconds=60)
    response = ask(serve_app, replicas, seconds=0.1)
    assert response.status_code == 503 and "error" in json.loads(response.body)
    assert (replicas.calls, replicas.cancelled) == (1, 1)


@pytest.mark.nightly
@needs_ray
def test_a_long_body_is_cut_where_the_replica_refuses_it(serve_app):
    assert ask(serve_app, Replicas(serve_app), body=b"x" * 100).body == b"x" * 11 + b"!"


@pytest.mark.nightly
@needs_ray
def test_the_metrics_of_one_replica_are_not_shown(serve_app):
    assert ask(serve_app, Replicas(serve_app), path="/metrics").status_code == 404


# Files


class Upper:
    """Translates to capitals. Fails after a number of lines."""

    def __init__(self, lines=10**9):
        self.lines = lines

    def translate_stream(self, lines, batch_size, first_line):
        for line in lines:
            self.lines -= 1
            if self.lines < 0:
                raise KeyboardInterrupt
            yield Translation(line.upper(), 0.0)


#: The bytes of a file, and its lines in capitals.
TEXTS = {
    "a.txt": ("".join(f"line {i}\n" for i in range(1000)).encode(), [f"LINE {i}" for i in range(1000)]),
    "bom.txt": (b"\xef\xbb\xbfone\r\n\r\ntwo\xe2\x80\xa8three", ["ONE", "", "TWO THREE"]),
    "empty.txt": (b"", []),
}


@pytest.fixture
def job(translate_files, tmp_path, monkeypatch):
    """Runs a job without Ray. Its worker fails after a number of lines. Returns the number of translated lines."""
    source, output = tmp_path / "texts", tmp_path / "translations"
    source.mkdir()
    for name, (content, _) in TEXTS.items():
        (source / name).write_bytes(content)

    def job(lines=10**9, record=None):
        translator = Upper(lines)
        monkeypatch.setattr(translate_files, "load_translator", lambda *_, **options: translator)

        def rows(shards, workers, arguments, address):
            worker = translate_files.Worker(*arguments)
            return map(worker, reversed(shards))  # In another order than that of the lines.

        monkeypatch.setattr(translate_files, "_rows", rows)
        with translate_files.locked(output):
            files = translate_files.text_files(source, output, record or {"model": "x"}, BatchLimits(1), 1)
            files = [file for file in files if file.begin()]
            return sum(translate_files.translated(files, 1, ("model", "onnx", 1), None))

    job.source, job.output = source, output
    return job


def check_outputs(output):
    expected = {name: "".join(f"{line}\n" for line in lines).encode() for name, (_, lines) in TEXTS.items()}
    assert {path.name: path.read_bytes() for path in output.iterdir() if path.is_file()} == expected
    assert not list(output.glob("*.partial"))


def test_the_files_are_those_of_the_lines_in_order(job):
    assert job() == 1003
    check_outputs(job.output)


@pytest.mark.parametrize("lines", [0, 50, 64, 500, 1000])
def test_an_interrupted_job_keeps_finished_shards(job, lines):
    with pytest.raises(KeyboardInterrupt):
        job(lines)
    shards = [path for path in job.output.glob("*.partial/*") if path.name.isdigit()]
    kept = sum(path.read_bytes().count(b"\n") for path in shards)
    kept += 3 if (job.output / "bom.txt").exists() else 0
    assert lines - 64 < kept <= lines
    assert job() == 1003 - kept
    check_outputs(job.output)
    assert job() == 0


@pytest.mark.parametrize("step", ["atomic_write", "rmtree"])
@pytest.mark.parametrize("name", ["a.txt", "bom.txt"])  # The last file that is finished, and one before others.
def test_an_interruption_while_a_file_is_finished(job, translate_files, monkeypatch, step, name):
    module = translate_files if step == "atomic_write" else translate_files.shutil
    original, calls = getattr(module, step), []

    def interrupted(path, *arguments, **options):
        path = pathlib.Path(path)
        is_record = path.parent.name == translate_files.RECORDS and path.name == f"{name}.json"
        if is_record or path.name == f"{name}.partial":
            calls.append(path)
            raise KeyboardInterrupt
        return original(path, *arguments, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, step, interrupted)
        job()
    assert calls and (job.output / name).exists() and (job.output / f"{name}.partial").exists()
    job()
    check_outputs(job.output)


def test_outputs_of_something_else_are_refused(job):
    job()
    (job.source / "a.txt").write_text("other\n")
    with pytest.raises(ValueError, match="a.txt was made with another source; delete it and"):
        job()
    with pytest.raises(ValueError, match="a.txt was made with another source, model"):
        job(record={"model": "y"})
    (job.source / "new.txt").write_text("one\n")
    (job.output / "new.txt").write_text("precious\n")
    (job.output / "a.txt").unlink()
    (job.output / ".records/a.txt.json").unlink()
    with pytest.raises(ValueError, match="new.txt exists and is not an output"):
        job()
    assert (job.output / "new.txt").read_text() == "precious\n"


def test_a_shard_that_kills_each_worker_ends_the_job(translate_files, tmp_path):
    shard = translate_files.Shard("text", 0, 1, 64, str(tmp_path / "00000000"))
    for _ in range(4):
        shard.count_attempt()
    with pytest.raises(RuntimeError, match="4 workers died at text, lines 1 to 64"):
        shard.count_attempt()


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--runtime=onnx"], "has no export for --runtime onnx"), (["--chunks=0"], "--chunks.*at least 1. Received: 0")],
)
def test_bad_options_leave_no_files(translate_files, tmp_path, monkeypatch, capsys, options, message):
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a.txt").write_text("one\n")
    monkeypatch.setattr(translate_files.ModelDirectory, "require_finished", lambda self: {})
    arguments = [str(tmp_path / "model"), str(tmp_path / "source"), str(tmp_path / "output"), *options]
    monkeypatch.setattr("sys.argv", ["translate_files.py", *arguments])
    with pytest.raises(SystemExit) as caught:
        translate_files.main()
    assert re.search(message, f"{caught.value} {capsys.readouterr().err}")
    assert not (tmp_path / "output").exists()


def test_two_jobs_do_not_write_the_same_directory(translate_files, tmp_path):
    with translate_files.locked(tmp_path), pytest.raises(ValueError, match="in use"):
        with translate_files.locked(tmp_path):
            pass


# With Ray


def benchmark(module, *arguments):
    """Runs a benchmark, which fails if requests are lost, or if translations are wrong or differ. Returns its table."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in completed.stdout.splitlines() if "│" in line]


@pytest.mark.nightly
@needs_ray
def test_a_killed_replica_is_replaced_and_its_requests_are_answered(example_model):
    directory, source = example_model
    usual, killed = benchmark(
        "ray_serve", directory, f"--source={source}", "--replicas=2", "--clients=4", "--seconds=15"
    )
    assert (usual[0], killed[0]) == ("2", "2, one killed")
    assert int(usual[5]) > 0 and int(killed[5]) > 0 and float(killed[-1]) > 0


@pytest.mark.nightly
@needs_ray
def test_a_killed_job_gives_the_files_of_an_unbroken_one(example_model):
    directory, source = example_model
    options = ("--lines=20000", "--files=3", "--workers=2", "--kills=2")
    table = benchmark("ray_data", directory, f"--source={source}", *options)
    assert [row[0] for row in table] == ["translate", "2 workers", "2 workers"]
    assert [row[-1] for row in table] == ["yes"] * 3
