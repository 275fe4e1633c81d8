"""An encoder alone: which of two numbers, spelled in words, is the greater? Trained by `fit`, then exported.

python examples/sentence_classifier.py runs/sentence_classifier
"""

import sys

import keras
import numpy as np
from num2words import num2words

import keras_transformer as kt
from keras_transformer.export import export_model
from keras_transformer.tokenization import EOS_ID, SPECIAL_PIECES

SEPARATOR = "or"


def words_of(number: int) -> list[str]:
    """342 -> three hundred and forty two."""
    return num2words(number).replace("-", " ").replace(",", "").split()


VOCABULARY = [*SPECIAL_PIECES, SEPARATOR, *sorted({word for n in range(1000) for word in words_of(n)})]
IDS = {word: i for i, word in enumerate(VOCABULARY)}


def make_data(rows: int, seed: int):
    """Pairs of unlike numbers below 1,000 as ids, padded, and whether the second is the greater."""
    numbers = np.random.default_rng(seed).integers(0, 1000, (rows, 2))
    numbers = numbers[numbers[:, 0] != numbers[:, 1]]
    sentences = [[IDS[word] for word in (*words_of(a), SEPARATOR, *words_of(b))] + [EOS_ID] for a, b in numbers]
    return keras.utils.pad_sequences(sentences, padding="post"), (numbers[:, 0] < numbers[:, 1]).astype("int32")


def main(output: str) -> None:
    """Trains on 40,000 of the million pairs, tests on others, exports."""
    keras.utils.set_random_seed(0)
    config = kt.TransformerConfig(
        vocab_size=len(VOCABULARY), num_layers=2, d_model=64, num_heads=4, d_ff=128, norm_first=True
    )
    model = kt.SentenceClassifier(config, num_classes=2)
    model.compile(
        keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(2e-3, 10 * 313)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(*make_data(40_000, seed=1), batch_size=128, epochs=10, verbose=2)
    _, accuracy = model.evaluate(*make_data(4_000, seed=2), batch_size=500, verbose=0)
    print(f"test accuracy: {accuracy:.4f}")
    export_model(model, f"{output}/export")
    model.save(f"{output}/model.keras")
    print(f"equal exports: {output}/export/saved_model and {output}/export/onnx/model.onnx")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/sentence_classifier")
