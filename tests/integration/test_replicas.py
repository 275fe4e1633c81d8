import json

import pytest

#: Trains one model on one, two and four logical CPUs, in one pass and in several over each batch, from the same
#: weights on the same data; 20 steps with a validation every 10.
PROGRAM = """
import json

import keras
import numpy as np
import tensorflow as tf

from keras_transformer import Transformer, TransformerConfig
from keras_transformer.losses import LabelSmoothedCrossEntropy
from keras_transformer.metrics import TokenLoss
from keras_transformer.training.accumulation import accumulate
from keras_transformer.training.config import DataConfig
from keras_transformer.training.devices import make_strategy
from keras_transformer.training.pipeline import Buckets, filtered, training_batches, validation_batches

strategies = {4: make_strategy("CPU:0,CPU:1,CPU:2,CPU:3"), 1: tf.distribute.get_strategy()}
strategies[2] = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
rng = np.random.default_rng(3)
sizes = rng.integers(2, 15, (53, 2))
rows = [[np.append(rng.integers(4, 40, size - 1), 3).astype("int32") for size in pair] for pair in sizes]
spec = tf.TensorSpec([None], tf.int32)
pairs = tf.data.Dataset.from_generator(lambda: iter(map(tuple, rows)), output_signature=(spec, spec))
pairs, statistics = filtered(pairs, DataConfig(max_length=14, tokens_per_batch=60))
buckets = Buckets.fit(statistics.histogram, 2, 60)
steps = buckets.steps(statistics.histogram)
config = TransformerConfig(vocab_size=40, num_layers=1, d_model=16, num_heads=2, d_ff=32, dropout=0.0)
initial = Transformer(config).get_weights()


def trained(replicas, parts):
    with strategies[replicas].scope():
        model = Transformer(config)
        model.set_weights(initial)
        model.compile(
            keras.optimizers.SGD(0.3, momentum=0.9), loss=LabelSmoothedCrossEntropy(0.1),
            weighted_metrics=[TokenLoss(0.1, name="loss")], jit_compile=False,
        )
    accumulate(model, parts)
    batches = training_batches(pairs, buckets, seed=1, multiple=replicas * parts)
    validation = validation_batches(pairs, buckets, replicas).apply(tf.data.experimental.assert_cardinality(steps))
    history = model.fit(batches, steps_per_epoch=10, epochs=2, verbose=0, validation_data=validation).history
    assert int(model.optimizer.iterations.numpy()) == 20
    return model.get_weights(), history["loss"] + history["val_loss"]


one, one_losses = trained(1, 1)
moved = max(float(abs(a - b).max()) for a, b in zip(initial, one))
print(json.dumps({"steps": steps, "rows": buckets.rows, "losses": one_losses, "moved": moved}))
for replicas, parts in ((1, 3), (2, 1), (2, 2), (4, 1), (4, 2)):
    weights, losses = trained(replicas, parts)
    apart = max(float(abs(a - b).max()) for a, b in zip(one, weights))
    print(json.dumps({"replicas": replicas, "parts": parts, "apart": apart, "losses": losses}))
"""


def test_replicas_and_accumulation_learn_what_one_device_does(run_python):
    one, *others = (json.loads(line) for line in run_python(PROGRAM).splitlines() if line.startswith("{"))
    assert 10 <= one["steps"] <= 14 and len(one["losses"]) == 4 and one["moved"] > 0.05
    assert any(rows % 8 for rows in one["rows"])  # So that some batches must be filled to be divided.
    assert len(others) == 5
    for other in others:
        assert other["losses"] == pytest.approx(one["losses"], abs=1e-5), other
        assert other["apart"] < 1e-5, other
