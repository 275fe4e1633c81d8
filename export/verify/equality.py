"""Equality of an exported program with its Keras model. Only this module defines it."""

import dataclasses
import itertools
import random
from collections.abc import Iterable, Sequence

import keras
import numpy as np

from keras_transformer.config import EOS_ID
from keras_transformer.counting import counted
from keras_transformer.decoding import SpecialIds
from keras_transformer.export.verify.errors import VerificationError as VerificationError
from keras_transformer.export.verify.keras_search import KerasSearch
from keras_transformer.translate.batching import pad
from keras_transformer.translate.translation import Translation

#: Scores with a smaller difference are a tie, in which rounding decides.
TIE = 1e-3
#: Maximum share of sentences with a tie. One is always accepted, unless no sentence is equal.
MOST_TIES = 5 / 1000
#: Maximum share of sentences with equal best hypotheses and different lower ones. One is always accepted. If the last
#: two candidates of a beam are nearly equal, rounding decides which one stays, and later hypotheses depend on it.
MOST_OTHER_RANKS = 20 / 1000
#: Number of batches of each batch size.
BATCHES = {1: 8, 7: 8, 32: 5}
#: Those of models with more than `_MANY` parameters. More batches would take minutes, and larger ones gigabytes.
_FEWER_BATCHES, _MANY = {1: 4, 3: 4}, 100_000_000
_IDS = SpecialIds()


@dataclasses.dataclass(frozen=True)
class Agreement:
    """How an exported program compares with the Keras model.

    Attributes:
        sentences: number of compared sentences.
        equal: sentences with equal tokens.
        ties: sentences with different tokens whose teacher-forced scores differ by less than `TIE`.
        largest_score_difference: largest difference between the scores of a hypothesis, over all hypotheses of
            sentences with equal best tokens. If the Keras search has not found the hypothesis, its teacher-forced
            score is used.
        other_ranks: sentences with equal best tokens and different lower hypotheses.
    """

    sentences: int
    equal: int
    ties: int
    largest_score_difference: float
    other_ranks: int = 0

    def __str__(self):
        others = f"{self.other_ranks} with different lower hypotheses, " if self.other_ranks else ""
        return (
            f"{self.equal} of {counted(self.sentences, 'sentence')} equal, {counted(self.ties, 'tie')}, {others}"
            f"largest score difference {self.largest_score_difference:.1e}"
        )

    @property
    def passed(self) -> bool:
        """Whether the export is accepted."""
        all_explained = self.equal + self.ties == self.sentences and self.equal > 0
        limits = (self.ties, MOST_TIES), (self.other_ranks, MOST_OTHER_RANKS)
        few_differ = all(count <= max(share * self.sentences, 1) for count, share in limits)
        return all_explained and few_differ and self.largest_score_difference < TIE


def compare(expected: KerasSearch, program, batches: list[np.ndarray]) -> Agreement:
    """Compares the tokens of the best hypotheses, and the scores of all, with those of `program.search`."""
    sentences = equal = ties = other_ranks = 0
    largest = 0.0
    # First, because many programs are loaded by their first search, and Keras needs much memory for its own.
    for source, found in zip(batches, [expected.search(source) for source in batches], strict=True):
        candidates = expected.candidates(source)
        both_programs = (_by_tokens(each, expected.pad_id) for each in (found, program.search(source)))
        for row, (ours, theirs) in enumerate(zip(*both_programs, strict=True)):
            sentences += 1
            best, other = next(iter(ours)), next(iter(theirs))
            if best == other:
                unknown = [tokens for tokens in theirs if tokens not in ours]
                forced = _forced(expected, source, row, unknown, candidates)
                known = {**ours, **dict(zip(unknown, forced, strict=True))}
                difference = max(abs(known[tokens] - score) for tokens, score in theirs.items())
                largest = max(largest, difference if np.isfinite(difference) else np.inf)
                equal += 1
                other_ranks += bool(unknown)
            else:
                both = _forced(expected, source, row, [best, other], candidates)
                ties += abs(both[0] - both[1]) < TIE
    return Agreement(sentences, equal, ties, largest, other_ranks)


