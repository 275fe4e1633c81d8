"""The batches of `benchmarks.train`, as NumPy arrays `(inputs, labels, weights)`."""

import dataclasses
import tempfile

import numpy as np

from benchmarks.train_peers import LONGEST
from keras_transformer.config import BOS_ID, PAD_ID


def random_batches(rows, length, count, vocab_size):
    """Batches of one shape without padding."""
    ids = np.random.default_rng(1).integers(4, vocab_size, (count, 3, rows, length), "int32")
    weights = np.ones((rows, length), "float32")
    return [({"source": source, "target": target}, labels, weights) for source, target, labels in ids]


def text_batches(options):
    """The first batches of an epoch over a text, by the method of batching."""
    from keras_transformer.text.tokenization import TokenizerConfig
    from keras_transformer.training.data.batches import make_batches
    from keras_transformer.training.data.prepare import prepare
    from keras_transformer.training.data_config import BatchConfig, PrepareConfig

    packed = BatchConfig(tokens_per_batch=options.tokens_per_batch)
    ways = {
        "packed": packed,
        "buckets": dataclasses.replace(packed, num_buckets=4),
        "plain": dataclasses.replace(packed, num_buckets=1),
    }
    text = {"source": options.source, "target": options.target, "max_length": LONGEST}
    tokenizer = TokenizerConfig(vocab_size=options.vocab_size if options.source else 480)
    with tempfile.TemporaryDirectory() as folder:
        sides = prepare(PrepareConfig(output=f"{folder}/tokens", tokenizer=tokenizer, **text)).sides("train")
    batches = {}
    for name, config in ways.items():
        made = make_batches(*sides, config)
        batches[name] = [made.training_batch(1, step) for step in range(options.batches)]
    pairs = list(zip(*([*np.split(side.ids.astype("int32"), side.starts[1:])] for side in sides), strict=True))
    return batches | {"sorted": sorted_batches(pairs, options)}


def sorted_batches(pairs, options):
    """Batches of pairs with similar lengths, in random order, padded to the longest pair of each batch."""
    pairs.sort(key=lambda pair: (max(map(len, pair)), len(pair[0])))
    batches, start = [], 0
    while start < len(pairs):
        end = start + 1
        while end < len(pairs) and (end + 1 - start) * max(map(len, pairs[end])) <= options.tokens_per_batch:
            end += 1
        batches.append(pairs[start:end])
        start = end
    chosen = np.random.default_rng(1).permutation(len(batches))[: options.batches]
    return [padded(batches[i]) for i in chosen]


def padded(pairs):
    def stacked(sentences):
        longest = max(map(len, sentences))
        return np.stack([np.pad(sentence, (0, longest - len(sentence))) for sentence in sentences])

    source, labels = (stacked(side) for side in zip(*pairs, strict=True))
    target = stacked([np.concatenate([[BOS_ID], target[:-1]]) for _, target in pairs])
    return {"source": source, "target": target}, labels, (labels != PAD_ID).astype("float32")


def write_batches(file, batches):
    """Writes batches of `(inputs, labels, weights)` to one file; `read_batches` reads it."""
    arrays = {}
    for i, (inputs, labels, weights) in enumerate(batches):
        arrays |= {f"{i} {name}": array for name, array in {**inputs, "labels": labels, "weights": weights}.items()}
    np.savez(file, **arrays)


def read_batches(file):
    batches = {}
    with np.load(file) as arrays:
        for key, array in arrays.items():
            number, name = key.split()
            batches.setdefault(int(number), {})[name] = array
    return [(batch, batch.pop("labels"), batch.pop("weights")) for _, batch in sorted(batches.items())]
