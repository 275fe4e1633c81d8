from keras_transformer.apps.serve import pairs
from keras_transformer.apps.serve.config import ServeConfig
from keras_transformer.apps.serve.metrics import Metrics
from keras_transformer.storage.model_directory import ModelDirectory


def test_each_parallel_batch_has_a_worker(tmp_path, upper, monkeypatch):
    directory = ModelDirectory(tmp_path / "run")
    directory.write_record({}, finished=True)
    directory.write_tokenizers((b"subwords",))
    directory.model_file.write_bytes(b"weights")
    loaded, workers = [], []

    def load(*arguments, protect):
        loaded.append((*arguments, protect))
        return upper(parallel_batches=3)

    class Batcher(pairs.Batcher):
        def __init__(self, translator, limits, number, *others):
            workers.append(number)
            super().__init__(translator, limits, number, *others)

    monkeypatch.setattr(pairs, "load_translator", load)
    monkeypatch.setattr(pairs, "Batcher", Batcher)
    config = ServeConfig(languages="en-de", runtime="keras", num_threads=2, protect="off")
    pairs.load_pairs([directory.path], config, Metrics())
    assert loaded == [(directory.path, "keras", 2, None, "off")] and workers == [3]
