"""An HTTP server with the API of LibreTranslate, and a page. They need the extra `serve`."""
