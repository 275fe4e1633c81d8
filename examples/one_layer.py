"""One layer of the package inside an ordinary Keras model: a classifier of token sequences.

python examples/one_layer.py
"""

import keras
import numpy as np

import keras_transformer as kt


def make_model(vocab_size: int = 50, d_model: int = 32) -> keras.Model:
    """A Functional model; the embedding's mask reaches the encoder and the pooling by itself."""
    tokens = keras.Input((None,), dtype="int32")
    x = kt.layers.TokenEmbedding(vocab_size, d_model)(tokens)
    x = kt.layers.PositionalEncoding()(x)
    x = kt.layers.EncoderLayer(d_model, num_heads=4, d_ff=64)(x)
    x = keras.layers.GlobalAveragePooling1D()(x)
    return keras.Model(tokens, keras.layers.Dense(1, activation="sigmoid")(x))


def make_data(rows: int, length: int = 12, vocab_size: int = 50):
    """Does the first token occur again? A question for attention."""
    generator = np.random.default_rng(0)
    tokens = generator.integers(1, vocab_size, (rows, length))
    again = generator.random(rows) < 0.5
    for row in np.flatnonzero(again):
        tokens[row, generator.integers(1, length)] = tokens[row, 0]
    return tokens, (tokens[:, 1:] == tokens[:, :1]).any(axis=1).astype("float32")


if __name__ == "__main__":
    keras.utils.set_random_seed(0)
    model = make_model()
    model.compile(keras.optimizers.Adam(2e-3), loss="binary_crossentropy", metrics=["accuracy"])
    tokens, labels = make_data(8000)
    model.fit(tokens, labels, batch_size=64, epochs=6, validation_split=0.1, verbose=2)
