"""The HTTP application, with the API of LibreTranslate (https://docs.libretranslate.com)."""

import asyncio
import json
import sys
import time
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from limits import RateLimitItemPerMinute
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import MovingWindowRateLimiter
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from keras_transformer.apps.serve.config import ServeConfig
from keras_transformer.apps.serve.metrics import Metrics
from keras_transformer.apps.serve.openapi import ATTENTION, DETECT, ERRORS, HEALTH, LANGUAGES, SETTINGS, TRANSLATE
from keras_transformer.apps.serve.page import page_routes
from keras_transformer.apps.serve.pairs import LanguagePair
from keras_transformer.apps.serve.parameters import check_key, integer_parameter, read_parameters, text_parameter
from keras_transformer.apps.serve.routes import Router, name_of, translate
from keras_transformer.storage.exhaustion import describe_out_of_memory, is_out_of_memory
from keras_transformer.text.lines import valid_text
from keras_transformer.version import __version__

_FORMATS = ("text", "html")
#: What this server lacks of LibreTranslate, with the answers of a LibreTranslate in which it is disabled.
_DISABLED = (
    ("POST", "/translate_file", 403, "Files translation are disabled on this server."),
    ("GET", "/download_file/{name}", 400, "Files translation are disabled on this server."),
    ("POST", "/suggest", 403, "Suggestions are disabled on this server."),
)
T = TypeVar("T")


