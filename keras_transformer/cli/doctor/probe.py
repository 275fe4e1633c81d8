"""A program that imports one module and prints its error and its devices as JSON.

It runs as a file in a separate process, and does not import this package.
"""

import importlib
import json
import sys


def _tensorflow_devices(tf):
    for device in tf.config.list_physical_devices():
        model = tf.config.experimental.get_device_details(device).get("device_name")
        yield device.name.removeprefix("/physical_device:") + (f" ({model})" if model else "")


def _jax_devices(jax):
    for device in jax.devices():
        yield f"{device.platform}:{device.id} ({device.device_kind})"


def _torch_devices(torch):
    yield "cpu"
    for i in range(torch.cuda.device_count()):
        yield f"cuda:{i} ({torch.cuda.get_device_name(i)})"


_DEVICES = {"tensorflow": _tensorflow_devices, "jax": _jax_devices, "torch": _torch_devices}


def _in_one_line(error):
    """The first line of the error. If the message has several lines, its cause is used, which is usually clearer."""
    while "\n" in str(error).strip() and error.__context__:
        error = error.__context__
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _probe(name):
    try:
        module = importlib.import_module(name)
        return {"error": "", "devices": list(_DEVICES.get(name, lambda _: ())(module))}
    except BaseException as error:  # A module may also exit.
        return {"error": _in_one_line(error), "devices": []}


if __name__ == "__main__":
    print("\n" + json.dumps(_probe(sys.argv[1])))
