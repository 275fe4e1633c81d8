import json
import os
import re
import socket
import subprocess

import pytest

from keras_transformer.cli import main
from keras_transformer.training.backends.cluster import count_workers

CLUSTER = {"worker": ["a.example:1", "b.example:2"]}
TASK = {"type": "worker", "index": 1}


def test_the_workers_are_counted(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert count_workers() == 1
    for config, count in (
        ({"cluster": CLUSTER, "task": TASK}, 2),
        ({"cluster": {"worker": ["[::1]:7"]}, "task": {**TASK, "index": 0}}, 1),
    ):
        monkeypatch.setenv("TF_CONFIG", json.dumps(config))
        assert count_workers() == count


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "JSON"),
        ("[]", "object `cluster`"),
        ({"task": TASK}, "object `cluster`"),
        ({"cluster": {"worker": []}, "task": TASK}, "host:port"),
        ({"cluster": {"worker": ["a.example"]}, "task": TASK}, "host:port"),
        ({"cluster": {"worker": ["a:1", "a:1"]}, "task": TASK}, "once"),
        ({"cluster": {**CLUSTER, "ps": ["c:3"]}, "task": TASK}, "`cluster`.* ps "),
        ({"cluster": CLUSTER}, "object `task`"),
        ({"cluster": CLUSTER, "task": {"type": "ps", "index": 0}}, "`type`"),
        ({"cluster": CLUSTER, "task": {"type": "worker", "index": 2}}, r"`index` .*\[0, 2\)"),
        ({"cluster": CLUSTER, "task": {"type": "worker", "index": "0"}}, r"`index` .*\[0, 2\)"),
    ],
)
def test_a_malformed_cluster_is_refused(monkeypatch, config, message):
    text = config if isinstance(config, str) else json.dumps(config)
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ValueError, match=message) as caught:
        count_workers()
    assert str(caught.value).endswith(f"Received: TF_CONFIG={text}")


def test_the_command_refuses_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TF_CONFIG", "{")
    assert main(["train", f"--output={tmp_path / 'model'}"]) == 2
    assert re.search("JSON.*Received: TF_CONFIG={", capsys.readouterr().err)
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": CLUSTER, "task": TASK}))
    assert main(["train", f"--output={tmp_path / 'model'}", "--devices=CPU:0"]) == 2
    assert re.search("`devices` .*TF_CONFIG.*Received: devices=CPU:0", capsys.readouterr().err)
    assert not (tmp_path / "model").exists()


@pytest.mark.slow
def test_a_port_that_another_program_has(command, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        workers = [f"127.0.0.1:{taken.getsockname()[1]}", "127.0.0.1:1"]
        config = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": 0}})
        done = subprocess.run(
            [*command, "train", f"--output={tmp_path / 'model'}"],
            env={**os.environ, "TF_CONFIG": config},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 2, done.stderr
    assert f"Received: TF_CONFIG={config}" in done.stderr and "Traceback" not in done.stderr
    assert "cannot join" in done.stderr
    assert not (tmp_path / "model").exists()
