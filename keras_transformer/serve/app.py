"""The HTTP application, with the API of LibreTranslate (https://docs.libretranslate.com)."""

import asyncio
import contextlib
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
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from keras_transformer.serve.batcher import QueueFull, TooManySentences
from keras_transformer.serve.config import ServeConfig
from keras_transformer.serve.guard import PageGuard
from keras_transformer.serve.languages import Detected, Languages, name_of
from keras_transformer.serve.metrics import Metrics
from keras_transformer.serve.openapi import DETECT, ERRORS, HEALTH, LANGUAGES, SETTINGS, TRANSLATE
from keras_transformer.serve.pairs import LanguagePair
from keras_transformer.serve.parameters import integer_parameter, is_valid_key, read_parameters, text_parameter
from keras_transformer.version import __version__

_FORMATS = ("text", "html")
T = TypeVar("T")


class JsonResponse(Response):
    """A response in JSON, encoded as UTF-8."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """See `Response`."""
        return json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")


def make_app(pairs: Sequence[LanguagePair], config: ServeConfig, metrics: Metrics) -> FastAPI:
    """Makes the application.

    Args:
        pairs: the pairs of languages that it translates.
        config: the options.
        metrics: counts requests.

    Returns:
        The ASGI application.

    Raises:
        ValueError: see `Languages`.
    """
    app = FastAPI(
        title="keras-transformer",
        version=__version__,
        description='Translation with the API of LibreTranslate. Errors are `{"error": reason}`.',
        docs_url="/docs",
        redoc_url=None,
    )
    # Pages of other sites may call the API, as that of LibreTranslate. It uses no cookies.
    app.add_middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["*"], allow_headers=["*"])
    languages = Languages(pairs)
    service = _Service(languages, config, metrics)
    app.add_exception_handler(HTTPException, _error)
    for path, methods, endpoint, description in (
        ("/translate", ["POST", "GET"], service.translate, TRANSLATE),
        ("/detect", ["POST", "GET"], service.detect, DETECT),
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
    app.add_api_route("/metrics", service.metrics, include_in_schema=False)
    if config.page:
        _add_page(app, languages, config)
    metrics.count_waiting(lambda: sum(pair.batcher.queue_length for pair in pairs))
    return app


def _add_page(app: FastAPI, languages: Languages, config: ServeConfig) -> None:
    """Adds the page at `/`. It is made after the start of the server, because the import of Gradio takes seconds."""
    state = "The page is being prepared. It appears in a few seconds."

    async def wait(request: Request) -> Response:
        return HTMLResponse(state, headers={"Refresh": "1"})

    def make():
        from keras_transformer.serve.page import make_page

        return make_page(languages, config)

    async def show(stack: contextlib.AsyncExitStack):
        nonlocal state
        try:
            page = await asyncio.to_thread(make)
            await stack.enter_async_context(page.router.lifespan_context(page))
        except Exception as error:
            print(f"The page is not available: {error!r}", file=sys.stderr)
            state = "The page is not available. The API is."
            return
        app.router.routes.remove(placeholder)
        app.mount("/", PageGuard(page, app.state.stopping))

    @contextlib.asynccontextmanager
    async def lifespan(_):
        app.state.stopping = asyncio.Event()
        async with contextlib.AsyncExitStack() as stack:
            task = asyncio.create_task(show(stack))
            yield
            task.cancel()

    placeholder = Route("/", wait)
    app.router.routes.append(placeholder)
    app.router.lifespan_context = lifespan


class _Service:
    """The endpoints."""

    def __init__(self, languages: Languages, config: ServeConfig, metrics: Metrics):
        self._languages, self._config, self._metrics = languages, config, metrics
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
        format = text_parameter(parameters, "format", "text")
        if format not in _FORMATS:
            raise HTTPException(400, f"{format} format is not supported")
        source = text_parameter(parameters, "source")
        target = text_parameter(parameters, "target")
        detected = (await self._detect(texts))[0] if source == "auto" else None
        pair = self._pair(detected.language if detected else source, target)
        alternatives = integer_parameter(parameters, "alternatives", pair.translator.max_n_best - 1)
        self._metrics.characters.inc(sum(map(len, texts)))
        found = await _while_connected(request, pair.translate(texts, 1 + alternatives, is_html=format == "html"))
        answer: dict[str, Any] = {"translatedText": [one.texts[0] for one in found]}
        if alternatives:
            answer["alternatives"] = [one.texts[1:] for one in found]
        if detected:
            answer["detectedLanguage"] = [detected._asdict()] * len(texts)
        if not isinstance(parameters["q"], list):
            answer = {name: values[0] for name, values in answer.items()}
        if warnings := [warning for one in found for warning in one.warnings]:
            answer["warnings"] = warnings
        return JsonResponse(answer)

    async def detect(self, request: Request) -> Response:
        parameters = await self._parameters(request)
        return JsonResponse([one._asdict() for one in await self._detect(self._texts(parameters))])

    async def languages(self, request: Request) -> Response:
        return JsonResponse(
            [
                {"code": code, "name": name_of(code), "targets": self._languages.targets(code)}
                for code in self._languages.codes
            ]
        )

    async def settings(self, request: Request) -> Response:
        source, target = next(iter(self._languages.pairs))
        return JsonResponse(
            {
                "apiKeys": self._config.api_key is not None,
                "keyRequired": self._config.api_key is not None,
                "charLimit": self._config.max_characters,
                "filesTranslation": False,
                "frontendTimeout": 1000,
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
        parameters = await read_parameters(request, self._config.max_characters)
        if self._limit:
            client = request.client.host if request.client else ""
            if not await self._limiter.hit(self._limit, client):
                raise HTTPException(429, f"Slowdown: {self._limit}")
        if not is_valid_key(parameters.get("api_key"), self._config.api_key):
            raise HTTPException(403, "Invalid API key")
        return parameters

    async def _detect(self, texts) -> list[Detected]:
        if not self._languages.can_detect:
            raise HTTPException(400, f"auto is not supported for {', '.join(self._languages.sources)}: name the source")
        if len(self._languages.sources) == 1:
            return self._languages.detect(texts[0])
        return await asyncio.to_thread(self._languages.detect, "\n".join(texts))

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
        return [text.encode("utf-8", "replace").decode("utf-8") for text in texts]  # Without lone surrogates.

    def _pair(self, source, target) -> LanguagePair:
        known = self._languages.find(source, self._languages.sources)
        if known is None:
            raise HTTPException(400, f"{source} is not supported as a source language")
        found = self._languages.find(target, self._languages.targets(known))
        if found is None:
            raise HTTPException(400, f"{target} is not supported as a target language of {known}")
        return self._languages.pairs[known, found]


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


def _error(request, error) -> Response:
    return JsonResponse({"error": error.detail}, error.status_code, headers=error.headers)


def _error_response(request, error) -> Response:
    if isinstance(error, HTTPException):
        return _error(request, error)
    if isinstance(error, ClientDisconnect):
        return Response(status_code=499)  # Nobody reads it. It is counted in the metrics.
    if isinstance(error, TooManySentences):
        return JsonResponse({"error": f"Invalid request: {error}"}, 400)
    if isinstance(error, QueueFull):
        return JsonResponse({"error": "The server is busy: its queue is full"}, 503, headers={"Retry-After": "1"})
    print(f"{request.method} {request.url.path} failed: {error!r}", file=sys.stderr)
    return JsonResponse({"error": "Cannot translate text: internal error"}, 500)
