import threading

import pytest

from keras_transformer.translate import load_translator

pytestmark = pytest.mark.nightly

CLIENTS, ROUNDS = 4, 4


@pytest.mark.parametrize("runtime", ["keras", "onnx", "saved_model", "ctranslate2"])
def test_threads_share_a_translator(exported, lines, runtime):
    """A short run of `benchmarks/concurrent_clients.py`."""
    translator = load_translator(exported, runtime)

    def translate(batch):
        return [translation.text for translation in translator.translate(batch)]

    batches = [lines[start : start + 1 + start % 3] for start in range(0, len(lines), 2)]
    expected = [translate(batch) for batch in batches]
    assert len({text for texts in expected for text in texts}) > 3
    answers, barrier = [], threading.Barrier(CLIENTS, timeout=60)

    def client(first):
        barrier.wait()
        for i in range(first, first + ROUNDS * CLIENTS, CLIENTS):
            answers.append((i % len(batches), translate(batches[i % len(batches)])))

    threads = [threading.Thread(target=client, args=(first,)) for first in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == CLIENTS * ROUNDS
    assert [(i, found) for i, found in answers if found != expected[i]] == []


@pytest.mark.parametrize("runtime", ["keras", "onnx", "saved_model", "ctranslate2"])
def test_batches_side_by_side_change_nothing(exported, lines, runtime):
    expected = [line.text for line in load_translator(exported, runtime).translate(lines, batch_size=3)]
    at_once = load_translator(exported, runtime, parallel_batches=3)
    assert at_once.parallel_batches == 3
    assert [line.text for line in at_once.translate(lines, batch_size=3)] == expected
