"""An encoder-only classifier: is the second of two numbers, written in words, the greater? Trained and exported.

python examples/sentence_classifier.py runs/sentence_classifier
"""

import sys

import keras
import numpy as np
from num2words import num2words

import keras_transformer as kt
from keras_transformer.export import export_model

#: The tokens with the ids 0 to 3: padding, unknown, start and end.
SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]
EOS_ID = 3
SEPARATOR = "or"


def words_of(number: int) -> list[str]:
    """342 -> three hundred and forty two."""
    return num2words(number).replace("-", " ").replace(",", "").split()


VOCABULARY = [*SPECIAL, SEPARATOR, *sorted({word for n in range(1000) for word in words_of(n)})]
IDS = {word: i for i, word in enumerate(VOCABULARY)}


def make_data(rows: int):
    """Padded ids of pairs of different numbers below 1,000, and labels: whether the second number is greater."""
    pairs = np.random.default_rng(1).choice(1000 * 1000, rows, replace=False)
    numbers = [(a, b) for a, b in zip(*divmod(pairs, 1000), strict=True) if a != b]
    sentences = [[IDS[word] for word in (*words_of(a), SEPARATOR, *words_of(b))] + [EOS_ID] for a, b in numbers]
    return keras.utils.pad_sequences(sentences, padding="post"), np.array([a < b for a, b in numbers], "int32")


def main(output: str, epochs: int = 8) -> None:
    """Trains on 40,000 of a million possible pairs, tests on others, and exports the model."""
    keras.utils.set_random_seed(0)
    ids, labels = make_data(44_000)
    train, test = slice(40_000), slice(40_000, None)
    config = kt.TransformerConfig(
        vocab_size=len(VOCABULARY), num_layers=2, d_model=64, num_heads=4, d_ff=128, norm_first=True
    )
    model = kt.SentenceClassifier(config, num_classes=2)
    model.compile(
        keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(2e-3, epochs * 313)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(ids[train], labels[train], batch_size=128, epochs=epochs, verbose=2)
    _, accuracy = model.evaluate(ids[test], labels[test], batch_size=500, verbose=0)
    share = labels[test].mean()
    print(f"test accuracy: {accuracy:.4f} (most frequent label: {max(share, 1 - share):.4f})")
    for name, agreement in export_model(model, f"{output}/export").items():
        print(f"{output}/export/{name}: {agreement}")
    model.save(f"{output}/model.keras")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/sentence_classifier")
