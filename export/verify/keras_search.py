"""The search of the Keras model, with which exported programs are compared."""

import dataclasses
from typing import Any

import numpy as np
from keras import ops

from keras_transformer.decoding import BeamSearch, GreedySearch, Shortlist, TextConstraints, length_penalty
from keras_transformer.decoding.logits import processed
from keras_transformer.decoding.scores import NEG_INF
from keras_transformer.translate.translator import with_n_best


@dataclasses.dataclass(frozen=True)
class KerasSearch:
    """A Keras model with the search that an exported program performs.

    Args:
        model: the `Transformer`.
        strategy: the exported search.
        shortlist: the tokens among which the program searches. Default: the whole vocabulary.
        text_constraints: those of the program, if it has any.
    """

    model: Any
    strategy: BeamSearch | GreedySearch
    shortlist: Shortlist | None = None
    text_constraints: TextConstraints | None = None

    @property
    def pad_id(self) -> int:
        """The id of padding."""
        return self.model.special_ids.pad

    def search(self, source: np.ndarray, n_best: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The hypotheses and their scores; see `TokenTranslator.search`."""
        strategy = with_n_best(self.strategy, n_best)
        options = {"shortlist": self.shortlist, "text_constraints": self.text_constraints}
        return self.model.generate(source, strategy, **options)[:2]

    def candidates(self, source: np.ndarray) -> np.ndarray | None:
        """The tokens among which the model searches in a batch; `None` for the whole vocabulary."""
        return None if self.shortlist is None else self.shortlist.candidates(source)

    def log_probs(self, source: np.ndarray, tokens: np.ndarray, candidates: np.ndarray | None = None) -> np.ndarray:
        """The log probability `(batch, length)` that the search gives to each token of given hypotheses."""
        if not self._changes_logits:
            return self._token_log_probs(source, tokens, candidates)
        logits = self.logits(source, tokens)
        if candidates is not None:
            logits[:, :, np.setdiff1d(np.arange(logits.shape[-1]), candidates)] = NEG_INF
        chosen = np.take_along_axis(logits, tokens[..., None], axis=-1)[..., 0]
        return np.where(tokens != self.pad_id, chosen - np.logaddexp.reduce(logits, axis=-1), 0.0)

    def logits(self, source: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """The logits `(batch, length, vocab_size)` of each step of given hypotheses, as the search changes them."""
        target = np.concatenate(
            [np.full((len(tokens), 1), self.model.special_ids.bos, "int32"), tokens[:, :-1]], axis=1
        )
        logits = np.array(self._teacher_forced(source, target), "float32")
        for step in range(tokens.shape[1] if self._changes_logits else 0):
            generated = np.where(np.arange(tokens.shape[1]) < step, tokens, self.pad_id)
            given = map(ops.convert_to_tensor, (logits[:, step], generated, np.int32(step)))
            logits[:, step] = processed(self.strategy, *given)[0]
        return logits

    @property
    def _changes_logits(self):
        return self.strategy.repetition_penalty != 1 or self.strategy.logits_processor is not None

    def _token_log_probs(self, source, tokens, candidates):
        return self.model.token_log_probs(source, tokens, candidates)

    def _teacher_forced(self, source, target):
        return self.model({"source": source, "target": target}, training=False)

    def forced_scores(self, source: np.ndarray, tokens: np.ndarray, candidates: np.ndarray | None = None) -> np.ndarray:
        """The scores that the model gives to hypotheses `(batch, length)` by teacher forcing: log p / penalty."""
        lengths = (tokens != self.pad_id).sum(axis=1)
        penalty = length_penalty(lengths, self.strategy.length_penalty, self.strategy.length_penalty_kind)
        return self.log_probs(source, tokens, candidates).sum(axis=1) / np.array(penalty)


class PromptSearch(KerasSearch):
    """The search of a `LanguageModel`. The source is the prompt, with which the tokens begin."""

    def search(self, source, n_best=None):
        return self.model.generate(source, self.strategy)[:2]

    def _token_log_probs(self, source, tokens, candidates):
        return self.model.token_log_probs(tokens)

    def _teacher_forced(self, source, target):
        return self.model(target, training=False)
