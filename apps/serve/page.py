"""The page of the server: that of the export format `web`, with a translator that asks the server."""

from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

import keras_transformer.export.web

_PAGE = Path(keras_transformer.export.web.__file__).parent / "static"
#: Path below that of the server -> file. All addresses in them are relative, so the page works below any path.
_FILES = {
    "": _PAGE / "index.html",
    "page.css": _PAGE / "page.css",
    "page.js": _PAGE / "page.js",
    "sentences.js": _PAGE / "sentences.js",
    "translator.js": Path(__file__).parent / "static" / "translator.js",
}
#: The page loads scripts and styles of this server alone, asks this server alone, and cannot be embedded.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


def page_routes() -> list[Route]:
    """The routes of the files of the page."""
    return [Route(f"/{name}", _answer(file)) for name, file in _FILES.items()]


def _answer(file):
    async def answer(request: Request) -> Response:
        return FileResponse(file, headers=_HEADERS)

    return answer
