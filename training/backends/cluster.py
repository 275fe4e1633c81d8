"""TF_CONFIG: the machines of a training, and the index of this machine."""

import json
import os
import re

_ADDRESS = re.compile(r"[^:\s]+:\d+|\[[^\]]+\]:\d+")


def count_workers() -> int:
    """The number of workers in TF_CONFIG; 1 if it is not set.

    Raises:
        ValueError: if TF_CONFIG is malformed, or has tasks that are not workers.
    """
    text = os.environ.get("TF_CONFIG")
    if not text:
        return 1

    def refuse(what):
        raise ValueError(f"TF_CONFIG {what}. Received: TF_CONFIG={text}")

    try:
        config = json.loads(text)
    except ValueError:
        refuse("must be JSON")
    if not isinstance(config, dict) or not isinstance(config.get("cluster"), dict):
        refuse("must contain an object `cluster`")
    workers, others = config["cluster"].get("worker"), sorted(set(config["cluster"]) - {"worker"})
    if others:
        refuse(f"must have `worker` tasks only in `cluster`; {', '.join(others)} is not supported")
    if not isinstance(workers, list) or not workers or not all(map(_is_address, workers)):
        refuse("must have a list of addresses host:port in `cluster`, `worker`")
    if len(set(workers)) < len(workers):
        refuse("must name each worker once")
    task = config.get("task")
    if not isinstance(task, dict) or task.get("type") != "worker":
        refuse("must contain an object `task` whose `type` is 'worker'")
    if type(task.get("index")) is not int or not 0 <= task["index"] < len(workers):
        refuse(f"must have an `index` in [0, {len(workers)}) in `task`")
    return len(workers)


def _is_address(text):
    return isinstance(text, str) and _ADDRESS.fullmatch(text) is not None
