"""The report of the command `doctor`."""

import dataclasses
import itertools
import json
import platform
import sys
from collections.abc import Collection
from importlib.metadata import PackageNotFoundError
from pathlib import Path

from keras_transformer.cli.doctor.backend import BACKENDS, check_backend
from keras_transformer.cli.doctor.finding import Finding
from keras_transformer.cli.doctor.imports import import_packages
from keras_transformer.cli.doctor.requirements import Requirements, check, installed_version
from keras_transformer.version import DISTRIBUTION, __version__

#: Folder of this package.
_FOLDER = Path(__file__).parents[2]
#: Required packages that `train` on text files and `translate` with Keras do not need, and the commands that need them.
#: TensorFlow is also needed if it is the Keras backend; `check_backend` checks that.
_USED_BY = {
    "tensorflow": "export",
    "tensorflow-text": "export --format saved_model",
    "tensorflow-datasets": "train --dataset",
    "importlib_resources": "train --dataset",
    "num2words": "train --dataset number_words",
    "onnx": "export --format onnx",
    "tf2onnx": "export --format onnx",
    "onnxruntime": "translate --runtime onnx",
    "argcomplete": "completion in the shell",
}


@dataclasses.dataclass(frozen=True)
class Report:
    """The state of the installation.

    Args:
        versions: name and version of this package, Python and the operating system -> path or machine.
        backend: the backend of Keras.
        packages: the packages that this package requires.
        extras: the extras of this package.
        runtimes: the runtimes of `translate --runtime`.
        devices: the devices of each backend that can be imported; `None` if no package was imported.
    """

    versions: dict[str, str]
    backend: Finding
    packages: list[Finding]
    extras: list[Finding]
    runtimes: list[Finding]
    devices: list[Finding] | None

    @property
    def is_ready(self) -> bool:
        """Whether `train` on text files and `translate` with Keras have what they need."""
        return self.backend.is_ok and all(found.is_ok for found in self.packages if found.name not in _USED_BY)

    def to_json(self) -> str:
        """The report as a JSON object."""
        return json.dumps({"ready": self.is_ready, **dataclasses.asdict(self)}, indent=2)

    def __str__(self):
        width = max(map(len, self.versions))
        lines = [f"{version:{width}}  {place}" for version, place in self.versions.items()]
        for title in ("backend", "packages", "extras", "runtimes", "devices"):
            findings = getattr(self, title)
            if findings is not None:
                lines += _section(title, [findings] if title == "backend" else findings)
        verb = "have" if self.is_ready else "do not have"
        lines += ["", f"`train` and `translate` {verb} what they need."]
        if self.devices is None:
            lines += ["No package was imported. `--devices` imports them and shows the devices of each backend."]
        return "\n".join(lines)


def examine(devices: bool = False) -> Report:
    """Examines the installed packages.

    Args:
        devices: whether to import the packages and list the devices of the backends, which takes seconds.

    Raises:
        ValueError: if this package is not installed.
    """
    from keras_transformer.export.registry import FORMATS

    try:
        requirements = Requirements()
    except PackageNotFoundError as error:
        raise ValueError(f"{DISTRIBUTION} is not installed: pip install --editable {_FOLDER.parent}") from error
    clients = {name: format.client_packages for name, format in FORMATS.items() if format.client_packages}
    used = [*(one.name for one in requirements.by_extra[""]), *BACKENDS, *itertools.chain(*clients.values())]
    imported = _import(used) if devices else {}
    errors = {name: found.error for name, found in imported.items() if found.error}

    def check_packages(name, packages):
        return check(name, [requirements.find(package) for package in packages], errors)

    backend = check_backend(requirements, errors)
    keras = check_packages("keras", ["keras"])
    if keras.is_ok and not backend.is_ok:
        keras = dataclasses.replace(backend, name="keras")
    seen = [Finding(name, "ok", ", ".join(found.devices)) for name, found in imported.items() if found.devices]
    return Report(
        versions={
            f"{DISTRIBUTION} {__version__}": str(_FOLDER),
            f"Python {platform.python_version()}": sys.executable,
            f"{platform.system()} {platform.release()}": platform.machine(),
        },
        backend=backend,
        packages=[_with_users(check(one.name, [one], errors)) for one in requirements.by_extra[""]],
        extras=[check(extra, needed, errors) for extra, needed in requirements.by_extra.items() if extra],
        runtimes=[keras, *(check_packages(name, packages) for name, packages in clients.items())],
        devices=seen if devices else None,
    )


def _import(names: Collection[str]):
    """Imports the packages that are installed."""
    installed = [name for name in dict.fromkeys(names) if installed_version(name) is not None]
    print(f"Importing {len(installed)} packages, which takes some seconds", file=sys.stderr)
    return import_packages(installed)


def _with_users(found: Finding) -> Finding:
    """Adds the commands that use the package, if it is missing or faulty."""
    if found.is_ok or found.name not in _USED_BY:
        return found
    return dataclasses.replace(found, detail=f"{found.detail}; used by `{_USED_BY[found.name]}`")


def _section(title, findings):
    """The lines of a part of the report."""
    lines, width = ["", title.capitalize()], max((len(found.name) for found in findings), default=0)
    for found in findings:
        lines.append(f"  {found.state:7}  {found.name:{width}}  {found.detail}".rstrip())
        if found.command:
            lines.append(" " * (13 + width) + found.command)
    return lines
