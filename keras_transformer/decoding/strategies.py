"""What a search is told. Importing this imports no Keras, so that command lines and clients start fast."""

import dataclasses
from typing import Literal

#: Kinds of length penalty; see `length_penalty`.
LENGTH_PENALTIES = ("gnmt", "length")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GreedySearch:
    """The likeliest token at each step.

    Args:
        extra_length: a hypothesis has at most this many tokens more than its source; at that
            length the end token is forced.

    Raises:
        ValueError: if `extra_length` is negative.
    """

    extra_length: int = 50

    beam_size = 1
    n_best = 1

    def __post_init__(self):
        _check_at_least("extra_length", self.extra_length, 0)

    def searching(self, limits, ids):
        """The search over so many sentences; see `keras_transformer.decoding.greedy`."""
        from keras_transformer.decoding.greedy import Greedy

        return Greedy(limits, ids)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamSearch:
    """The best hypotheses by log p / length penalty, `beam_size` of them under way at a time.

    A hypothesis that has ended keeps its place in the beam, frozen, as long as its score is among
    the best. The search of a sentence stops when no unfinished hypothesis can still come among its
    `n_best`: its log probability can only fall, and its penalty is at most that of the limit.

    Args:
        beam_size: hypotheses under way for each sentence.
        length_penalty: α of the length penalty, at least 0.
        length_penalty_kind: `"gnmt"`, ((5 + n) / 6)^α, or `"length"`, n^α.
        extra_length: a hypothesis has at most this many tokens more than its source; at that
            length the end token is forced.
        n_best: hypotheses to return, at most `beam_size`.

    Raises:
        ValueError: naming the argument that is out of range.

    Example:

    >>> BeamSearch(beam_size=4, length_penalty=0.6).n_best
    1

    Reference:
        Vaswani et al. 2017, §6.1: beam 4, α = 0.6, length at most the input's + 50.
    """

    beam_size: int = 4
    length_penalty: float = 0.6
    length_penalty_kind: Literal["gnmt", "length"] = "gnmt"
    extra_length: int = 50
    n_best: int = 1

    def __post_init__(self):
        _check_at_least("beam_size", self.beam_size, 1)
        _check_at_least("length_penalty", self.length_penalty, 0)
        _check_at_least("extra_length", self.extra_length, 0)
        _check_at_least("n_best", self.n_best, 1)
        if self.n_best > self.beam_size:
            raise ValueError(
                f"`n_best` must be at most `beam_size`. Received: n_best={self.n_best}, beam_size={self.beam_size}"
            )
        if self.length_penalty_kind not in LENGTH_PENALTIES:
            raise ValueError(
                f"`length_penalty_kind` must be one of {LENGTH_PENALTIES}. "
                f"Received: length_penalty_kind={self.length_penalty_kind!r}"
            )

    def searching(self, limits, ids):
        """The search over so many sentences; see `keras_transformer.decoding.beams`."""
        from keras_transformer.decoding.beams import Beams

        return Beams(self, limits, ids)


def _check_at_least(name, value, smallest):
    if not value >= smallest:
        raise ValueError(f"`{name}` must be at least {smallest}. Received: {name}={value}")
