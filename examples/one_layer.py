"""One layer of the package in an ordinary Keras model: a classifier of token sequences of different lengths.

python examples/one_layer.py
"""

import keras
import numpy as np

import keras_transformer as kt


def make_model(vocab_size: int = 50, d_model: int = 32) -> keras.Model:
    """A functional model. Keras passes the embedding's mask to the encoder and the pooling."""
    tokens = keras.Input((None,), dtype="int32")
    x = kt.layers.TokenEmbedding(vocab_size, d_model)(tokens)
    x = kt.layers.PositionalEncoding()(x)
    x = kt.layers.EncoderLayer(d_model, num_heads=4, d_ff=64)(x)
    x = kt.layers.SequencePooling("mean")(x)
    return keras.Model(tokens, keras.layers.Dense(1, activation="sigmoid")(x))


def make_data(rows: int, length: int = 12, vocab_size: int = 50):
    """Token sequences, padded with 0. The label depends on order only: whether token 1 is before token 2."""
    generator = np.random.default_rng(0)
    tokens = generator.integers(3, vocab_size, (rows, length))
    places = generator.permuted(np.tile(np.arange(length), (rows, 1)), axis=1)[:, :2]
    tokens[np.arange(rows), places[:, 0]] = 1
    tokens[np.arange(rows), places[:, 1]] = 2
    ends = generator.integers(places.max(axis=1) + 1, length + 1)
    tokens[np.arange(length) >= ends[:, None]] = 0
    return tokens, (places[:, 0] < places[:, 1]).astype("float32")


if __name__ == "__main__":
    keras.utils.set_random_seed(0)
    model = make_model()
    model.compile(keras.optimizers.Adam(2e-3), loss="binary_crossentropy", metrics=["accuracy"])
    tokens, labels = make_data(8000)
    model.fit(tokens, labels, batch_size=64, epochs=4, validation_split=0.1, verbose=2)
