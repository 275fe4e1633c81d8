"""Mounts the page, behind a guard that refuses what the page does not need and ends its streams."""

import asyncio
import contextlib
import json
import sys

from fastapi import FastAPI, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from keras_transformer.apps.serve.config import ServeConfig
from keras_transformer.apps.serve.languages import Languages

#: Parts of the paths of Gradio that the page does not need: uploads, files of the server, requests to other hosts.
_REFUSED = ("/upload", "/file", "/proxy", "/stream", "/component_server", "/mcp", "/vibe")
#: Paths of the API. A request that reaches the page instead has the wrong method.
_API = (
    *("/translate", "/detect", "/languages", "/frontend/settings", "/health", "/metrics", "/spec", "/suggest"),
    "/translate_file",
)


def add_page(app: FastAPI, languages: Languages, config: ServeConfig) -> None:
    """Adds the page at `/`. It is made after the start of the server, because the import of Gradio takes seconds.

    Args:
        app: the application of the API.
        languages: the pairs of languages.
        config: the options.
    """
    state = "The page is being prepared. It appears in a few seconds."

    async def wait(request: Request) -> Response:
        return HTMLResponse(state, headers={"Refresh": "1"})

    def make():
        from keras_transformer.apps.serve.page import make_page

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


class PageGuard:
    """An ASGI application around the page.

    Gradio keeps a stream open for each browser. The server would wait for these streams before it stops.

    Args:
        page: the ASGI application of the page.
        stopping: is set when the server stops.
    """

    def __init__(self, page, stopping: asyncio.Event):
        self._page, self._stopping = page, stopping

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            await self._page(scope, receive, send)
        elif scope["path"] in _API:
            await _refuse(send, 405, "Method Not Allowed")
        elif any(part in scope["path"] for part in _REFUSED):
            await _refuse(send, 404, "Not Found")
        else:
            await self._until_stopped(scope, receive, send)

    async def _until_stopped(self, scope, receive, send):
        is_started = is_complete = False

        async def note(message):
            nonlocal is_started, is_complete
            is_started |= message["type"] == "http.response.start"
            is_complete |= message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        answer = asyncio.ensure_future(self._page(scope, receive, note))
        stop = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait({answer, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if answer.done():
            answer.result()
            return
        answer.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await answer
        if not is_started:
            await _refuse(send, 503, "The server stops")
        elif not is_complete:
            await send({"type": "http.response.body"})


async def _refuse(send, status, reason):
    body = json.dumps({"error": reason}).encode()
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": body})
