import pytest

from keras_transformer.training.data.processes import WorkerProcesses
from keras_transformer.training.stopping import WorkerStopped

#: Sends the first bytes of a long result, and ends the process.
KILLED_WHILE_SENDING = """
import multiprocessing.connection
def send(connection, result):
    import os
    os.write(connection.fileno(), bytes([0, 0, 1, 0]) + b"begin")  # The length, and less than that.
    os._exit(1)
multiprocessing.connection.Connection._send_bytes = send
"""


def test_the_results_are_in_order():
    workers = WorkerProcesses(divmod, count=2)
    try:
        assert list(workers.map((i, 3) for i in range(20))) == [divmod(i, 3) for i in range(20)]
        with pytest.raises(ZeroDivisionError):
            workers.result(workers.submit(1, 0))
    finally:
        workers.close()


@pytest.mark.parametrize("code", ["import os; os._exit(1)", KILLED_WHILE_SENDING])
def test_a_process_that_stops_is_noticed(code, monkeypatch):
    monkeypatch.setattr("keras_transformer.training.data.processes._PATIENCE", 0.1)
    workers = WorkerProcesses(exec, count=2)
    try:
        assert workers.result(workers.submit("")) is None
        with pytest.raises(WorkerStopped, match="has stopped"):
            workers.result(workers.submit(code))
    finally:
        workers.close()
