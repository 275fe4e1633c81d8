"""Equality of an exported program with its Keras model. Only this module defines it."""

import dataclasses
import random

import numpy as np

from keras_transformer.config import EOS_ID, PAD_ID
from keras_transformer.counting import counted
from keras_transformer.decoding import BeamSearch, length_penalty
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
        passed: whether the export is accepted.
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


def compare(model, strategy: BeamSearch, program, batches: list[np.ndarray]) -> Agreement:
    """Compares the tokens of the best hypotheses, and the scores of all.

    Args:
        model: the Keras `Transformer`, or an object with its `shortlist`, `generate` and `token_log_probs`.
        strategy: the exported search.
        program: client of the exported program, with `search` as in `TokenTranslator`.
        batches: int32 matrices of source ids.

    Returns:
        `Agreement`.
    """
    sentences = equal = ties = other_ranks = 0
    largest = 0.0
    for source in batches:
        candidates = candidates_of_batch(model, source)
        expected = _by_tokens(*model.generate(source, strategy)[:2])
        found = _by_tokens(*program.search(source))
        for row, (ours, theirs) in enumerate(zip(expected, found, strict=True)):
            sentences += 1
            best, other = next(iter(ours)), next(iter(theirs))
            if best == other:
                unknown = [tokens for tokens in theirs if tokens not in ours]
                forced = _forced(model, source[row], unknown, strategy, candidates)
                known = {**ours, **dict(zip(unknown, forced, strict=True))}
                difference = max(abs(known[tokens] - score) for tokens, score in theirs.items())
                largest = max(largest, difference if np.isfinite(difference) else np.inf)
                equal += 1
                other_ranks += bool(unknown)
            else:
                both = _forced(model, source[row], [best, other], strategy, candidates)
                ties += abs(both[0] - both[1]) < TIE
    return Agreement(sentences, equal, ties, largest, other_ranks)


def candidates_of_batch(model, source: np.ndarray) -> np.ndarray | None:
    """The tokens among which the model searches; `None` for the whole vocabulary.

    Args:
        model: the Keras `Transformer`.
        source: int32 `(batch, source_length)`.
    """
    return None if model.shortlist is None else model.shortlist.candidates(source)


def _by_tokens(tokens, scores):
    """The hypotheses of each sentence, best first: scores by tokens."""
    return [
        {tuple(np.trim_zeros(ids, "b").tolist()): float(score) for ids, score in zip(*hypotheses, strict=True)}
        for hypotheses in zip(tokens, scores, strict=True)
    ]


def _forced(model, source, hypotheses, strategy, candidates):
    """The teacher-forced scores of one sentence's hypotheses."""
    if not hypotheses:
        return []
    repeated = np.repeat(source[None], len(hypotheses), axis=0)
    return teacher_forced_scores(model, repeated, pad(hypotheses), strategy, candidates).tolist()


def teacher_forced_scores(
    model, source: np.ndarray, tokens: np.ndarray, strategy: BeamSearch, candidates: np.ndarray | None = None
) -> np.ndarray:
    """The scores that the model gives to hypotheses, in one pass.

    Args:
        model: the Keras `Transformer`.
        source: int32 `(batch, source_length)`.
        tokens: int32 `(batch, length)`, without the start token, with the end token, padded.
        strategy: the search, for its length penalty.
        candidates: the tokens that the search considers; see `Transformer.token_log_probs`.

    Returns:
        Float `(batch,)`: log p / length penalty.
    """
    lengths = (tokens != PAD_ID).sum(axis=1)
    penalty = length_penalty(lengths, strategy.length_penalty, strategy.length_penalty_kind)
    return model.token_log_probs(source, tokens, candidates).sum(axis=1) / np.array(penalty)


def compare_texts(expected: list[Translation], found: list[Translation]) -> Agreement:
    """Compares translations of programs that tokenize and detokenize.

    Args:
        expected: translations of the Keras model.
        found: translations of the exported program.

    Returns:
        `Agreement`. A tie is a different text with nearly the same score.
    """
    differences = [abs(a.score - b.score) for a, b in zip(expected, found, strict=True)]
    is_equal = [a.text == b.text for a, b in zip(expected, found, strict=True)]
    is_tie = [not equal and difference < TIE for equal, difference in zip(is_equal, differences, strict=True)]
    largest = max((d for d, equal in zip(differences, is_equal, strict=True) if equal), default=0.0)
    return Agreement(len(expected), sum(is_equal), sum(is_tie), largest)


def compare_classes(model, classify, batches: list[np.ndarray]) -> Agreement:
    """Compares class logits.

    Args:
        model: the Keras `SentenceClassifier`.
        classify: the exported program, which maps int32 `(batch, source_length)` to float32 `(batch, num_classes)`.
        batches: int32 matrices of source ids.

    Returns:
        `Agreement` of the predicted classes. The scores are logits. A tie is another class with nearly the same logit.
    """
    equal = ties = 0
    largest = 0.0
    for source in batches:
        expected, found = model.predict_on_batch(source), classify(source)
        best, other = (np.argmax(logits, axis=1)[:, None] for logits in (expected, found))
        gap = np.take_along_axis(expected, best, axis=1) - np.take_along_axis(expected, other, axis=1)
        equal += int((best == other).sum())
        ties += int(((best != other) & (gap < TIE)).sum())
        difference = float(np.abs(expected - found).max())
        largest = max(largest, difference if np.isfinite(difference) else np.inf)
    return Agreement(sum(map(len, batches)), equal, ties, largest)


def random_source_batches(vocab_size: int, longest: int = 30, seed: int = 0) -> list[np.ndarray]:
    """Batches of random tokens, with several batch sizes and lengths.

    Args:
        vocab_size: size of the source vocabulary.
        longest: maximum number of tokens in a sentence, without the end token.
        seed: seed of the random numbers.

    Returns:
        Int32 matrices. Each row has the end token and then padding.
    """
    draw = random.Random(seed)

    def sentence():
        return [draw.randrange(EOS_ID + 1, vocab_size) for _ in range(draw.randint(1, longest))] + [EOS_ID]

    return [pad([sentence() for _ in range(size)]) for size, count in BATCHES.items() for _ in range(count)]
