"""Serves model directories with Ray Serve: the application of `keras-transformer serve`, in several replicas.

python examples/ray/serve_app.py runs/en-de --languages en-de --replicas 2

A request passes Ray's HTTP proxy and a thin ingress, which calls one of the replicas. Ray replaces a replica that dies
or fails its health check. Ray runs an accepted call at most once, so the calls of a replica that dies are lost. A
translation has no side effects. So the ingress repeats a lost call, at most `retries` times: the limit protects the
service from a request that kills each replica. After that, and after `seconds`, the ingress answers 503 with the header
Retry-After.
"""

import argparse
import asyncio
import os
import signal
import sys
import threading
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from keras_transformer.apps.serve.batcher import QueueFull
from keras_transformer.apps.serve.config import ServeConfig
from keras_transformer.apps.serve.parameters import max_body_bytes
from keras_transformer.apps.serve.server import API_KEY, load_app

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

#: Name of the application in the cluster.
NAME = "keras-transformer"
#: Parts of a request's ASGI scope that the application needs.
_SCOPE = (
    "type",
    "asgi",
    "http_version",
    "method",
    "scheme",
    "path",
    "raw_path",
    "query_string",
    "root_path",
    "headers",
)
#: Requests that each replica accepts at the same time. It translates their sentences in common batches.
_REQUESTS_PER_REPLICA = 256
#: Sentences that may wait in each replica. A health check waits behind them.
_SENTENCES_PER_REPLICA = 2000
#: Seconds between health checks, and timeout of one check in seconds. Ray replaces a replica after three failures.
_HEALTH_CHECK = {"health_check_period_s": 1, "health_check_timeout_s": 60}


class Arguments(BaseModel):
    """Arguments of the application.

    Attributes:
        directories: model directories, one per pair of languages. Every machine must have them at this path.
        languages: pair of languages of each directory, such as `en-de`. Default: those that the directories record.
        runtime: runtime that translates. Default: the fastest that each directory contains.
        replicas: number of replicas.
        cpus: cores of each replica, and batches that it translates at the same time.
        ingresses: number of ingress replicas.
        retries: how often the ingress repeats a call whose replica has died.
        seconds: seconds after which the ingress answers 503.
    """

    directories: list[str]
    languages: str | None = None
    runtime: str | None = None
    replicas: int = 2
    cpus: int = 1
    ingresses: int = 1
    retries: int = 2
    seconds: float = 60.0


class Answer(NamedTuple):
    """The response of a replica.

    Attributes:
        status: its status.
        headers: names and values.
        body: its body.
    """

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Replica:
    """The application of `keras-transformer serve` with its own translators.

    Args:
        directories: model directories.
        config: the options of the server.
    """

    def __init__(self, directories: list[str], config: ServeConfig):
        self._app, self._pairs = load_app(directories, config)

    async def answer(self, scope: dict, body: bytes) -> Answer:
        """Runs the application for one request.

        Args:
            scope: the ASGI scope of the request.
            body: its whole body.
        """
        return await run_asgi(self._app, scope, body)

    async def check_health(self) -> None:
        """Translates a word with each model, in turn with the clients. Ray replaces a replica that fails or hangs."""
        for pair in self._pairs:
            length = pair.batcher.queue_length
            try:
                await pair.translate(["a"])
            except QueueFull:  # The replica hangs only if its queue stays as long as it is.
                while pair.batcher.queue_length == length:
                    await asyncio.sleep(0.1)


async def run_asgi(app, scope: dict, body: bytes) -> Answer:
    """Calls an ASGI application with a whole request.

    Args:
        app: the application.
        scope: the scope of the request.
        body: its body.
    """
    requests = [{"type": "http.request", "body": body}]
    status, headers, chunks = 500, [], []

    async def receive():
        if requests:
            return requests.pop()
        await asyncio.Event().wait()  # The client is connected. If it leaves, Ray cancels the call.

    async def send(message):
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status, headers = message["status"], list(message.get("headers", ()))
        else:
            chunks.append(message.get("body", b""))

    await app(dict(scope), receive, send)
    return Answer(status, headers, b"".join(chunks))


