"""Verification of runtimes with their own search. Its hypotheses may differ from this package's but must be valid."""

import collections
import dataclasses

import numpy as np

from keras_transformer.config import EOS_ID, PAD_ID
from keras_transformer.export.verify.equality import TIE
from keras_transformer.export.verify.keras_search import KerasSearch


@dataclasses.dataclass(frozen=True)
class Soundness:
    """How the hypotheses of a runtime with its own search compare with the Keras model.

    Attributes:
        sentences: number of compared sentences.
        equal: sentences with the same tokens as this package's search.
        at_limit: sentences with different tokens, where one of the searches reaches its length limit. The limit of
            CTranslate2 applies per batch and does not force the end token.
        sound: sentences whose tokens the search options and the constraints of text allow, and whose score is within
            `TIE` of the Keras model's, normalized over the tokens that the options, or both, allow. In greedy search
            each token must also have the highest log probability of the allowed tokens, to within `TIE`. In beam
            search a hypothesis must not be empty where this package's is not.
    """

    sentences: int
    equal: int
    sound: int
    at_limit: int

    def __str__(self):
        text = f"{self.sound} of {self.sentences} hypotheses sound, {self.equal} equal to this package's search"
        if self.at_limit:
            text += (
                f", {self.at_limit} different at the length limit "
                "(CTranslate2's applies per batch and does not force the end token)"
            )
        if others := self.sentences - self.equal - self.at_limit:
            text += (
                f", {others} different because CTranslate2 removes finished hypotheses from the beam, or by rounding"
            )
        return text

    @property
    def passed(self) -> bool:
        """Whether the export is accepted."""
        return self.sound == self.sentences


def check_search(expected: KerasSearch, program, batches: list[np.ndarray]) -> Soundness:
    """Checks the hypotheses of a runtime with its own search, as `translate` chooses them: empty ones are replaced.

    The search has no length penalty. The client has `search` and `target_tokenizer` as in `TokenTranslator`.
    """
    strategy = expected.strategy
    equal = sound = at_limit = 0
    for source in batches:
        own, _ = _chosen(expected.search, source, strategy)
        tokens, scores = _chosen(program.search, source, strategy)
        log_probs = _log_probs(expected, source, tokens)
        log_probs[:, :, list(program.target_tokenizer.text_constraints.forbidden)] = -np.inf
        rest = np.log(np.exp(log_probs).sum(axis=-1))
        chosen = np.take_along_axis(log_probs, tokens[..., None], axis=-1)[..., 0]
        is_real = tokens != PAD_ID
        totals = chosen.sum(axis=1, where=is_real), (chosen - rest).sum(axis=1, where=is_real)
        is_sound = np.minimum(*(np.abs(total - scores) for total in totals)) < TIE
        if strategy.beam_size == 1:
            is_sound &= ((log_probs.max(axis=-1) - chosen < TIE) | ~is_real).all(axis=1)
        else:
            is_sound &= (tokens[:, 0] != EOS_ID) | (own[:, 0] == EOS_ID)
        sound += int(is_sound.sum())
        for ours, theirs, limit in zip(own, tokens, _limits(expected, source), strict=True):
            ours, theirs = (np.trim_zeros(row, "b") for row in (ours, theirs))
            if np.array_equal(ours, theirs):
                equal += 1
            elif len(ours) >= limit or EOS_ID not in theirs:
                at_limit += 1
    return Soundness(sum(map(len, batches)), equal, sound, at_limit)


def _chosen(search, source, strategy):
    """The tokens and the score of each sentence. If the best hypothesis is empty: those of the best other one."""
    tokens, scores = map(np.array, search(source, 1))
    if strategy.beam_size > 1 and (tokens[:, 0, 0] == EOS_ID).any():
        tokens, scores = map(np.array, search(source, strategy.beam_size))
    best = np.arange(len(tokens)), (tokens[:, :, 0] != EOS_ID).argmax(axis=1)
    return tokens[best], scores[best]


def _limits(expected, source):
    """The length limit of each hypothesis in this package's search."""
    strategy = expected.strategy
    longest = expected.model.config.max_length or strategy.max_length(source.shape[1])
    return np.array(strategy.limits((source != PAD_ID).sum(axis=1), longest)).tolist()


def _log_probs(expected, source, tokens):
    """Log probabilities `(batch, length, vocab_size)` of the allowed tokens at each step of given hypotheses."""
    logits = expected.logits(source, tokens)
    candidates, strategy = expected.candidates(source), expected.strategy
    if candidates is not None:
        logits[:, :, np.setdiff1d(np.arange(logits.shape[-1]), candidates)] = -np.inf
    logits[:, : strategy.min_length, EOS_ID] = -np.inf
    if strategy.no_repeat_ngram_size:
        for row, ids in zip(logits, tokens.tolist(), strict=True):
            _bar_repeats(row, ids, strategy.no_repeat_ngram_size)
    logits -= logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def _bar_repeats(logits, ids, size):
    """Excludes, at each step, tokens that would repeat an n-gram."""
    followers = collections.defaultdict(set)
    for step in range(size - 1, len(ids)):
        before = tuple(ids[step - size + 1 : step])
        logits[step, list(followers[before])] = -np.inf
        followers[before].add(ids[step])
