"""The constraints of valid text in a search, on tensors."""

from keras import ops

from keras_transformer.decoding.scores import NEG_INF
from keras_transformer.decoding.text_constraints import LAST_STEPS


class AllowedTokens:
    """Masks the tokens that `TextConstraints` forbid. The state of each hypothesis is an index of their tables.

    Args:
        constraints: the `TextConstraints`.
        candidates: int32 tensor `(candidates,)`, the numbering of the tokens in the search. Default: by id.
    """

    def __init__(self, constraints, candidates=None):
        self._classes, self._allowed = constraints.classes, constraints.allowed
        if candidates is not None:
            self._classes = ops.take(self._classes, candidates, axis=0)
            self._allowed = ops.take(self._allowed, candidates, axis=1)
        self._following = constraints.following

    def after(self, characters, tokens):
        """The state of each hypothesis after one more token, all int32 `(rows,)`."""
        number = self._following.shape[1] * characters + ops.take(self._classes, tokens, axis=0)
        return ops.take(self._following.reshape(-1), number, axis=0)

    def masked(self, log_probs, characters, rest):
        """Masks the log probabilities of the tokens that are not allowed.

        Args:
            log_probs: `(rows, vocab_size)`.
            characters: int32 `(rows,)`, the state of each hypothesis.
            rest: int32 `(rows,)`, number of tokens up to its length limit, including the end token.

        Returns:
            Log probabilities `(rows, vocab_size)`, `NEG_INF` for tokens that are not allowed.
        """
        states = ops.maximum(characters, ops.minimum(LAST_STEPS + 1 - rest, LAST_STEPS))
        return ops.where(ops.take(self._allowed, states, axis=0), log_probs, NEG_INF)
