import re

import pytest

from keras_transformer.translate import load_translator
from keras_transformer.translate.keras_translator import KerasTranslator, ModelTranslator
from keras_transformer.translate.load import RUNTIMES
from keras_transformer.translate.threads import (
    default_parallel_batches,
    num_cores,
    set_keras_threads,
    set_tensorflow_threads,
    threads_of_a_batch,
)

PROGRAM = """
import sys
from keras_transformer.translate.threads import set_tensorflow_threads

set_tensorflow_threads(2, parallel_batches=5)
import tensorflow as tf

tf.constant([1.0]) + 1
print(tf.config.threading.get_intra_op_parallelism_threads(), tf.config.threading.get_inter_op_parallelism_threads())
set_tensorflow_threads(2, parallel_batches=5)
set_tensorflow_threads(0)
set_tensorflow_threads(0, parallel_batches=5)
try:
    set_tensorflow_threads(3)
except ValueError as error:
    print(error)
"""


@pytest.mark.slow
def test_tensorflows_threads_are_set_once(run_python):
    numbers, message = run_python(PROGRAM).splitlines()
    assert numbers == "2 5"
    assert re.fullmatch("`num_threads` .*before TensorFlow .*Received: num_threads=3", message)


def test_another_backend_has_other_threads(monkeypatch):
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    with pytest.raises(ValueError, match="`num_threads` .*jax.*Received: num_threads=2"):
        set_keras_threads(2)


def test_default_parallel_batches_follow_cores_and_runtime(monkeypatch):
    gpus = []
    monkeypatch.setattr("keras_transformer.translate.threads.num_cores", lambda: 7)
    monkeypatch.setattr("tensorflow.config.get_visible_devices", lambda kind: gpus)
    assert [default_parallel_batches("onnx", threads) for threads in (0, 1, 3, 9)] == [7, 7, 2, 1]
    for backend, gpus[:], batches in (("tensorflow", [], 7), ("tensorflow", ["GPU:0"], 1), ("jax", [], 1)):
        monkeypatch.setattr("keras.backend.backend", lambda backend=backend: backend)
        assert default_parallel_batches("keras", 0) == batches


def test_other_backends_translate_one_batch_at_a_time(monkeypatch):
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    for translator in (lambda: KerasTranslator("none", parallel_batches=2), lambda: ModelTranslator(*3 * [None], 2)):
        with pytest.raises(ValueError, match="`parallel_batches` must be 1 on the jax .*Received: parallel_batches=2"):
            translator()


def test_negative_numbers_of_threads_are_refused():
    for check in (set_tensorflow_threads, set_keras_threads):
        with pytest.raises(ValueError, match="`num_threads` .*Received: num_threads=-1"):
            check(-1)


def test_cores_are_those_that_the_process_may_use(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 3, 5}, raising=False)
    assert num_cores() == 3


def test_batches_side_by_side_share_the_cores(monkeypatch):
    monkeypatch.setattr("keras_transformer.translate.threads.num_cores", lambda: 7)
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    assert threads_of_a_batch(0, 1) == 0
    assert [threads_of_a_batch(0, batches) for batches in (2, 3, 7, 9)] == [3, 2, 1, 1]
    assert threads_of_a_batch(5, 3) == 5
    for batches in (0, 1025, 10**12):
        with pytest.raises(ValueError, match=f"`parallel_batches` .*Received: parallel_batches={batches}"):
            threads_of_a_batch(0, batches)
    with pytest.raises(ValueError, match="at most 1024. Received: num_threads=513, parallel_batches=2"):
        threads_of_a_batch(513, 2)


def test_a_batch_uses_the_cores_of_its_container(monkeypatch):
    monkeypatch.setattr("keras_transformer.translate.threads.num_cores", lambda: 3)
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert threads_of_a_batch(0, 1) == 3 and threads_of_a_batch(4, 1) == 4


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_every_runtime_takes_threads(tmp_path, runtime):
    with pytest.raises(ValueError, match="`num_threads` .*Received: num_threads=-1"):
        load_translator(tmp_path, runtime, num_threads=-1)
    for batches in (0, 10**12):
        with pytest.raises(ValueError, match=f"`parallel_batches` .*Received: parallel_batches={batches}"):
            load_translator(tmp_path, runtime, parallel_batches=batches)
    with pytest.raises(ValueError, match=str(tmp_path)):
        load_translator(tmp_path, runtime, num_threads=0)
