"""The version of the installed package."""

import importlib.metadata

#: The name under which pip installs the package.
DISTRIBUTION = "keras-transformer-kit"

try:
    __version__ = importlib.metadata.version(DISTRIBUTION)
except importlib.metadata.PackageNotFoundError:  # Runs from the sources, without installation.
    __version__ = "0+unknown"
