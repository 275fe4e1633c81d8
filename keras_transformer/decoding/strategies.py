"""What a search is told. Importing this imports no Keras, so that command lines and clients start fast."""

import dataclasses
from typing import Literal

#: Kinds of length penalty; see `length_penalty`.
LENGTH_PENALTIES = ("gnmt", "length")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Strategy:
    """The options that every search has."""

    extra_length: int = 50
    min_length: int = 0
    no_repeat_ngram_size: int = 0
    token_scores: bool = False

    def __post_init__(self):
        for name in ("extra_length", "min_length", "no_repeat_ngram_size"):
            _check_at_least(name, getattr(self, name), 0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GreedySearch(_Strategy):
    """The likeliest token at each step.

    Args:
        extra_length: a hypothesis has at most this many tokens more than its source, the ends counted;
            at that length the end token is forced.
        min_length: tokens of a hypothesis before its end, at least; a prefix counts, the end does not.
            The limit wins over it.
        no_repeat_ngram_size: no sequence of so many tokens comes twice in a hypothesis, but for what a
            prefix repeats; 0 allows all. Where no other token is left, the hypothesis ends.
        token_scores: also return the log probability of each token.

    Raises:
        ValueError: if a number is negative.

    Example:

    >>> GreedySearch(min_length=3).extra_length
    50
    """

    beam_size = 1
    n_best = 1
    length_penalty = 0.0
    length_penalty_kind = "gnmt"

    def searching(self, sentences, ids):
        """The search over these sentences; see `keras_transformer.decoding.greedy`."""
        from keras_transformer.decoding.greedy import Greedy

        return Greedy(self, sentences, ids)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamSearch(_Strategy):
    """The best hypotheses by log p / length penalty, `beam_size` of them under way at a time.

    A hypothesis that has ended keeps its place in the beam, frozen, as long as its score is among
    the best. The search of a sentence stops when no unfinished hypothesis can still come among its
    `n_best`: its log probability can only fall, and its penalty is at most that of the limit.

    Args:
        beam_size: hypotheses under way for each sentence; a beam of one is greedy search.
        length_penalty: α of the length penalty, at least 0.
        length_penalty_kind: `"gnmt"`, ((5 + n) / 6)^α, or `"length"`, n^α.
        n_best: hypotheses to return, at most `beam_size`.
        extra_length: a hypothesis has at most this many tokens more than its source, the ends counted;
            at that length the end token is forced.
        min_length: tokens of a hypothesis before its end, at least; a prefix counts, the end does not.
            The limit wins over it.
        no_repeat_ngram_size: no sequence of so many tokens comes twice in a hypothesis, but for what a
            prefix repeats; 0 allows all. Where no other token is left, the hypothesis ends.
        token_scores: also return the log probability of each token.

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
    n_best: int = 1

    def __post_init__(self):
        super().__post_init__()
        _check_at_least("beam_size", self.beam_size, 1)
        _check_at_least("length_penalty", self.length_penalty, 0)
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

    def searching(self, sentences, ids):
        """The search over these sentences; see `keras_transformer.decoding.beams`."""
        from keras_transformer.decoding.beams import Beams
        from keras_transformer.decoding.greedy import Greedy

        return (Greedy if self.beam_size == 1 else Beams)(self, sentences, ids)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling(_Strategy):
    """Tokens drawn at random: top-k and nucleus sampling, alone or together.

    At each step the logits are divided by `temperature`; of the tokens that may follow the `top_k`
    likeliest are kept, and of these the fewest whose probability reaches `top_p`. One uniform number
    a token, drawn before the search, picks among them by the inverse of their cumulative
    distribution. The score of a sample is its log probability under the model, untempered.

    Args:
        top_k: tokens to choose among at most; 0 for all.
        top_p: probability of the tokens to choose among, in (0, 1].
        temperature: at least 0.001; below 1 the likely becomes likelier.
        seed: the samples of the same batch repeat exactly with the same seed. Default: another at every call.
        n_samples: hypotheses to return, each drawn for itself, in the order of their drawing.
        extra_length: a hypothesis has at most this many tokens more than its source, the ends counted;
            at that length the end token is forced.
        min_length: tokens of a hypothesis before its end, at least; a prefix counts, the end does not.
            The limit wins over it.
        no_repeat_ngram_size: no sequence of so many tokens comes twice in a hypothesis, but for what a
            prefix repeats; 0 allows all. Where no other token is left, the hypothesis ends.
        token_scores: also return the log probability of each token.

    Raises:
        ValueError: naming the argument that is out of range.

    Example:

    >>> Sampling(top_k=10, temperature=0.8, n_samples=3).n_best
    3

    Reference:
        Fan et al. 2018, §5.2 (top-k); Holtzman et al. 2020, §3.1 (nucleus).
    """

    top_k: int = 0
    top_p: float = 1.0
    temperature: float = 1.0
    seed: int | None = None
    n_samples: int = 1

    length_penalty = 0.0
    length_penalty_kind = "gnmt"

    def __post_init__(self):
        super().__post_init__()
        _check_at_least("top_k", self.top_k, 0)
        _check_at_least("temperature", self.temperature, 1e-3)
        _check_at_least("n_samples", self.n_samples, 1)
        if self.seed is not None:
            _check_at_least("seed", self.seed, 0)
        if not 0 < self.top_p <= 1:
            raise ValueError(f"`top_p` must be in (0, 1]. Received: top_p={self.top_p}")

    @property
    def beam_size(self) -> int:
        """Rows of a sentence."""
        return self.n_samples

    @property
    def n_best(self) -> int:
        """Hypotheses of a sentence."""
        return self.n_samples

    def searching(self, sentences, ids):
        """The search over these sentences; see `keras_transformer.decoding.greedy`."""
        from keras_transformer.decoding.greedy import Sampler

        return Sampler(self, sentences, ids)

    def noise(self, batch_size: int, max_length: int):
        """The uniform numbers of a search.

        Args:
            batch_size: sentences.
            max_length: tokens of a hypothesis. The numbers of the first ones do not depend on it.

        Returns:
            Float32 array `(batch_size, n_samples, max_length)` in [0, 1).
        """
        import numpy as np

        shape = (max_length, batch_size, self.n_samples)
        return np.moveaxis(np.random.default_rng(self.seed).random(shape, "float32"), 0, 2)


def _check_at_least(name, value, smallest):
    if not value >= smallest:
        raise ValueError(f"`{name}` must be at least {smallest}. Received: {name}={value}")
