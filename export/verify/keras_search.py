"""The search of the Keras model, with which exported programs are compared."""

import dataclasses
import random
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling, Shortlist, TextConstraints, length_penalty
from keras_transformer.decoding.logits import processed
from keras_transformer.decoding.scores import NEG_INF
from keras_transformer.export.verify.replay import Replay
from keras_transformer.models.compiled import batch_size
from keras_transformer.translate.batching import pad
from keras_transformer.translate.token_translator import with_n_best


def with_seed(strategy):
    """A `Sampling` with the seed of the verification, or another strategy as it is."""
    return dataclasses.replace(strategy, seed=0) if isinstance(strategy, Sampling) else strategy


@dataclasses.dataclass(frozen=True)
class KerasSearch:
    """A Keras model with the search that an exported program performs.

    Args:
        model: the `Transformer`.
        strategy: the exported search.
        shortlist: the tokens among which the program searches. Default: the whole vocabulary.
        text_constraints: those of the program, if it has any.
        takes_prefix: whether the program has the input `prefix`.
        first_tokens: tokens with one of which a prefix begins. Default: any token, or no prefix.
        longest_prefix: maximum number of tokens of a prefix.
    """

    model: Any
    strategy: BeamSearch | GreedySearch | Sampling
    shortlist: Shortlist | None = None
    text_constraints: TextConstraints | None = None
    takes_prefix: bool = False
    first_tokens: tuple[int, ...] = ()
    longest_prefix: int = 3

    @property
    def pad_id(self) -> int:
        """The id of padding."""
        return self.model.special_ids.pad

    def search(self, source: np.ndarray, n_best: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The hypotheses and their scores; see `TokenTranslator.search`."""
        strategy = with_n_best(with_seed(self.strategy), n_best)
        return self._generate(source, strategy)[:2]

    def _generate(self, source, strategy):
        options = {"shortlist": self.shortlist, "text_constraints": self.text_constraints}
        return self.model.generate(source, strategy, prefix=self._prefix(source), **options)

    def added_inputs(self, source) -> dict[str, np.ndarray]:
        """The inputs of the program that belong to a source: the noise of `with_seed`, and a random prefix."""
        inputs, prefix = {}, self._prefix(source)
        if isinstance(self.strategy, Sampling):
            longest = max(self._source_length(source), 0 if prefix is None else prefix.shape[1])
            inputs["noise"] = with_seed(self.strategy).noise(batch_size(source), self.strategy.max_length(longest))
        return inputs if prefix is None else {**inputs, "prefix": prefix}

    def _source_length(self, source):
        _, mask = self.model.encode(keras.tree.map_structure(ops.convert_to_tensor, source))
        return 0 if mask is None else mask.shape[1]

    def _prefix(self, source):
        """Random tokens for each row of a source; the same ones in each call with this source."""
        if not self.takes_prefix:
            return None
        draw = random.Random(b"".join(np.asarray(x).tobytes() for x in keras.tree.flatten(source)))
        longest = min(self.longest_prefix, (self.model.max_length or 4) - 1)  # Learned positions leave one for the end.
        ordinary = [i for i in range(self.model.vocab_size) if i not in self.model.special_ids]
        rows = [[draw.choice(ordinary) for _ in range(draw.randint(0, longest))] for _ in range(batch_size(source))]
        if self.first_tokens:
            rows = [[draw.choice(self.first_tokens), *row[1:]] for row in rows]
        prefix = pad(rows, self.pad_id)
        return prefix if prefix.size else np.full((len(rows), 1), self.pad_id, "int32")

    def replay(self, source, tokens: np.ndarray) -> np.ndarray:
        """How far the noise is from each of given samples, `(batch, n_samples, length)`; see `Replay`."""
        options = {**vars(with_seed(self.strategy)), "token_scores": True}
        strategy = Replay(**options, tokens=tokens, pad_id=self.pad_id)
        return self._generate(source, strategy).token_scores

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

    def _generate(self, source, strategy):
        return self.model.generate(source, strategy)

    def _source_length(self, source):
        return source.shape[1] + 1

    def _token_log_probs(self, source, tokens, candidates):
        return self.model.token_log_probs(tokens)

    def _teacher_forced(self, source, target):
        return self.model(target, training=False)


class ContinuationSearch(PromptSearch):
    """As `PromptSearch`, but the tokens that all prompts have are not part of the scores."""

    def search(self, source, n_best=None):
        tokens = super().search(source)[0]
        return tokens, self.forced_scores(source, tokens[:, 0])[:, None]

    def log_probs(self, source, tokens, candidates=None):
        shortest = (source != self.pad_id).sum(axis=1).min()
        return np.where(np.arange(tokens.shape[1]) < shortest, 0.0, super().log_probs(source, tokens, candidates))
