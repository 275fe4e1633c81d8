import time
from concurrent.futures import ThreadPoolExecutor

from keras_transformer import Transformer, TransformerConfig
from keras_transformer.decoding import GreedySearch
from keras_transformer.models import base
from keras_transformer.models.compiled import Compiled


def test_a_compiled_function_is_complete_before_threads_call_it():
    model = Transformer(TransformerConfig.preset("tiny", vocab_size=20))
    assert Compiled(model, Transformer.search, strategy=GreedySearch()).predict_function is not None


def test_threads_share_a_compiled_function(monkeypatch):
    made = []

    class Slow:
        def __init__(self, model, function):
            time.sleep(0.02)
            made.append(function)

    monkeypatch.setattr(base, "Compiled", Slow)
    model = base.CompiledSearch()
    with ThreadPoolExecutor(4) as threads:
        found = set(threads.map(lambda number: model._compiled([len, max][number % 2]), range(8)))
    assert len(found) == 2 and sorted(made, key=str) == sorted([len, max], key=str)
