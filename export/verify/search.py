"""Soundness of runtimes with a search of their own: what they find need not be equal, but must be what they say."""

import collections
import dataclasses

import numpy as np

from keras_transformer.decoding import BeamSearch
from keras_transformer.export.verify.equality import TIE
from keras_transformer.text.tokenization import BOS_ID, EOS_ID, PAD_ID


@dataclasses.dataclass(frozen=True)
class Soundness:
    """How a runtime with a search of its own stands to the Keras model.

    Attributes:
        sentences: compared.
        equal: of the tokens that this package's search finds.
        at_limit: of other tokens, where either search reaches its limit of length. That of CTranslate2 is the
            batch's longest, and forces no end token there.
        sound: of tokens that the search may choose, and scored as the Keras model scores them among
            these, to within `TIE`; of a greedy search besides: each token is the likeliest of those
            that may follow, to within `TIE`.
        passed: whether the export may appear.
    """

    sentences: int
    equal: int
    sound: int
    at_limit: int

    def __str__(self):
        text = f"{self.sound} of {self.sentences} hypotheses sound, {self.equal} equal to this package's search"
        if self.at_limit:
            text += (
                f", {self.at_limit} others at the limit of length, "
                "which is the batch's and forces no end token in CTranslate2"
            )
        if others := self.sentences - self.equal - self.at_limit:
            text += f", {others} others since CTranslate2 takes finished hypotheses out of the beam, or by rounding"
        return text

    @property
    def passed(self) -> bool:
        """Whether the rule holds."""
        return self.sound == self.sentences


def check_search(model, strategy: BeamSearch, program, batches: list[np.ndarray]) -> Soundness:
    """Checks what a runtime with a search of its own finds.

    Args:
        model: the Keras `Transformer`.
        strategy: the options of the search, without length penalty.
        program: the runtime's client, with `search` as in `Translator.search`.
        batches: int32 matrices of source ids.

    Returns:
        `Soundness`.
    """
    equal = sound = at_limit = 0
    for source in batches:
        expected = model.generate(source, strategy).tokens[:, 0]
        tokens, scores = program.search(source)
        tokens, scores = tokens[:, 0], scores[:, 0]
        log_probs = _log_probs(model, source, tokens, strategy)
        chosen = np.take_along_axis(log_probs, tokens[..., None], axis=-1)[..., 0]
        is_real = tokens != PAD_ID
        is_sound = np.abs(chosen.sum(axis=1, where=is_real) - scores) < TIE
        if strategy.beam_size == 1:
            is_sound &= ((log_probs.max(axis=-1) - chosen < TIE) | ~is_real).all(axis=1)
        sound += int(is_sound.sum())
        for ours, theirs, limit in zip(expected, tokens, _limits(model, source, strategy), strict=True):
            ours, theirs = (np.trim_zeros(row, "b") for row in (ours, theirs))
            if np.array_equal(ours, theirs):
                equal += 1
            elif len(ours) >= limit or EOS_ID not in theirs:
                at_limit += 1
    return Soundness(sum(map(len, batches)), equal, sound, at_limit)


def _limits(model, source, strategy):
    """The limit of each hypothesis in this package's search."""
    limits = (source != PAD_ID).sum(axis=1) + strategy.extra_length
    return limits.clip(max=model.config.max_length).tolist()


def _log_probs(model, source, tokens, strategy):
    """Log probabilities `(batch, length, vocab_size)` of what may follow at each step of given hypotheses."""
    target = np.concatenate([np.full((len(tokens), 1), BOS_ID, "int32"), tokens[:, :-1]], axis=1)
    logits = np.array(model({"source": source, "target": target}, training=False), "float32")
    logits[:, : strategy.min_length, EOS_ID] = -np.inf
    if strategy.no_repeat_ngram_size:
        for row, ids in zip(logits, tokens.tolist(), strict=True):
            _bar_repeats(row, ids, strategy.no_repeat_ngram_size)
    logits -= logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def _bar_repeats(logits, ids, size):
    """Makes impossible, at each step, the tokens that would complete an n-gram for the second time."""
    followers = collections.defaultdict(set)
    for step in range(size - 1, len(ids)):
        before = tuple(ids[step - size + 1 : step])
        logits[step, list(followers[before])] = -np.inf
        followers[before].add(ids[step])
