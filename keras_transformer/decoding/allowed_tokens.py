"""The constraints of valid text in a search, on tensors."""

from keras import ops

from keras_transformer.decoding.scores import NEG_INF
from keras_transformer.decoding.text_constraints import LAST_STEPS

#: Number of tokens on which the state of a hypothesis depends: a character has at most four bytes.
_BYTES_BEFORE = 3


class AllowedTokens:
    """Masks the tokens that `TextConstraints` forbid.

    Few steps of a search need the mask, so a search first looks at its candidates; see `may_forbid`.

    Args:
        constraints: the `TextConstraints`.
        candidates: int32 tensor `(candidates,)`, the numbering of the tokens in the search. Default: by id.
    """

    def __init__(self, constraints, candidates=None):
        self._classes = constraints.classes if candidates is None else ops.take(constraints.classes, candidates, axis=0)
        self._following, self._allowed = constraints.following, constraints.allowed

    def may_forbid(self, newest, tokens):
        """Whether a token may be forbidden: one is not a whole character, or follows one that is not.

        Args:
            newest: int32 `(rows,)`, the newest token of each hypothesis.
            tokens: int32 `(rows, width)`, the likeliest next tokens.
        """
        either = ops.concatenate([ops.expand_dims(newest, 1), tokens], axis=1)
        return ops.max(ops.take(self._classes, either, axis=0)) > 0

    def masked(self, log_probs, repeats_masked, state, limits):
        """Log probabilities `(rows, vocab_size)`, `NEG_INF` for the tokens that are not allowed.

        Args:
            log_probs: `(rows, vocab_size)`.
            repeats_masked: the same, without tokens that repeat n-grams. A character is one unit: its further bytes may
                repeat n-grams.
            state: the `State`.
            limits: int32 `(rows,)`, maximum tokens per hypothesis.
        """
        inside = self._states(state)
        rest = limits - state.step
        states = ops.maximum(inside, ops.minimum(LAST_STEPS + 1 - rest, LAST_STEPS))
        kept = ops.where(ops.expand_dims(inside > 0, 1), log_probs, repeats_masked)
        is_allowed = ops.take(ops.take(self._allowed, states, axis=0), self._classes, axis=1)
        return ops.where(is_allowed, kept, NEG_INF)

    def _states(self, state):
        """Int32 `(rows,)`: the state of `TextConstraints` after the newest tokens."""
        steps = state.step - ops.arange(_BYTES_BEFORE, 0, -1, dtype="int32")
        tokens = ops.take(state.history[0], ops.maximum(steps, 0), axis=1)
        classes = ops.where(steps >= 0, ops.take(self._classes, tokens, axis=0), 0)  # (rows, 3)
        found = ops.zeros_like(state.newest)
        for i in range(_BYTES_BEFORE):  # The entry [found, class] of the table, in its flat form.
            found = ops.take(self._following.reshape(-1), self._following.shape[1] * found + classes[:, i], axis=0)
        return found
