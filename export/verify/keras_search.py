"""The search of the Keras model, with which exported programs are compared."""

import dataclasses
from typing import Any

import numpy as np

from keras_transformer.decoding import BeamSearch, GreedySearch, Shortlist, TextConstraints, length_penalty
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
        """The log probability `(batch, length)` of each token of given hypotheses."""
        return self.model.token_log_probs(source, tokens, candidates)

    def forced_scores(self, source: np.ndarray, tokens: np.ndarray, candidates: np.ndarray | None = None) -> np.ndarray:
        """The scores that the model gives to hypotheses `(batch, length)` by teacher forcing: log p / penalty."""
        lengths = (tokens != self.pad_id).sum(axis=1)
        penalty = length_penalty(lengths, self.strategy.length_penalty, self.strategy.length_penalty_kind)
        return self.log_probs(source, tokens, candidates).sum(axis=1) / np.array(penalty)


class PromptSearch(KerasSearch):
    """The search of a `LanguageModel`. The source is the prompt, with which the tokens begin."""

    def search(self, source, n_best=None):
        return self.model.generate(source, self.strategy)[:2]

    def log_probs(self, source, tokens, candidates=None):
        return self.model.token_log_probs(tokens)
