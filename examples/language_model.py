"""A decoder-only language model that counts in words, from numbers that are not in the training data.

python examples/language_model.py runs/language_model
"""

import math
import sys

import keras
import numpy as np
from num2words import num2words

import keras_transformer as kt
from keras_transformer.decoding import GreedySearch
from keras_transformer.export import export_model

#: The tokens with the ids 0 to 3: padding, unknown, start and end.
SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]
BOS_ID, EOS_ID = 2, 3
LARGEST, NUMBERS = 10_000, 4
THEN = "then"
#: Hundreds that are held out: no training text contains a number of them.
HELD_OUT = {7, 23, 41, 58, 76, 94}


def words_of(number: int) -> list[str]:
    """342 -> three hundred and forty two."""
    return num2words(number).replace("-", " ").replace(",", "").split()


VOCABULARY = [*SPECIAL, THEN, *sorted({word for n in range(LARGEST) for word in words_of(n)})]
IDS = {word: i for i, word in enumerate(VOCABULARY)}


def encode(numbers) -> list[int]:
    """The ids of a sequence of numbers, with the end token."""
    words = [word for number in numbers for word in (*words_of(number), THEN)]
    return [IDS[word] for word in words[:-1]] + [EOS_ID]


def make_texts():
    """Padded texts of four consecutive numbers each: training texts and held-out texts."""
    texts = {True: [], False: []}
    for start in range(LARGEST - NUMBERS):
        hundreds = {start // 100, (start + NUMBERS - 1) // 100}
        if len(hundreds & HELD_OUT) in (0, len(hundreds)):
            texts[hundreds <= HELD_OUT].append(encode(range(start, start + NUMBERS)))
    return (keras.utils.pad_sequences(texts[held_out], padding="post") for held_out in (False, True))


def inputs_of(texts):
    """The decoder inputs: the texts shifted right."""
    return np.concatenate([np.full((len(texts), 1), BOS_ID), texts[:, :-1]], axis=1)


def right_continuations(model, texts) -> float:
    """The share of texts that greedy search continues correctly from their first number and `then`."""
    ends = (texts == IDS[THEN]).argmax(axis=1)
    prompts = np.where(np.arange(texts.shape[1]) <= ends[:, None], texts, 0)
    tokens = model.generate(prompts, GreedySearch(extra_length=texts.shape[1])).tokens[:, 0]
    width = max(tokens.shape[1], texts.shape[1])
    padded = (np.pad(x, ((0, 0), (0, width - x.shape[1]))) for x in (tokens, texts))
    return float(np.equal(*padded).all(axis=1).mean())


def perplexity_of_words(texts, by) -> float:
    """Unigram perplexity of texts, with word frequencies from the texts `by`."""
    shares = np.bincount(by[by != 0], minlength=len(VOCABULARY)) / (by != 0).sum()
    return math.exp(-np.log(shares[texts[texts != 0]]).mean())


def main(output: str, epochs: int = 12) -> None:
    """Trains the model, tests it on the held-out numbers, and exports it."""
    keras.utils.set_random_seed(0)
    train, held_out = make_texts()
    config = kt.TransformerConfig(
        vocab_size=len(VOCABULARY), num_layers=2, d_model=96, num_heads=4, d_ff=256, norm_first=True
    )
    model = kt.LanguageModel(config)
    model.compile(
        keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(3e-3, epochs * math.ceil(len(train) / 64))),
        kt.losses.LabelSmoothedCrossEntropy(label_smoothing=0.0, pad_id=0),
    )
    model.fit(inputs_of(train), train, batch_size=64, epochs=epochs, verbose=2)
    log_probs = model.token_log_probs(held_out)
    perplexity = math.exp(-log_probs.sum() / (held_out != 0).sum())
    print(f"test perplexity: {perplexity:.3f} (unigram model: {perplexity_of_words(held_out, train):.1f})")
    print(f"correct continuations: {right_continuations(model, held_out):.4f}")
    for name, agreement in export_model(model, f"{output}/export", GreedySearch(extra_length=40)).items():
        print(f"{output}/export/{name}: {agreement}")
    model.save(f"{output}/model.keras")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/language_model")
