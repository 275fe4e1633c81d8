"""Equality of an exported program with its Keras model. Only this module defines it."""

import dataclasses
import random

import numpy as np

from keras_transformer.config import EOS_ID
from keras_transformer.counting import counted
from keras_transformer.export.verify.keras_search import KerasSearch
from keras_transformer.translate.batching import pad
from keras_transformer.translate.translator import Translation

#: Scores with a smaller difference are a tie, in which rounding decides.
TIE = 1e-3
#: Maximum share of sentences with a tie.
MOST_TIES = 5 / 1000
#: Maximum share of sentences with equal best hypotheses and different lower ones. If the last two candidates of a beam
#: are nearly equal, rounding decides which one stays, and later hypotheses depend on it.
MOST_OTHER_RANKS = 20 / 1000
#: Number of batches of each batch size.
BATCHES = {1: 8, 7: 8, 32: 5}


class VerificationError(Exception):
    """An exported program does not agree with its Keras model."""


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
        all_explained = self.equal + self.ties == self.sentences
        few_differ = self.ties <= MOST_TIES * self.sentences and self.other_ranks <= MOST_OTHER_RANKS * self.sentences
        return all_explained and few_differ and self.largest_score_difference < TIE


def compare(expected: KerasSearch, program, batches: list[np.ndarray]) -> Agreement:
    """Compares the tokens of the best hypotheses, and the scores of all, with those of `program.search`."""
    sentences = equal = ties = other_ranks = 0
    largest = 0.0
    for source in batches:
        candidates = expected.candidates(source)
        both_programs = _by_tokens(expected.search(source)), _by_tokens(program.search(source))
        for row, (ours, theirs) in enumerate(zip(*both_programs, strict=True)):
            sentences += 1
            best, other = next(iter(ours)), next(iter(theirs))
            if best == other:
                unknown = [tokens for tokens in theirs if tokens not in ours]
                forced = _forced(expected, source[row], unknown, candidates)
                known = {**ours, **dict(zip(unknown, forced, strict=True))}
                difference = max(abs(known[tokens] - score) for tokens, score in theirs.items())
                largest = max(largest, difference if np.isfinite(difference) else np.inf)
                equal += 1
                other_ranks += bool(unknown)
            else:
                both = _forced(expected, source[row], [best, other], candidates)
                ties += abs(both[0] - both[1]) < TIE
    return Agreement(sentences, equal, ties, largest, other_ranks)


def _by_tokens(found):
    """The hypotheses of each sentence, best first: scores by tokens."""
    return [
        {tuple(np.trim_zeros(ids, "b").tolist()): float(score) for ids, score in zip(*hypotheses, strict=True)}
        for hypotheses in zip(*found, strict=True)
    ]


def _forced(expected, source, hypotheses, candidates):
    """The teacher-forced scores of one sentence's hypotheses."""
    if not hypotheses:
        return []
    repeated = np.repeat(source[None], len(hypotheses), axis=0)
    return expected.forced_scores(repeated, pad(hypotheses), candidates).tolist()


def compare_texts(expected: list[Translation], found: list[Translation]) -> Agreement:
    """Compares translations of programs that tokenize. A tie is another text with nearly the same score."""
    differences = [abs(a.score - b.score) for a, b in zip(expected, found, strict=True)]
    is_equal = [a.text == b.text for a, b in zip(expected, found, strict=True)]
    is_tie = [not equal and difference < TIE for equal, difference in zip(is_equal, differences, strict=True)]
    largest = max((d for d, equal in zip(differences, is_equal, strict=True) if equal), default=0.0)
    return Agreement(len(expected), sum(is_equal), sum(is_tie), largest)


def compare_logits(model, run, batches: list[np.ndarray]) -> Agreement:
    """Compares logits of classes or tokens, with those that `run` returns for int32 `(batch, length)`.

    In the `Agreement`, `sentences` counts predictions: one per row, or one per position. The scores are logits. A tie
    is another class or token with nearly the same logit.
    """
    count = equal = ties = 0
    largest = 0.0
    for ids in batches:
        expected, found = model.predict_on_batch(ids), run(ids)
        best, other = (np.argmax(logits, axis=-1)[..., None] for logits in (expected, found))
        gap = np.take_along_axis(expected, best, axis=-1) - np.take_along_axis(expected, other, axis=-1)
        count += best.size
        equal += int((best == other).sum())
        ties += int(((best != other) & (gap < TIE)).sum())
        difference = float(np.abs(expected - found).max())
        largest = max(largest, difference if np.isfinite(difference) else np.inf)
    return Agreement(count, equal, ties, largest)


def random_source_batches(vocab_size: int, longest: int = 30, seed: int = 0) -> list[np.ndarray]:
    """Int32 matrices of random ids with several batch sizes and lengths. Rows have the end token and then padding.

    `longest` is the maximum number of tokens without the end token.
    """
    draw = random.Random(seed)

    def sentence():
        return [draw.randrange(EOS_ID + 1, vocab_size) for _ in range(draw.randint(1, longest))] + [EOS_ID]

    return [pad([sentence() for _ in range(size)]) for size, count in BATCHES.items() for _ in range(count)]
