"""The backend that Keras will use and why, without importing Keras."""

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path

from keras_transformer.cli.doctor.finding import Finding
from keras_transformer.cli.doctor.requirements import Requirements, check

#: The backends of Keras that the package supports. Their packages have the same names.
BACKENDS = ("tensorflow", "jax", "torch")


def check_backend(requirements: Requirements, import_errors: Mapping[str, str]) -> Finding:
    """Checks the backend that Keras chooses: from the variable KERAS_BACKEND, else from keras.json, else TensorFlow.

    Args:
        requirements: the requirements of this package.
        import_errors: name of a package -> why it cannot be imported.
    """
    name, reason, fault = _choice()
    if not fault and name not in BACKENDS:
        fault = f"the backend must be one of {', '.join(BACKENDS)}"
    if fault:
        return Finding(name, "faulty", f"{reason}; {fault}")
    package = check(name, [requirements.find(name)], import_errors)
    return dataclasses.replace(package, detail=reason if package.is_ok else f"{reason}; {package.detail}")


def config_file() -> Path:
    """The file from which Keras reads its configuration."""
    home = os.path.expanduser("~")
    folder = os.environ.get("KERAS_HOME", f"{home if os.access(home, os.W_OK) else '/tmp'}/.keras")
    return Path(folder).expanduser() / "keras.json"


def _choice() -> tuple[str, str, str]:
    """The backend, the reason for it, and the problem if Keras cannot be imported."""
    name, reason, fault = "tensorflow", "the default of Keras", ""
    file = config_file()
    if file.exists():
        try:
            config = json.loads(file.read_text())
            if found := config.get("backend"):
                name, reason = found, f"set in {file}"
        except ValueError:
            reason = f"the default of Keras, which ignores {file}: it is not JSON"
        except AttributeError:
            fault = f"Keras cannot read {file}: it must hold a JSON object"
        except OSError as error:
            fault = f"Keras cannot read {file}: {error.strerror}"
    if os.environ.get("KERAS_BACKEND"):
        name, reason = os.environ["KERAS_BACKEND"], "set in the environment variable KERAS_BACKEND"
    return str(name), reason, fault
