"""The command `doctor`: versions, missing packages with the commands that install them, and devices."""

import importlib.metadata
import platform
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

from keras_transformer.version import DISTRIBUTION, __version__

#: The backends of Keras that this package supports, and the extra that installs each.
_BACKENDS = {"tensorflow": "", "jax": "[jax]", "torch": "[torch]"}


def examine() -> bool:
    """Prints versions, the packages of this package and of its extras, the backend of Keras, and its devices.

    Returns:
        Whether the required packages are installed and Keras can use its backend.

    Raises:
        ValueError: if this package is not installed.
    """
    folder = Path(__file__).parents[1]
    try:
        extras = importlib.metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or []
    except importlib.metadata.PackageNotFoundError as error:
        raise ValueError(f"{DISTRIBUTION} is not installed: pip install --editable {folder.parent}") from error
    print(f"{DISTRIBUTION} {__version__}, {folder}")
    print(f"Python {platform.python_version()}, {sys.executable}")
    print(f"{platform.system()} {platform.release()}, {platform.machine()}\n")
    is_complete = _show_packages("required", "")
    for extra in extras:
        _show_packages(f"extra {extra}", extra)
    sys.stdout.flush()  # The import of a broken package may end the process.
    return _show_backend() and is_complete


def _show_packages(title, extra) -> bool:
    requirements = [*_requirements(DISTRIBUTION, extra)]
    problems = [problem for requirement in requirements for problem in _problems(requirement)]
    found = problems or [f"{one.name} {importlib.metadata.version(one.name)}" for one in requirements]
    _show(not problems, title, ", ".join(found), f"{DISTRIBUTION}[{extra}]" if extra else DISTRIBUTION)
    return not problems


def _show_backend() -> bool:
    try:
        import keras

        backend = keras.backend.backend()
        devices = _devices() if backend in _BACKENDS else ["cpu"]
    except Exception as error:  # A broken package may raise anything.
        missing = getattr(error, "name", None) or ""
        _show(False, "backend", f"{type(error).__name__}: {error}", f"{DISTRIBUTION}{_BACKENDS.get(missing, '')}")
        return False
    _show(backend in _BACKENDS, "backend", f"{backend}, on {', '.join(devices)}", "")
    if backend not in _BACKENDS:
        print(f"  set the environment variable KERAS_BACKEND to one of {', '.join(_BACKENDS)}")
    return backend in _BACKENDS


def _devices() -> list[str]:
    import keras

    if keras.backend.backend() != "torch":
        return keras.distribution.list_devices()
    import torch  # Keras does not list PyTorch's devices.

    return [f"cuda:{i}" for i in range(torch.cuda.device_count())] or ["cpu"]


def _show(is_ok, title, text, package):
    state = "ok     " if is_ok else "missing"
    print(textwrap.fill(f"{state}  {title}: {text}", 100, subsequent_indent=" " * 9, break_on_hyphens=False))
    if package and not is_ok:
        print(f"         pip install '{package}'")


def _requirements(distribution, extra) -> Iterator[Requirement]:
    """The requirements of a distribution, or those that an extra adds."""
    for one in map(Requirement, importlib.metadata.requires(distribution) or ()):
        if _applies(one, extra) and not (extra and _applies(one, "")):
            yield one


def _applies(requirement, extra):
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _problems(requirement) -> Iterator[str]:
    """What is wrong with the package of a requirement, and with those of the extras that it names."""
    name = requirement.name
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        yield f"{name} (not installed)"
        return
    if not requirement.specifier.contains(version, prereleases=True):
        yield f"{name} {version} (must be {requirement.specifier})"
    for extra in requirement.extras:
        for part in _requirements(name, extra):
            yield from _problems(part)
