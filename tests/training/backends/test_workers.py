from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from keras_transformer.training.backends.workers import Workers  # noqa: E402
from keras_transformer.training.config import RecipeConfig  # noqa: E402
from keras_transformer.training.data.batches import make_batches  # noqa: E402
from keras_transformer.training.data_config import BatchConfig  # noqa: E402


@pytest.mark.parametrize("num_buckets", [None, 3])
def test_every_replica_of_every_worker_is_given_its_rows(sides_of, random_lengths, monkeypatch, num_buckets):
    config = BatchConfig(tokens_per_batch=256, num_buckets=num_buckets)
    batches = make_batches(*sides_of(random_lengths), config, multiple=4)
    made, make = [], batches.training_batch
    monkeypatch.setattr(batches, "training_batch", lambda seed, step: made.append(step) or make(seed, step))

    def shares(worker):
        workers = Workers.__new__(Workers)  # The constructor would wait for other workers.
        workers.worker, workers.workers, workers.count = worker, 2, 4
        workers.strategy = SimpleNamespace(distribute_datasets_from_function=lambda make_dataset: make_dataset(None))
        data = workers.training_data(batches, 1, first_step=5).take(6)
        return [(inputs["source"].numpy(), labels.numpy()) for inputs, labels, _ in data]

    one, other = shares(0), shares(1)
    assert len(set(made)) >= 3 and all(made.count(step) <= 2 for step in made)  # Once per worker.
    for i, step in enumerate((5, 6, 7)):
        inputs, labels, _ = make(1, step)
        source, target = zip(*one[2 * i : 2 * i + 2], *other[2 * i : 2 * i + 2], strict=True)
        np.testing.assert_array_equal(np.concatenate(source), inputs["source"])
        np.testing.assert_array_equal(np.concatenate(target), labels)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"xla": True}, "`recipe.xla` .*workers.*Received: xla=True"),
        ({"steps_per_execution": 2}, "`recipe.steps_per_execution` .*workers.*Received: steps_per_execution=2"),
        ({"attention": "fused"}, "`recipe.attention` .*TensorFlow.*Received: attention='fused'"),
    ],
)
def test_options_that_several_workers_lack_are_refused(options, message):
    workers = Workers.__new__(Workers)  # The constructor would wait for other workers.
    workers.check_recipe(RecipeConfig())
    with pytest.raises(ValueError, match=message):
        workers.check_recipe(RecipeConfig(**options))
