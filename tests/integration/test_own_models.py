"""Models with a source of their own: two replicas equal one, and they load in a new process."""

import json

import numpy as np
import pytest

pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")]
#: The classes of a user. Its dropout is 0, because replicas drop different places.
CLASSES = """
import keras
import numpy as np
import keras_transformer as kt

IMAGES = np.random.default_rng(1).random((4, 14, 7, 2), "float32")
TARGET = np.array([[2, 5, 6, 4], [2, 4, 0, 0], [2, 6, 6, 5], [2, 5, 5, 0]], "int32")
SIZES = {"num_layers": 1, "d_model": 12, "num_heads": 2, "d_ff": 13, "dropout": 0.0}


@keras.saving.register_keras_serializable(package="test_own_models")
class Captioner(kt.Seq2Seq):
    def __init__(self, vocab_size, **kwargs):
        super().__init__(keras.Input((14, 7, 2)), vocab_size, **kwargs)
        self.patches = kt.layers.PatchEmbedding(7, 12)
        self.embedding = kt.layers.TokenEmbedding(vocab_size, 12)
        self.decoder = kt.layers.Decoder(**SIZES)
        self.logits = keras.layers.Dense(vocab_size)

    def encode(self, images):
        return self.patches(images), None

    def decode(self, tokens, memory, mask=None, cache=None, offset=0):
        x = self.embedding(tokens)
        if cache is None:
            return self.logits(self.decoder(x, memory, memory_mask=mask))
        x, cache = self.decoder(x, memory, memory_mask=mask, cache=cache, offset=offset)
        return self.logits(x), cache


def front_end():
    source = keras.Sequential([keras.Input((14, 7, 2)), kt.layers.PatchEmbedding(7, 12)])
    return kt.Transformer(kt.TransformerConfig(vocab_size=7, **SIZES), source=source)


MODELS = {"Seq2Seq": lambda: Captioner(7), "source": front_end}
"""
TRAIN = (
    CLASSES
    + """
import json
import sys
import tensorflow as tf

name, path, replicas = sys.argv[1], sys.argv[2], int(sys.argv[3])
devices = [tf.config.LogicalDeviceConfiguration()] * replicas
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
keras.utils.set_random_seed(1)
with tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)]).scope():
    model = MODELS[name]()
    model.compile(keras.optimizers.SGD(0.5), kt.losses.LabelSmoothedCrossEntropy(0.1), jit_compile=False)
labels = np.roll(TARGET, -1, axis=1)
weights = (labels != 0) * labels.size / (labels != 0).sum()
inputs = {"source": IMAGES, "target": TARGET}
model.fit(inputs, labels, sample_weight=weights, batch_size=4, epochs=3, shuffle=False, verbose=0)
model.save(path)
np.savez(path + ".npz", *[keras.ops.convert_to_numpy(w) for w in model.trainable_weights])
"""
)
LOAD = (
    CLASSES
    + """
import json
import sys

model = keras.models.load_model(sys.argv[1])
found = model.generate(IMAGES, kt.decoding.BeamSearch(beam_size=3, extra_length=5))
log_probs = model.token_log_probs(IMAGES, found.tokens[:, 0])
lengths = (found.tokens[:, 0] != 0).sum(axis=1)
scores = log_probs.sum(axis=1) / np.array(kt.decoding.length_penalty(lengths, 0.6, "gnmt"))
print(json.dumps([scores.tolist(), found.scores[:, 0].tolist()]))
"""
)


@pytest.mark.parametrize("name", ["Seq2Seq", "source"])
def test_two_replicas_equal_one_and_the_file_loads_in_a_new_process(name, run_python, tmp_path):
    for replicas in (1, 2):
        run_python(TRAIN, name, tmp_path / f"{replicas}.keras", replicas, KERAS_BACKEND="tensorflow")
    one, two = (np.load(tmp_path / f"{replicas}.keras.npz") for replicas in (1, 2))
    for weight in one.files:
        np.testing.assert_allclose(two[weight], one[weight], atol=1e-5)
    forced, found = json.loads(run_python(LOAD, tmp_path / "2.keras").splitlines()[-1])
    np.testing.assert_allclose(found, forced, atol=1e-4)