def _by_tokens(found, pad_id):
    """The hypotheses of each sentence, best first: scores by tokens."""
    return [
        {tuple(without_padding(ids, pad_id).tolist()): float(score) for ids, score in zip(*hypotheses, strict=True)}
        for hypotheses in zip(*found, strict=True)
    ]


def without_padding(ids: np.ndarray, pad_id: int) -> np.ndarray:
    """A row of ids without the padding at its end."""
    return ids[: (ids != pad_id).nonzero()[0].max(initial=-1) + 1]


def _forced(expected, source, row, hypotheses, candidates):
    """The teacher-forced scores of hypotheses of one sentence."""
    if not hypotheses:
        return []
    repeated = keras.tree.map_structure(lambda x: np.repeat(x[row : row + 1], len(hypotheses), axis=0), source)
    return expected.forced_scores(repeated, pad(hypotheses, expected.pad_id), candidates).tolist()


def compare_texts(expected: list[Translation], found: list[Translation]) -> Agreement:
    """Compares translations of programs that tokenize. A tie is another text with nearly the same score."""
    differences = [abs(a.score - b.score) for a, b in zip(expected, found, strict=True)]
    is_equal = [a.text == b.text for a, b in zip(expected, found, strict=True)]
    is_tie = [not equal and difference < TIE for equal, difference in zip(is_equal, differences, strict=True)]
    largest = max((d for d, equal in zip(differences, is_equal, strict=True) if equal), default=0.0)
    return Agreement(len(expected), sum(is_equal), sum(is_tie), largest)


def batch_sizes(num_parameters: int = 0) -> list[int]:
    """The sizes of the batches with which a model is verified.

    Example:

    >>> sum(batch_sizes(60_000_000)), sum(batch_sizes(600_000_000))
    (224, 16)
    """
    batches = BATCHES if num_parameters <= _MANY else _FEWER_BATCHES
    return [size for size, count in batches.items() for _ in range(count)]


def random_source_batches(
    vocab_size: int, longest: int = 30, seed: int = 0, ids: SpecialIds = _IDS, num_parameters: int = 0
) -> list[np.ndarray]:
    """Int32 matrices of random ids with several batch sizes and lengths. Rows have the end token and then padding.

    Args:
        vocab_size: size of the vocabulary.
        longest: maximum number of tokens without the end token.
        seed: seed of the random numbers.
        ids: the special ids.
        num_parameters: number of parameters of the model; see `batch_sizes`.
    """
    draw = random.Random(seed)
    ordinary = range(EOS_ID + 1, vocab_size) if ids == _IDS else [i for i in range(vocab_size) if i not in ids]

    def sentence():
        return [draw.choice(ordinary) for _ in range(draw.randint(1, longest))] + [ids.eos]

    return batches_of(iter(sentence, None), ids.pad, num_parameters)


def batches_of(rows: Iterable[Sequence[int]], pad_id: int, num_parameters: int = 0) -> list[np.ndarray]:
    """Int32 matrices of the next rows of ids, padded; see `batch_sizes`."""
    rows = iter(rows)
    return [pad([*itertools.islice(rows, size)], pad_id) for size in batch_sizes(num_parameters)]


def random_batches(structure, seed: int = 0, num_parameters: int = 0) -> list:
    """Arrays of normal random numbers in the shapes of a structure of symbolic float tensors.

    Raises:
        ValueError: if a tensor has another dtype.
    """
    random_numbers = np.random.default_rng(seed)
    for x in keras.tree.flatten(structure):
        if not keras.backend.is_float_dtype(x.dtype):
            raise ValueError(
                "`sample_inputs` must be given for a model with inputs that are neither float nor the token ids of a "
                f"model of this package. Received: the input {x.name} of dtype {x.dtype}"
            )

    def batch(size):
        lengths = random_numbers.integers(5, 30, 8)

        def array(x):
            shape = [lengths[i] if n is None else n for i, n in enumerate(x.shape)]
            return random_numbers.normal(size=(size, *shape[1:])).astype(x.dtype)

        return keras.tree.map_structure(array, structure)

    return [batch(size) for size in batch_sizes(num_parameters)]
