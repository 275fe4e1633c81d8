"""An HTTP server with the API of LibreTranslate, and a page. They need the extra `serve`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