class Ingress:
    """Passes each request to a replica, and repeats the call if the replica dies.

    Args:
        replicas: handle of the replicas.
        max_body: maximum number of bytes of a request body. Longer ones are cut, and the replica refuses them.
        retries: see `Arguments`.
        seconds: see `Arguments`.
    """

    def __init__(self, replicas, max_body: int, retries: int, seconds: float):
        self._replicas, self._max_body = replicas, max_body
        self._retries, self._seconds = retries, seconds

    async def __call__(self, request: Request) -> Response:
        """Answers a request."""
        from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

        if request.url.path == "/metrics":  # The metrics of one replica would look like those of the whole service.
            return JSONResponse({"error": "The metrics of this service are those of Ray Serve"}, 404)
        try:
            async with asyncio.timeout(self._seconds):
                answer = await self._ask(*await self._read(request))
        except (TimeoutError, BackPressureError, DeploymentUnavailableError):
            answer = None
        if answer is None:
            headers = {"Retry-After": "1", "Access-Control-Allow-Origin": "*"}
            return JSONResponse({"error": "The server is busy, or its replicas restart"}, 503, headers)
        response = Response(answer.body, answer.status)
        response.raw_headers = answer.headers
        return response

    async def _read(self, request) -> tuple[dict, bytes]:
        """The scope and the body of a request, without what cannot be sent to a replica."""
        scope = {name: request.scope[name] for name in _SCOPE if name in request.scope}
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self._max_body:
                break
        return {**scope, "client": tuple(request.client or ()) or None}, bytes(body[: self._max_body + 1])

    async def _ask(self, scope, body) -> Answer | None:
        """The answer of a replica; `None` if `retries` + 1 replicas have died."""
        from ray.exceptions import ObjectLostError, RayActorError
        from ray.serve.exceptions import ReplicaUnavailableError

        for _ in range(1 + self._retries):
            response = self._replicas.answer.remote(scope, body)
            try:
                return await response
            except (RayActorError, ObjectLostError, ReplicaUnavailableError) as error:
                print(f"The replica of a request has died: {error!r}", file=sys.stderr)
            finally:
                response.cancel()  # Has no effect on a finished call.
        return None


def build(arguments: Arguments):
    """Makes the application, for `serve run` and `serve deploy` as well.

    Args:
        arguments: see `Arguments`.

    Returns:
        A Ray Serve application.
    """
    from ray import serve

    config = ServeConfig(
        languages=arguments.languages,
        runtime=arguments.runtime,
        num_threads=1,
        parallel_batches=arguments.cpus,
        max_queue=_SENTENCES_PER_REPLICA,
        api_key=os.environ.get(API_KEY),
        page=False,
    )
    directories = [str(Path(directory).resolve()) for directory in arguments.directories]
    replicas = serve.deployment(Replica).options(
        num_replicas=arguments.replicas,
        max_ongoing_requests=_REQUESTS_PER_REPLICA,
        max_queued_requests=_REQUESTS_PER_REPLICA * arguments.replicas,
        ray_actor_options={"num_cpus": arguments.cpus},
        **_HEALTH_CHECK,
    )
    ingress = serve.deployment(Ingress).options(
        num_replicas=arguments.ingresses,
        max_ongoing_requests=4 * _REQUESTS_PER_REPLICA * arguments.replicas,
        ray_actor_options={"num_cpus": 0},
        **_HEALTH_CHECK,
    )
    limits = max_body_bytes(config.max_characters), arguments.retries, arguments.seconds
    return ingress.bind(replicas.bind(directories, config), *limits)


def main() -> None:
    """Serves until the process receives SIGTERM or SIGINT."""
    options = _parsed()
    address, host, port = (options.pop(name) for name in ("address", "host", "port"))
    import ray
    from ray import serve

    arguments = Arguments(**options)
    local = {"include_dashboard": False, "object_store_memory": 256 << 20}
    address = address or os.environ.get("RAY_ADDRESS")
    ray.init(address, log_to_driver=False, **({} if address else local))
    serve.start(http_options={"host": host, "port": port})
    serve.run(build(arguments), name=NAME)
    print(f"Serving on http://{host}:{port} with {arguments.replicas} replicas. Stop with Ctrl+C", flush=True)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()
    serve.delete(NAME)
    ray.shutdown()


def _parsed() -> dict:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    defaults = {name: field.default for name, field in Arguments.model_fields.items()}
    parser.add_argument("directories", nargs="+", help="model directories, one per pair of languages")
    parser.add_argument("--languages", help="pair of languages of each directory, such as en-de")
    parser.add_argument("--runtime", help="runtime that translates; default: the fastest")
    for name, kind, help in (
        ("replicas", int, "number of replicas"),
        ("cpus", int, "cores of each replica"),
        ("ingresses", int, "number of ingress replicas"),
        ("retries", int, "how often a call is repeated if its replica dies"),
        ("seconds", float, "time until a request is given up"),
    ):
        parser.add_argument(f"--{name}", type=kind, default=defaults[name], help=f"{help} (default: %(default)s)")
    parser.add_argument("--address", help="Ray cluster, such as auto; default: a new one on this machine")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=5000, help="port to listen on (default: %(default)s)")
    return vars(parser.parse_args())


if __name__ == "__main__":
    main()
