"""Headers of a reverse proxy."""

import os
from urllib.parse import quote

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from keras_transformer.apps.serve.config import ROOT_PATH


class BehindProxies(ProxyHeadersMiddleware):
    """Reads `X-Forwarded-Prefix`, the path of the server, beside the headers that uvicorn reads.

    The headers count only if they come from a trusted address: those in the environment variable
    `FORWARDED_ALLOW_IPS`, by default 127.0.0.1.

    Args:
        app: the ASGI application.
    """

    def __init__(self, app):
        super().__init__(app, os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1"))

    async def __call__(self, scope, receive, send):
        """See ASGI."""
        if scope["type"] == "http" and scope["client"] and scope["client"][0] in self.trusted_hosts:
            prefix = dict(scope["headers"]).get(b"x-forwarded-prefix", b"").decode("latin-1")
            if prefix and ROOT_PATH.fullmatch(prefix):
                path = prefix + scope["path"].removeprefix(scope.get("root_path", ""))
                scope = {**scope, "root_path": prefix, "path": path, "raw_path": quote(path).encode()}
        await super().__call__(scope, receive, send)
