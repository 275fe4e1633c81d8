"""The server process."""

import dataclasses
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from keras_transformer.apps.serve.config import ServeConfig
from keras_transformer.checks import needs

if TYPE_CHECKING:
    from fastapi import FastAPI

    from keras_transformer.apps.serve.pairs import LanguagePair

#: The environment variable with the API key.
API_KEY = "KERAS_TRANSFORMER_API_KEY"
#: Maximum number of pairs of languages that are listed at the start.
_MOST_SHOWN = 20


def serve(directories: Sequence[str | Path], config: ServeConfig) -> None:
    """Serves model directories until the process receives SIGTERM or SIGINT. Accepted requests are then answered.

    Args:
        directories: model directories, each of a pair of languages or of a model with several.
        config: the options.

    Raises:
        ValueError: if the extra `serve` is not installed, a directory cannot be served, or the port is in use.
    """
    with needs("serve"):
        import uvicorn

        from keras_transformer.apps.serve.proxies import BehindProxies

    with _bound_socket(config) as listener:
        app, pairs = load_app(directories, config)
        host, port = listener.getsockname()[:2]
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        for pair in pairs[:_MOST_SHOWN]:
            print(f"{pair.source}-{pair.target}: {pair.runtime}", file=sys.stderr)
        if len(pairs) > _MOST_SHOWN:
            print(f"and {len(pairs) - _MOST_SHOWN:,} other pairs", file=sys.stderr)
        for note in app.state.router.notes:
            print(f"source=auto: {note}", file=sys.stderr)

        class Server(uvicorn.Server):
            async def startup(self, sockets=None):
                await super().startup(sockets)
                print(f"Serving on {address} (the API: {address}/docs). Stop with Ctrl+C", file=sys.stderr, flush=True)

        # uvicorn raises SIGTERM again after its shutdown. The default action would end the process with an error.
        signal.signal(signal.SIGTERM, lambda *_: None)
        options = {"log_level": "warning", "access_log": False, "proxy_headers": False, "root_path": config.root_path}
        Server(uvicorn.Config(BehindProxies(app), **options)).run(sockets=[listener])


def load_app(directories: Sequence[str | Path], config: ServeConfig) -> "tuple[FastAPI, list[LanguagePair]]":
    """Loads models and makes the application that serves them, for any ASGI server.

    Args:
        directories: model directories, each of a pair of languages or of a model with several.
        config: the options. The API key of the environment is used if they have none.

    Returns:
        The ASGI application, and a `LanguagePair` for each pair of languages.

    Raises:
        ValueError: if the extra `serve` is not installed, or a directory cannot be served.
    """
    with needs("serve"):
        from keras_transformer.apps.serve.app import make_app
    from keras_transformer.apps.serve.metrics import Metrics
    from keras_transformer.apps.serve.pairs import load_pairs

    if config.api_key is None and API_KEY in os.environ:
        config = dataclasses.replace(config, api_key=os.environ[API_KEY])
    metrics = Metrics()
    pairs = load_pairs(directories, config, metrics)
    return make_app(pairs, config, metrics), pairs


def _bound_socket(config: ServeConfig) -> socket.socket:
    """A socket that listens on the address and port of the options. Requests wait in it until the models are loaded."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((config.host, config.port))
        listener.listen()  # Of two servers that start at the same time, the second fails here.
    except OSError as error:
        listener.close()
        raise ValueError(
            f"`host` and `port` must be an address of this machine that is not in use. "
            f"Received: host={config.host}, port={config.port} ({error.strerror or error})"
        ) from error
    return listener
