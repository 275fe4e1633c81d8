"""Lexical translation probabilities, and the shortlists that are made from them."""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from keras_transformer.decoding.shortlist import SMALLEST, Shortlist

#: Combinations of a source token and a target token that are processed at a time. Each takes about 50 bytes.
_CHUNK = 5_000_000
_ITERATIONS = 5

Ids = Sequence[int]


class Lexicon(NamedTuple):
    """Which target tokens translate which source tokens: arrays with one entry per pair of tokens."""

    source: np.ndarray
    target: np.ndarray
    probability: np.ndarray  # of the target token, given the source token


def learn_lexicon(sources: Sequence[Ids], targets: Sequence[Ids], vocab_size: int) -> Lexicon:
    """Estimates the translation probabilities of all tokens that occur together, with IBM Model 1.

    Reference:
        Brown et al. 1993, "The Mathematics of Statistical Machine Translation", §4.1.
    """
    keys = np.empty(0, "int64")
    for entries in _chunks(sources, targets, vocab_size):
        keys = np.union1d(keys, entries.key)
    probability = np.ones(len(keys))
    for _ in range(_ITERATIONS):
        counts = np.zeros(len(keys))
        for entries in _chunks(sources, targets, vocab_size):
            at = np.searchsorted(keys, entries.key)
            shares = probability[at]
            shares /= np.bincount(entries.token, shares)[entries.token]
            counts += np.bincount(at, shares, len(keys))
        totals = np.bincount(keys // vocab_size, counts)
        probability = counts / totals[keys // vocab_size]
    return Lexicon(keys // vocab_size, keys % vocab_size, probability)


class _Entries(NamedTuple):
    """All combinations of a target token of a sentence with the source tokens of that sentence."""

    key: np.ndarray  # source id * vocab_size + target id
    token: np.ndarray  # number of the target token in the chunk


def _chunks(sources, targets, vocab_size) -> Iterator[_Entries]:
    sizes = np.array([len(source) * len(target) for source, target in zip(sources, targets, strict=True)], "int64")
    chunks = np.cumsum(sizes) // _CHUNK
    starts = np.flatnonzero(np.diff(chunks, prepend=-1)).tolist()
    for start, end in itertools.pairwise([*starts, len(sources)]):
        ours = [np.unique(ids) for ids in sources[start:end]]
        theirs = [np.asarray(ids, "int64") for ids in targets[start:end]]
        keys = [(a[None, :] * vocab_size + b[:, None]).ravel() for a, b in zip(ours, theirs, strict=True)]
        widths = np.repeat([len(ids) for ids in ours], [len(ids) for ids in theirs])
        yield _Entries(np.concatenate(keys), np.repeat(np.arange(len(widths)), widths))


def make_shortlist(
    lexicon: Lexicon,
    frequencies: np.ndarray,
    source_vocab_size: int,
    width: int,
    num_frequent: int,
    required: Sequence[int],
    copies: np.ndarray | None = None,
) -> Shortlist:
    """Makes a shortlist of the likeliest translations of each source token.

    Args:
        lexicon: the translation probabilities.
        frequencies: int `(vocab_size,)`: how often each target token occurs; -1 if it is never generated.
        source_vocab_size: size of the source vocabulary.
        width: maximum number of translations per source token.
        num_frequent: number of the most frequent target tokens, which are always considered.
        required: ids of further tokens that are always considered, such as special tokens.
        copies: int `(source_vocab_size,)`: the target token with the text of each source token, which is considered
            in addition to the translations; -1 if there is none. Default: no copies.
    """
    vocab_size = len(frequencies)
    by_frequency = np.argsort(-frequencies, kind="stable")[: np.count_nonzero(frequencies >= 0)]
    always = np.union1d(by_frequency[: max(num_frequent, SMALLEST)], required)
    is_kept = ~np.isin(lexicon.target, always)
    source, target, probability = (values[is_kept] for values in lexicon)
    order = np.lexsort((-probability, source))
    source, target = source[order], target[order]
    rank = np.arange(len(source)) - np.searchsorted(source, source)
    table = np.zeros((source_vocab_size, width), "int32")
    is_listed = rank < width
    table[source[is_listed], rank[is_listed]] = target[is_listed]
    if copies is not None:
        # Padding must be a token that is always considered, which 0 is.
        table = np.column_stack([np.where(np.isin(copies, always), 0, np.maximum(copies, 0)), table])
    return Shortlist(table, always, vocab_size)


class Coverage(NamedTuple):
    """Candidates per batch, and the fraction of the tokens that they cover."""

    candidates: float  # the mean number per batch
    share: float  # of the tokens of translations that are among the candidates of their batch


def coverage(shortlist: Shortlist, sources: Sequence[Ids], targets: Sequence[Ids], batch_size: int = 1) -> Coverage:
    """Computes the candidates of each batch of sentences, in the given order, and compares them with translations."""
    sizes, inside, total = [], 0, 0
    for start in range(0, len(sources), batch_size):
        source, target = (
            np.concatenate([np.asarray(ids, "int64") for ids in side[start : start + batch_size]])
            for side in (sources, targets)
        )
        candidates = shortlist.candidates(source)
        sizes.append(len(candidates))
        inside += np.isin(target, candidates).sum()
        total += len(target)
    return Coverage(float(np.mean(sizes)), inside / max(total, 1))
