"""The version of the installed package."""

import importlib.metadata

try:
    __version__ = importlib.metadata.version("keras-transformer-kit")
except importlib.metadata.PackageNotFoundError:  # Runs from the sources, without installation.
    __version__ = "0+unknown"
