import pytest

from keras_transformer.export import load_translator
from keras_transformer.export.load import RUNTIMES
from keras_transformer.export.threads import check_threads, set_keras_threads, set_tensorflow_threads

PROGRAM = """
import sys
from keras_transformer.export.threads import set_tensorflow_threads

set_tensorflow_threads(2)
import tensorflow as tf

tf.constant([1.0]) + 1
print(tf.config.threading.get_intra_op_parallelism_threads(), tf.config.threading.get_inter_op_parallelism_threads())
set_tensorflow_threads(2)
set_tensorflow_threads(0)
try:
    set_tensorflow_threads(3)
except ValueError as error:
    print(error)
"""


def test_tensorflows_threads_are_set_once(run_python):
    numbers, message = run_python(PROGRAM).splitlines()
    assert numbers == "2 2"
    assert message.startswith("`num_threads` must be set before TensorFlow has started")
    assert message.endswith("Received: num_threads=3")


def test_another_backend_has_other_threads(monkeypatch):
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    with pytest.raises(ValueError, match="`num_threads` must be 0 on the jax backend. Received: num_threads=2"):
        set_keras_threads(2)


def test_negative():
    for check in (check_threads, set_tensorflow_threads, set_keras_threads):
        with pytest.raises(ValueError, match="`num_threads` must be at least 0. Received: num_threads=-1"):
            check(-1)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_every_runtime_takes_threads(tmp_path, runtime):
    with pytest.raises(ValueError, match="`num_threads` must be at least 0. Received: num_threads=-1"):
        load_translator(tmp_path, runtime, num_threads=-1)
    with pytest.raises(ValueError, match=str(tmp_path)):
        load_translator(tmp_path, runtime, num_threads=0)
