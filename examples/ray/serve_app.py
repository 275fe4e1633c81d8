"""Serves model directories with Ray Serve: the application of `keras-transformer serve`, in several replicas.

serve run --app-dir examples/ray serve_app:build directories=runs/en-de languages=en-de replicas=2

A request passes Ray's proxy and a thin ingress, which calls one of the replicas. Ray runs an accepted call at most
once, so the calls of a replica that dies are lost. A translation has no side effects: the ingress repeats lost calls.
"""

import asyncio
import os
from pathlib import Path

from pydantic import BaseModel
from ray import serve
from ray.exceptions import ObjectLostError, RayActorError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, ReplicaUnavailableError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from keras_transformer.apps.serve import ServeConfig, load_app

#: Requests that a replica accepts at the same time, and sentences that may wait in it.
REQUESTS, SENTENCES = 256, 2000
#: How often the ingress repeats a lost call, and the seconds after which it answers 503.
RETRIES, SECONDS = 2, 60
#: Ray replaces a replica after three failed checks. A check waits behind the sentences of the clients.
HEALTH_CHECK = {"health_check_period_s": 1, "health_check_timeout_s": 60}
#: What a replica needs of a request's ASGI scope. The rest cannot be sent to another process.
SCOPE = "type asgi http_version method scheme path raw_path query_string root_path headers client".split()
LOST = (RayActorError, ObjectLostError, ReplicaUnavailableError)


class Arguments(BaseModel):
    """Arguments of the application. Those without a comment are options of `keras-transformer serve`."""

    directories: str  # Model directories, separated by commas. Every machine must have them at this path.
    languages: str | None = None
    runtime: str | None = None
    replicas: int = 2
    cpus: int = 1  # Cores of each replica, and batches that it translates at the same time.


@serve.deployment(max_ongoing_requests=REQUESTS, **HEALTH_CHECK)
class Replica:
    """The application with translators of its own."""

    def __init__(self, directories: list[str], config: ServeConfig):
        self._app, self._pairs = load_app(directories, config)

    async def answer(self, scope: dict, body: bytes) -> tuple[int, list, bytes]:
        """Runs the application for one request. Returns the status, the headers and the body of the response."""
        requests, messages = [{"type": "http.request", "body": body}], []

        async def receive():
            return requests.pop() if requests else await asyncio.Event().wait()  # Ray cancels calls of lost clients.

        async def send(message):
            messages.append(message)

        await self._app(scope, receive, send)
        start, *parts = messages
        return start["status"], list(start["headers"]), b"".join(part.get("body", b"") for part in parts)

    async def check_health(self) -> None:
        """Translates a word with each model. Ray replaces a replica that fails or hangs."""
        for pair in {pair.batcher: pair for pair in self._pairs}.values():
            length = pair.batcher.queue_length
            try:
                await pair.translate(["a"])
            except HTTPException:  # The queue is full. The replica hangs only if it stays as long as it is.
                while pair.batcher.queue_length == length:
                    await asyncio.sleep(0.1)


@serve.deployment(ray_actor_options={"num_cpus": 0}, **HEALTH_CHECK)
class Ingress:
    """Passes each request to a replica, and repeats the call if the replica dies."""

    def __init__(self, replicas, max_body: int):
        self._replicas, self._max_body = replicas, max_body

    async def __call__(self, request: Request) -> Response:
        if request.url.path == "/metrics":  # The metrics of one replica would look like those of the whole service.
            return JSONResponse({"error": "The metrics of this service are those of Ray Serve"}, 404)
        try:
            async with asyncio.timeout(SECONDS):
                status, headers, body = await self._ask(request)
        except (TimeoutError, BackPressureError, DeploymentUnavailableError, *LOST):
            headers = {"Retry-After": "1", "Access-Control-Allow-Origin": "*"}
            return JSONResponse({"error": "The server is busy, or its replicas restart"}, 503, headers)
        response = Response(body, status)
        response.raw_headers = headers
        return response

    async def _ask(self, request):
        body = bytearray()
        async for chunk in request.stream():
            body += chunk[: self._max_body + 1 - len(body)]  # The replica refuses a body of one byte too many.
        scope = {name: value for name, value in request.scope.items() if name in SCOPE}
        for attempt in range(1 + RETRIES):
            call = self._replicas.answer.remote(scope, bytes(body))
            try:
                return await call
            except LOST:
                if attempt == RETRIES:  # A request that kills each replica must not kill all of them.
                    raise
            finally:
                call.cancel()  # Has no effect on a finished call.


def build(arguments: Arguments) -> serve.Application:
    """Makes the application, for `serve run` and `serve deploy`."""
    config = ServeConfig(
        languages=arguments.languages,
        runtime=arguments.runtime,
        num_threads=1,
        parallel_batches=arguments.cpus,
        max_queue=SENTENCES,
        api_key=os.environ.get("KERAS_TRANSFORMER_API_KEY"),
        page=False,
    )
    directories = [str(Path(directory).resolve()) for directory in arguments.directories.split(",")]
    replicas = Replica.options(
        num_replicas=arguments.replicas,
        max_queued_requests=REQUESTS * arguments.replicas,
        ray_actor_options={"num_cpus": arguments.cpus},
    )
    ingress = Ingress.options(max_ongoing_requests=4 * REQUESTS * arguments.replicas)
    return ingress.bind(replicas.bind(directories, config), config.max_body_bytes)
