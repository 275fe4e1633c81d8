import time
from concurrent.futures import ThreadPoolExecutor

from keras_transformer.models import base


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
