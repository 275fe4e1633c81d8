"""The examples for Ray. Those that need Ray itself run at night, if it is installed: the extra `ray`."""

import asyncio
import gzip
import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest
from starlette.requests import Request

from keras_transformer.cli import main
from keras_transformer.translate.translation import Translation

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
    pytest.importorskip("ray")
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
        replica = object.__new__(self.replicas.serve_app.Replica.func_or_class)
        replica._app = echo
        return await replica.answer(self.scope, self.body)

    def cancel(self):
        self.replicas.cancelled += 1


def ask(serve_app, replicas, path="/translate", body=b"abc"):
    """The response of the ingress."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        return messages.pop()

    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": [], "client": ["a", 1]}
    ingress = serve_app.Ingress.func_or_class(replicas, max_body=10)
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
def test_a_request_that_takes_too_long_is_cancelled(serve_app, monkeypatch):
    monkeypatch.setattr(serve_app, "SECONDS", 0.1)
    replicas = Replicas(serve_app, seconds=60)
    response = ask(serve_app, replicas)
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

    def translate_stream(self, lines, first_line):
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
    "zip.txt": (gzip.compress(b"four\n"), ["FOUR"]),
}


@pytest.fixture
def job(translate_files, tmp_path, monkeypatch):
    """Runs a job without Ray. Its worker fails after a number of lines. Returns the number of translated lines."""
    source, output = tmp_path / "texts", tmp_path / "translations"
    source.mkdir()
    output.mkdir()
    for name, (content, _) in TEXTS.items():
        (source / name.replace("zip.txt", "zip.txt.gz")).write_bytes(content)

    def job(lines=10**9, model="x"):
        translator = Upper(lines)
        monkeypatch.setattr(translate_files, "load_translator", lambda *_, **options: translator)
        monkeypatch.setattr(translate_files, "hash_of_program", lambda *_: model)
        worker = translate_files.Worker("model", "onnx")
        for row in translate_files.missing_files(source, output):
            worker(row)
        return lines - translator.lines

    job.source, job.output = source, output
    return job


def check_outputs(output):
    expected = {name: "".join(f"{line}\n" for line in lines).encode() for name, (_, lines) in TEXTS.items()}
    assert {path.name: path.read_bytes() for path in output.iterdir()} == expected


def test_the_files_are_those_of_the_lines_in_order(job):
    assert job() == 1004
    check_outputs(job.output)


@pytest.mark.parametrize("lines", [0, 1, 500, 1000, 1002])
def test_an_interrupted_job_keeps_translated_lines(job, lines):
    with pytest.raises(KeyboardInterrupt):
        job(lines)
    assert job() == 1004 - lines
    check_outputs(job.output)
    assert job() == 0


def test_a_partial_translation_of_something_else_is_refused(job):
    with pytest.raises(KeyboardInterrupt):
        job(500)
    with pytest.raises(ValueError, match="a.txt.partial contains an interrupted translation with another model"):
        job(model="y")
    (job.source / "a.txt").write_bytes(TEXTS["a.txt"][0] + b"more\n")
    with pytest.raises(ValueError, match="a.txt.partial contains an interrupted translation with another source"):
        job()


def test_two_files_do_not_have_one_output(job):
    (job.source / "a.txt.gz").write_bytes(gzip.compress(b"other\n"))
    with pytest.raises(ValueError, match="must not contain a file both with and without .gz"):
        job()


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
