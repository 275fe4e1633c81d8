import json

import numpy as np
import pytest

#: Number of buckets (0: packing) and tokens per batch.
BUCKETS, PACKED = (2, 60), (0, 192)
#: Other parts, with dropout in each of them.
MODERN = {
    **{"positions": "rotary", "norm": "rms", "feed_forward": "gated", "activation": "silu", "num_kv_heads": 1},
    **{"use_bias": False, "norm_first": True, "attention_dropout": 0.1, "activation_dropout": 0.1},
}
#: Trains one model on logical CPUs with the given numbers of micro-batches, from the same weights and data. A training
#: has 20 steps and a validation every 10. The program writes the weights to files.
PROGRAM = """
import json
import sys

import keras
import numpy as np

from keras_transformer import Transformer, TransformerConfig
from keras_transformer.layers import Dropout
from keras_transformer.losses import RDropCrossEntropy
from keras_transformer.metrics import TokenLoss
from keras_transformer.optimizers import Adam
from keras_transformer.training.backends import make_devices
from keras_transformer.training.data.batches import make_batches
from keras_transformer.training.data_config import BatchConfig
from keras_transformer.storage.rows import TokenSide

folder, parts_of_blocks = sys.argv[1], json.loads(sys.argv[2])
num_buckets, tokens_per_batch, replicas, *numbers_of_parts = map(int, sys.argv[3:])
devices = make_devices(",".join(f"CPU:{i}" for i in range(replicas)))
assert devices.count == replicas
keras.utils.set_random_seed(1)
rng = np.random.default_rng(3)
sizes = rng.integers(2, 15, (2, 53))
sentences = [[np.append(rng.integers(4, 40, size - 1), 3) for size in side] for side in sizes]
sides = [TokenSide(np.concatenate(ids), lengths) for ids, lengths in zip(sentences, sizes)]
data = BatchConfig(tokens_per_batch=tokens_per_batch, num_buckets=num_buckets or None)
config = TransformerConfig(vocab_size=40, num_layers=1, d_model=16, num_heads=2, d_ff=32, **parts_of_blocks)
initial = Transformer(config).get_weights()


def halve_every_second_row(self, inputs, training=False):
    if not training:
        return inputs
    scale = 1 - 0.5 * keras.ops.cast(keras.ops.arange(keras.ops.shape(inputs)[0]) % 2, inputs.dtype)
    return inputs * keras.ops.reshape(scale, (-1, *[1] * (len(inputs.shape) - 1)))


# The two passes of R-Drop are neighbouring rows. They differ, and do so alike on any number of devices.
Dropout.call = halve_every_second_row

for parts in numbers_of_parts:
    with devices.scope():
        model = Transformer(config)
        model.set_weights(initial)
        model.compile(
            Adam(0.02, epsilon=1e-3, global_clipnorm=0.5, weight_decay=0.1), loss=RDropCrossEntropy(1.0), r_drop=True,
            weighted_metrics=[TokenLoss(0.1, name="loss")], jit_compile=keras.backend.backend() == "jax",
        )
    pair = {name: side[0][None] for name, side in zip(("source", "target"), sentences)}
    passes = keras.ops.convert_to_numpy(model(pair, training=True))
    assert abs(passes[:, 0] - passes[:, 1]).max() > 0.01
    devices.set_steps(model, parts)
    batches = make_batches(*sides, data, multiple=replicas * parts)
    history = model.fit(
        devices.training_data(batches, seed=1, first_step=0), steps_per_epoch=10, epochs=2, verbose=0,
        **devices.validation_data(batches),
    ).history
    assert int(model.optimizer.iterations.numpy()) == 20
    np.savez(f"{folder}/{replicas}-{parts}.npz", *model.get_weights())
    moved = max(float(abs(a - b).max()) for a, b in zip(initial, model.get_weights()))
    losses = history["loss"] + history["val_loss"]
    norm = model.optimizer.gradient_norm
    rows = [shape.rows for shape in batches.shapes]
    print(json.dumps({"steps": batches.steps, "rows": rows, "losses": losses, "moved": moved, "norm": norm}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("weights")


@pytest.fixture
def trained(run_python, folder):
    """The output and weights of trainings on several numbers of devices."""

    def trained(backend, parts_of_blocks, batching, replicas, *numbers_of_parts):
        arguments = json.dumps(parts_of_blocks), *batching, replicas, *numbers_of_parts
        lines = run_python(PROGRAM, folder, *arguments, KERAS_BACKEND=backend).splitlines()
        said = [json.loads(line) for line in lines if line.startswith("{")]
        return said, [list(np.load(folder / f"{replicas}-{parts}.npz").values()) for parts in numbers_of_parts]

    return trained


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("backend", "parts_of_blocks", "batching", "parts_of_one", "replicas", "parts"),
    [
        ("tensorflow", {}, PACKED, [1, 3], 2, [1, 2]),
        ("jax", {}, BUCKETS, [1, 3], 2, [1, 2]),
        ("tensorflow", {}, BUCKETS, [1], 2, [2]),
        ("tensorflow", {}, BUCKETS, [1, 3], 4, [1, 2]),
        ("jax", {}, PACKED, [1, 3], 4, [1, 2]),
        ("tensorflow", MODERN, PACKED, [1], 2, [1]),
        ("jax", MODERN, BUCKETS, [1], 2, [1]),
    ],
)
def test_replicas_and_accumulation_train_like_one_device(
    trained, backend, parts_of_blocks, batching, parts_of_one, replicas, parts
):
    pytest.importorskip(backend)
    (one, *others), (weights, *other_weights) = trained(backend, parts_of_blocks, batching, 1, *parts_of_one)
    more, more_weights = trained(backend, parts_of_blocks, batching, replicas, *parts)
    assert 2 <= one["steps"] <= 14 and len(one["losses"]) == 4 and one["moved"] > 0.05
    assert any(rows % 8 for rows in one["rows"])  # Some batches need additional rows.
    for other in others + more:
        assert other["losses"] == pytest.approx(one["losses"], abs=1e-5)
        assert other["norm"] == pytest.approx(one["norm"], rel=1e-3)
    for other in other_weights + more_weights:
        for ours, theirs in zip(other, weights, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)
