"""The constraints of valid text in a search, on tensors."""

from keras import ops

from keras_transformer.decoding.scores import NEG_INF

#: Number of tokens on which the state of a character depends: a character has at most four bytes.
_BYTES_BEFORE = 3


class AllowedTokens:
    """Masks the tokens that `TextConstraints` forbid.

    Few steps of a search need the mask, so a search first looks at its candidates; see `may_forbid`.

    Args:
        constraints: the `TextConstraints`.
        candidates: int32 tensor `(candidates,)`, the numbering of the tokens in the search. Default: by id.
        finished: ids of the tokens after which a hypothesis is finished. These hypotheses need no mask.
    """

    def __init__(self, constraints, candidates, finished):
        by_token = (constraints.classes, constraints.is_special, _places(constraints.is_in_character, finished))
        if candidates is not None:
            by_token = (ops.take(x, candidates, axis=0) for x in by_token)
        self._classes, self._is_special, self._place = by_token
        self._lacking, self._following = constraints.lacking, constraints.following

    def may_forbid(self, newest, tokens):
        """Whether the constraints may forbid a token: the newest token is part of a character, or a token is special.

        Args:
            newest: int32 `(rows,)`, the newest token of each hypothesis.
            tokens: int32 `(rows, width)`, the likeliest next tokens.

        Returns:
            Boolean scalar.
        """
        place = ops.expand_dims(ops.take(self._place, newest, axis=0), 1)
        return ops.max(ops.take(self._is_special, tokens, axis=0) + place) > 0

    def masked(self, log_probs, repeats_masked, state, limits):
        """Masks the log probabilities of the tokens that are not allowed.

        Args:
            log_probs: `(rows, vocab_size)`.
            repeats_masked: the same, without tokens that repeat n-grams. A character is one unit: its further bytes may
                repeat n-grams.
            state: the `State`.
            limits: int32 `(rows,)`, maximum tokens per hypothesis.

        Returns:
            Log probabilities `(rows, vocab_size)`, `NEG_INF` for tokens that are not allowed.
        """
        place = self._state_of_character(state)
        lacking = ops.take(ops.take(self._lacking, place, axis=0), self._classes, axis=1)
        rest = ops.expand_dims(limits - state.step - 1, 1)  # Without the end token.
        is_inside = ops.expand_dims(place > 0, 1)
        return ops.where(lacking < rest, ops.where(is_inside, log_probs, repeats_masked), NEG_INF)

    def _state_of_character(self, state):
        """Int32 `(rows,)`: the state of `TextConstraints` after the newest tokens."""
        place = ops.zeros_like(state.newest)
        for before in range(_BYTES_BEFORE, 0, -1):
            token = ops.take(state.history[0], ops.maximum(state.step - before, 0), axis=1)
            kind = ops.where(state.step >= before, ops.take(self._classes, token, axis=0), 0)
            number = self._following.shape[1] * place + kind
            place = ops.take(self._following.reshape(-1), number, axis=0)
        return place


def _places(is_in_character, finished):
    """1 for tokens in a character, -1 for those after which a hypothesis is finished, otherwise 0."""
    places = is_in_character.copy()
    places[[*finished]] = -1
    return places