class JsonResponse(Response):
    """A response in JSON, encoded as UTF-8."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """See `Response`."""
        return json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")


def make_app(pairs: Sequence[LanguagePair], config: ServeConfig, metrics: Metrics) -> FastAPI:
    """Makes the application. Raises a `ValueError` if a language must be detected and lingua is not installed."""
    app = FastAPI(
        title="keras-transformer",
        version=__version__,
        description='Translation with the API of LibreTranslate. Errors are `{"error": reason}`.',
        docs_url="/docs",
        redoc_url=None,
        redirect_slashes=False,  # Starlette redirects to a URL with the server's own address.
    )
    # Pages of other sites may call the API, as that of LibreTranslate. It uses no cookies.
    app.add_middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["*"], allow_headers=["*"])
    router = app.state.router = Router(pairs)
    service = _Service(router, config, metrics)
    app.add_exception_handler(HTTPException, _error)
    for path, methods, endpoint, description in (
        ("/translate", ["POST"], service.translate, TRANSLATE),
        ("/detect", ["POST"], service.detect, DETECT),
        ("/attention", ["POST"], service.attention, ATTENTION),
        ("/languages", ["GET", "HEAD"], service.languages, LANGUAGES),
        ("/frontend/settings", ["GET", "HEAD"], service.settings, SETTINGS),
        ("/health", ["GET", "HEAD"], service.health, HEALTH),
    ):
        for method in methods:
            app.add_api_route(
                path,
                service.measured(path, endpoint),
                methods=[method],
                response_model=None,
                responses=ERRORS,
                include_in_schema=method == methods[0],
                name=path.strip("/"),
                **description,
            )
    options = {"methods": ["GET", "HEAD"], "include_in_schema": False, "response_model": None}
    app.add_api_route("/metrics", service.metrics, **options)
    app.add_api_route("/spec", app.openapi, **options)
    for method, path, status, reason in _DISABLED:
        app.add_api_route(path, _refusal(status, reason), methods=[method], include_in_schema=False)
    if config.page:
        app.router.routes += page_routes()
    batchers = {pair.batcher for pair in pairs}
    metrics.waiting.set_function(lambda: sum(batcher.queue_length for batcher in batchers))
    return app


class _Service:
    """The endpoints."""

    def __init__(self, router: Router, config: ServeConfig, metrics: Metrics):
        self._router, self._config, self._metrics = router, config, metrics
        self._max_n_best = max(pair.translator.max_n_best for pair in router.pairs.values())
        self._limiter = MovingWindowRateLimiter(MemoryStorage())
        self._limit = config.requests_per_minute and RateLimitItemPerMinute(config.requests_per_minute)

    def measured(self, path, endpoint):
        """Wraps an endpoint, so that its requests are counted and timed."""

        async def measured(request: Request) -> Response:
            started = time.perf_counter()
            try:
                response = await endpoint(request)
            except Exception as error:
                response = _error_response(request, error)
            self._metrics.requests.labels(path, response.status_code).inc()
            self._metrics.seconds.labels(path).observe(time.perf_counter() - started)
            return response

        return measured

    async def translate(self, request: Request) -> Response:
        parameters = await self._parameters(request)
        texts = self._texts(parameters)
        source, target = text_parameter(parameters, "source"), text_parameter(parameters, "target")
        alternatives = integer_parameter(parameters, "alternatives", self._max_n_best - 1)
        format = text_parameter(parameters, "format", "text")
        is_auto, is_html = source.strip().lower() == "auto", format == "html"
        if is_auto:
            routes = await asyncio.to_thread(self._router.detected, texts, target, is_html)
        else:
            routes = [self._router.named(source, target)] * len(texts)
        if format not in _FORMATS:
            raise HTTPException(400, f"{format} format is not supported")
        self._metrics.characters.inc(sum(map(len, texts)))
        found = await _while_connected(request, translate(routes, texts, 1 + alternatives, is_html))
        answer: dict[str, Any] = {"translatedText": [one.texts[0] for one in found]}
        if parameters.get("scores") in (True, "true", "1"):
            answer["scores"] = [one.scores for one in found]
        if alternatives:
            answer["alternatives"] = [one.texts[1:] for one in found]
        if is_auto:
            answer["detectedLanguage"] = [route.detected and route.detected._asdict() for route in routes]
        if not isinstance(parameters["q"], list):
            answer = {name: values[0] for name, values in answer.items()}
        if warnings := [warning for one in found for warning in one.warnings]:
            answer["warnings"] = warnings
        return JsonResponse(answer)

    async def detect(self, request: Request) -> Response:
        texts = self._texts(await self._parameters(request))
        found = await asyncio.to_thread(self._router.languages_of, texts)
        return JsonResponse([one._asdict() for one in found])

    async def attention(self, request: Request) -> Response:
        parameters = await self._parameters(request)
        texts = self._texts(parameters)
        source, target = text_parameter(parameters, "source"), text_parameter(parameters, "target")
        pair = self._router.named(source, target).pair
        if pair is None or len(texts) > 1:
            raise HTTPException(400, "Invalid request: attention needs one text, and two languages")
        weights, *subwords = await _while_connected(request, pair.attention(texts[0]))
        rounded = weights.astype("float64").round(4).tolist()
        return JsonResponse({"source": subwords[0], "target": subwords[1], "weights": rounded})

    async def languages(self, request: Request) -> Response:
        return JsonResponse(
            [
                {"code": code, "name": name_of(code), "targets": self._router.targets(code)}
                for code in self._router.codes
            ]
        )

    async def settings(self, request: Request) -> Response:
        source, target = next(iter(self._router.pairs))
        return JsonResponse(
            {
                "apiKeys": self._config.api_key is not None,
                "keyRequired": self._config.api_key is not None,
                "charLimit": self._config.max_characters,
                "filesTranslation": False,
                "frontendTimeout": 1000,
                "maxAlternatives": self._max_n_best - 1,
                "language": {
                    "source": {"code": source, "name": name_of(source)},
                    "target": {"code": target, "name": name_of(target)},
                },
                "suggestions": False,
                "supportedFilesFormat": [],
            }
        )

    async def health(self, request: Request) -> Response:
        return JsonResponse({"status": "ok"})

    async def metrics(self) -> Response:
        return Response(self._metrics.text(), media_type=self._metrics.content_type)

    async def _parameters(self, request) -> dict[str, Any]:
        """Reads the parameters, and checks the key and the rate of the client."""
        parameters = await read_parameters(request, self._config.max_body_bytes)
        if self._limit:
            client = request.client.host if request.client else ""
            if not await self._limiter.hit(self._limit, client):
                raise HTTPException(429, f"Slowdown: {self._limit}")
        check_key(parameters.get("api_key"), self._config.api_key)
        return parameters

    def _texts(self, parameters) -> list[str]:
        q = parameters.get("q")
        texts = q if isinstance(q, list) else [q]
        if not q:
            raise HTTPException(400, "Invalid request: missing q parameter")
        if not all(isinstance(text, str) for text in texts):
            raise HTTPException(400, "Invalid request: q parameter is not a text or a list of texts")
        size = sum(map(len, texts))
        if size > self._config.max_characters:
            raise HTTPException(
                400, f"Invalid request: request ({size}) exceeds text limit ({self._config.max_characters})"
            )
        return [valid_text(text) for text in texts]


async def _while_connected(request, work: Coroutine[Any, Any, T]) -> T:
    """Awaits work, which is cancelled if the client disconnects: its sentences leave the queue."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(request.receive())  # The body has been read. Only the end of the connection follows.
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()
        gone.cancel()


def _refusal(status: int, reason: str):
    """An endpoint that refuses all requests."""

    async def refuse():
        return JsonResponse({"error": reason}, status)

    return refuse


def _error(request, error) -> Response:
    return JsonResponse({"error": error.detail}, error.status_code, headers=error.headers)


def _error_response(request, error) -> Response:
    if isinstance(error, HTTPException):
        return _error(request, error)
    if isinstance(error, ClientDisconnect):
        return Response(status_code=499)  # Nobody reads it. It is counted in the metrics.
    why = describe_out_of_memory("serve") if is_out_of_memory(error) else repr(error)
    print(f"{request.method} {request.url.path} failed: {why}", file=sys.stderr)
    return JsonResponse({"error": "Cannot translate text: internal error"}, 500)
