import time
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest

from keras_transformer import Transformer, TransformerConfig
from keras_transformer.decoding import GreedySearch
from keras_transformer.models import compiled


def test_threads_may_call_a_new_compiled_function():
    function = compiled.Compiled(
        Transformer(TransformerConfig.preset("tiny", vocab_size=20)), Transformer.search, strategy=GreedySearch()
    )
    source = np.array([[5, 6, 7, 3]] * 2, "int32")
    with ThreadPoolExecutor(4) as threads:
        found = [*threads.map(lambda _: function.run(source=source).tokens.tobytes(), range(8))]
    assert len({*found}) == 1


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="shapes are static")
def test_a_function_is_traced_once_for_all_sizes():
    traced = []

    def double(model, ids, scale=None):
        traced.append(scale is None)
        return ids * 2 if scale is None else ids * scale

    function = compiled.Compiled(Transformer(TransformerConfig.preset("tiny", vocab_size=20)), double)
    for shape in [(1, 5), (1, 6), (3, 6), (2, 1)]:
        ids = np.ones(shape, "int32")
        np.testing.assert_array_equal(function.run(ids=ids), 2 * ids)
        np.testing.assert_array_equal(function.run(ids=ids, scale=np.int32([3] * shape[1])), 3 * ids)
    assert traced == [True, False]


def test_threads_share_a_compiled_function(monkeypatch):
    made = []

    class Slow:
        def __init__(self, model, function):
            time.sleep(0.02)
            made.append(function)

        def has_weights_of_model(self):
            return True

    monkeypatch.setattr(compiled, "Compiled", Slow)
    model = compiled.CompiledSearch()
    with ThreadPoolExecutor(4) as threads:
        found = set(threads.map(lambda number: model._compiled([len, max][number % 2]), range(8)))
    assert len(found) == 2 and sorted(made, key=str) == sorted([len, max], key=str)
