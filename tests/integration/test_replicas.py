import json

import pytest

#: Trains one model on one device and on two logical CPUs, from the same weights with the same batches.
PROGRAM = """
import json

import keras
import numpy as np
import tensorflow as tf

from keras_transformer import Transformer, TransformerConfig
from keras_transformer.losses import LabelSmoothedCrossEntropy
from keras_transformer.metrics import TokenLoss
from keras_transformer.training.config import DataConfig
from keras_transformer.training.devices import make_strategy
from keras_transformer.training.pipeline import Buckets, filtered, training_batches, validation_batches

mirrored = make_strategy("CPU:0,CPU:1")
rng = np.random.default_rng(3)
sizes = rng.integers(2, 15, (53, 2))
rows = [[np.append(rng.integers(4, 40, size - 1), 3).astype("int32") for size in pair] for pair in sizes]
spec = tf.TensorSpec([None], tf.int32)
pairs = tf.data.Dataset.from_generator(lambda: iter(map(tuple, rows)), output_signature=(spec, spec))
pairs, statistics = filtered(pairs, DataConfig(max_length=14, tokens_per_batch=60))
buckets = Buckets.fit(statistics.histogram, 2, 60, replicas=2)
steps = buckets.steps(statistics.histogram)
config = TransformerConfig(vocab_size=40, num_layers=1, d_model=16, num_heads=2, d_ff=32, dropout=0.0)


def trained(strategy, initial):
    with strategy.scope():
        model = Transformer(config)
        model.set_weights(initial)
        model.compile(
            keras.optimizers.SGD(0.3, momentum=0.9), loss=LabelSmoothedCrossEntropy(0.1),
            weighted_metrics=[TokenLoss(0.1, name="loss")], jit_compile=False,
        )
    batches = training_batches(pairs, buckets, seed=1)
    validation = validation_batches(pairs, buckets).apply(tf.data.experimental.assert_cardinality(steps))
    history = model.fit(batches, steps_per_epoch=4, epochs=3, verbose=0, validation_data=validation).history
    return model.get_weights(), history["loss"] + history["val_loss"]


initial = Transformer(config).get_weights()
one, one_losses = trained(tf.distribute.get_strategy(), initial)
two, two_losses = trained(mirrored, initial)
batches = [mask for _, _, mask in training_batches(pairs, buckets, seed=1).take(steps).as_numpy_iterator()]
halves = [[float((half > 0).sum()) for half in np.split(mask, 2)] for mask in batches]
print(json.dumps({
    "replicas": mirrored.num_replicas_in_sync,
    "steps": steps,
    "filled": sum(bool((mask.sum(axis=1) == 0).any()) for mask in batches),
    "uneven": sum(first != second for first, second in halves),
    "losses": [one_losses, two_losses],
    "moved": max(float(abs(a - b).max()) for a, b in zip(initial, one)),
    "apart": max(float(abs(a - b).max()) for a, b in zip(one, two)),
}))
"""


def test_two_replicas_learn_what_one_does(run_python):
    found = json.loads(run_python(PROGRAM).splitlines()[-1])
    assert found["replicas"] == 2
    assert 10 <= found["steps"] <= 12 and found["filled"] >= 1 and found["uneven"] >= 5
    one, two = found["losses"]
    assert len(one) == 6
    assert one == pytest.approx(two, abs=1e-5)
    assert found["moved"] > 0.05
    assert found["apart"] < 1e-5
