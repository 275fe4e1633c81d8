"""The batches of `benchmarks.train`: `(inputs, labels, weights)` in arrays."""

import dataclasses
import sys

import numpy as np

from benchmarks.train_peers import LONGEST, VOCAB_SIZE
from keras_transformer.tokenization import BOS_ID, PAD_ID


def random_batches(rows, length, count):
    """Batches of one shape without padding."""
    ids = np.random.default_rng(1).integers(4, VOCAB_SIZE, (count, 3, rows, length), "int32")
    weights = np.ones((rows, length), "float32")
    return [({"source": source, "target": target}, labels, weights) for source, target, labels in ids]


def text_batches(options):
    """The first batches of an epoch over a text, by the way they are made."""
    from keras_transformer.tokenization import TokenizerConfig
    from keras_transformer.training.batches import BATCHINGS
    from keras_transformer.training.config import DataConfig
    from keras_transformer.training.datasets import load_corpus
    from keras_transformer.training.pipeline import filtered
    from keras_transformer.training.tokenizer import PairTokenizer, train_tokenizers

    sizes = {"max_length": LONGEST, "tokens_per_batch": options.tokens_per_batch}
    buckets = DataConfig(source=options.source, target=options.target, batching="buckets", **sizes)
    ways = {
        "packed": dataclasses.replace(buckets, batching="packed"),
        "buckets": buckets,
        "plain": dataclasses.replace(buckets, num_buckets=1),
    }
    corpus = load_corpus(buckets).train
    tokenizer_config = TokenizerConfig(vocab_size=options.vocab_size or (VOCAB_SIZE if options.source else 480))
    tokenizer = PairTokenizer(train_tokenizers(corpus, tokenizer_config))
    pairs, found = filtered(tokenizer(corpus), buckets)
    print(found, file=sys.stderr)
    batches = {}
    for name, config in ways.items():
        epoch = BATCHINGS[config.batching](pairs, found, config).training(seed=1)
        batches[name] = list(epoch.take(options.batches).as_numpy_iterator())
    return batches | {"sorted": sorted_batches(list(pairs.as_numpy_iterator()), options)}


def sorted_batches(pairs, options):
    """Pairs of like lengths, padded to the longest of each batch; the batches in random order."""
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
    """Batches of `(inputs, labels, weights)` in one file; `read_batches` reads them."""
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
