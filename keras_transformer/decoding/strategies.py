"""Decoding strategies and their options. This module does not import Keras, so clients start fast."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from keras_transformer.checks import at_least, counts, fields, one_of, positive, require, within
from keras_transformer.counting import counted

#: Kinds of length penalty; see `length_penalty`.
LENGTH_PENALTIES = ("gnmt", "length")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Strategy:
    """Options that all strategies share."""

    extra_length: int = 50
    min_length: int = 0
    no_repeat_ngram_size: int = 0
    repetition_penalty: float = 1.0
    logits_processor: Callable | None = None
    token_scores: bool = False

    def __post_init__(self):
        require(
            counts(0, **fields(self, "extra_length", "min_length", "no_repeat_ngram_size")),
            positive(repetition_penalty=self.repetition_penalty),
            _processor_problems(self.logits_processor),
        )

    @property
    def options(self) -> dict[str, Any]:
        """The options as JSON values. Of a `logits_processor`, they contain the name."""
        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        processor = options.pop("logits_processor")
        name = getattr(processor, "__qualname__", type(processor).__qualname__)
        return options if processor is None else {**options, "logits_processor": name}

    def max_length(self, source_length):
        """The maximum number of tokens of all hypotheses of sources that have at most `source_length` tokens."""
        return source_length + max(self.extra_length, 1)

    def limits(self, source_lengths, max_length):
        """The maximum number of tokens of each hypothesis, int32 `(batch,)`: between 1 and `max_length`."""
        from keras import ops

        return ops.clip(source_lengths + self.extra_length, 1, max_length)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GreedySearch(_Strategy):
    """Greedy search: the most likely token at each step.

    Args:
        extra_length: maximum number of tokens of a hypothesis beyond those of its source. Both counts include the end
            token. At the limit only the end token is allowed.
        min_length: minimum number of tokens before the end token, including a prefix or prompt of `generate`. The
            maximum length has precedence.
        no_repeat_ngram_size: forbid repeated n-grams of this size; 0 allows all. Those in a prefix or prompt of
            `generate` are allowed. If no other token is allowed, the hypothesis ends.
        repetition_penalty: the logits of tokens that the hypothesis contains are divided by this number if they are
            positive, and multiplied by it if they are negative. Above 1, repetitions are less likely. The tokens of a
            prefix or prompt of `generate` count; the start token does not.
        logits_processor: callable `(logits, tokens, step) -> logits` of `keras.ops`, which changes the logits of each
            step, float32 `(rows, vocab_size)`. `tokens` are int32 `(rows, max_length)`: the `step` tokens of each
            hypothesis, then padding. A token whose logit becomes -inf is not allowed. Default: no change.
        token_scores: whether to also return the log probability of each token.

    Raises:
        ValueError: if an argument is out of range.

    Example:

    >>> GreedySearch(min_length=3).extra_length
    50

    Reference:
        Keskar et al. 2019, "CTRL", §4.1 (repetition penalty).
    """

    beam_size = 1
    n_best = 1
    length_penalty = 0.0
    length_penalty_kind = "gnmt"

    def make_searcher(self, sentences, ids, allowed=None):
        """Makes the search over `sentences`; see `keras_transformer.decoding.greedy`."""
        from keras_transformer.decoding.greedy import Greedy

        return Greedy(self, sentences, ids, allowed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamSearch(_Strategy):
    """Beam search: the best hypotheses by log probability / length penalty.

    A finished hypothesis stays in the beam while its score is among the `beam_size` best. The search of a sentence
    stops when no unfinished hypothesis can reach its `n_best`. The bound on the final score of an unfinished hypothesis
    is its log probability, which can only decrease, divided by the length penalty at the maximum length.

    Args:
        beam_size: number of hypotheses per sentence in the beam. 1 is greedy search.
        length_penalty: exponent α of the length penalty, at least 0.
        length_penalty_kind: `"gnmt"` for ((5 + n) / 6)^α, or `"length"` for n^α, where n counts the end token.
        n_best: number of hypotheses to return, at most `beam_size`.
        extra_length: maximum number of tokens of a hypothesis beyond those of its source. Both counts include the end
            token. At the limit only the end token is allowed.
        min_length: minimum number of tokens before the end token, including a prefix or prompt of `generate`. The
            maximum length has precedence.
        no_repeat_ngram_size: forbid repeated n-grams of this size; 0 allows all. Those in a prefix or prompt of
            `generate` are allowed. If no other token is allowed, the hypothesis ends.
        repetition_penalty: the logits of tokens that the hypothesis contains are divided by this number if they are
            positive, and multiplied by it if they are negative. Above 1, repetitions are less likely. The tokens of a
            prefix or prompt of `generate` count; the start token does not.
        logits_processor: callable `(logits, tokens, step) -> logits` of `keras.ops`, which changes the logits of each
            step, float32 `(rows, vocab_size)`. `tokens` are int32 `(rows, max_length)`: the `step` tokens of each
            hypothesis, then padding. A token whose logit becomes -inf is not allowed. Default: no change.
        token_scores: whether to also return the log probability of each token.

    Raises:
        ValueError: if an argument is out of range.

    Example:

    >>> BeamSearch(beam_size=4, length_penalty=0.6).n_best
    1

    Reference:
        Vaswani et al. 2017, §6.1: beam size 4, α = 0.6, maximum output length of input length + 50. Keskar et al. 2019,
        "CTRL", §4.1 (repetition penalty).
    """

    beam_size: int = 4
    length_penalty: float = 0.6
    length_penalty_kind: Literal["gnmt", "length"] = "gnmt"
    n_best: int = 1

    def __post_init__(self):
        super().__post_init__()
        require(
            counts(1, beam_size=self.beam_size, n_best=self.n_best),
            at_least(0, length_penalty=self.length_penalty),
            one_of(LENGTH_PENALTIES, length_penalty_kind=self.length_penalty_kind),
        )
        if self.n_best > self.beam_size:
            raise ValueError(
                f"`n_best` must be at most `beam_size`. Received: n_best={self.n_best}, beam_size={self.beam_size}"
            )

    def make_searcher(self, sentences, ids, allowed=None):
        """Makes the search over `sentences`; see `keras_transformer.decoding.beams`."""
        from keras_transformer.decoding.beams import Beams
        from keras_transformer.decoding.greedy import Greedy

        return (Greedy if self.beam_size == 1 else Beams)(self, sentences, ids, allowed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling(_Strategy):
    """Random sampling with temperature, top-k and nucleus (top-p) truncation.

    Each step divides the logits by `temperature`, keeps the `top_k` most likely allowed tokens, and of these the
    smallest set whose probability reaches `top_p`. One token is sampled from this set by inverting its cumulative
    distribution at a uniform number; these numbers are drawn before the search. The score of a sample is its log
    probability under the model at temperature 1, after `repetition_penalty` and `logits_processor`.

    Args:
        top_k: maximum number of tokens to sample from; 0 for all.
        top_p: probability mass of the tokens to sample from, in (0, 1].
        temperature: at least 0.001. Values below 1 make likely tokens more likely.
        seed: int. The same seed and batch give the same samples. A sequence has one seed for each sentence of the
            batch, whose samples then do not depend on the other sentences. Default: a new random seed for each call.
        n_samples: number of independent samples to return per sentence.
        extra_length: maximum number of tokens of a hypothesis beyond those of its source. Both counts include the end
            token. At the limit only the end token is allowed.
        min_length: minimum number of tokens before the end token, including a prefix or prompt of `generate`. The
            maximum length has precedence.
        no_repeat_ngram_size: forbid repeated n-grams of this size; 0 allows all. Those in a prefix or prompt of
            `generate` are allowed. If no other token is allowed, the hypothesis ends.
        repetition_penalty: the logits of tokens that the hypothesis contains are divided by this number if they are
            positive, and multiplied by it if they are negative. Above 1, repetitions are less likely. The tokens of a
            prefix or prompt of `generate` count; the start token does not.
        logits_processor: callable `(logits, tokens, step) -> logits` of `keras.ops`, which changes the logits of each
            step, float32 `(rows, vocab_size)`. `tokens` are int32 `(rows, max_length)`: the `step` tokens of each
            hypothesis, then padding. A token whose logit becomes -inf is not allowed. Default: no change.
        token_scores: whether to also return the log probability of each token.

    Raises:
        ValueError: if an argument is out of range.

    Example:

    >>> Sampling(top_k=10, temperature=0.8, n_samples=3).n_best
    3

    Reference:
        Fan et al. 2018, §5.2 (top-k); Holtzman et al. 2020, §3.1 (nucleus); Keskar et al. 2019, "CTRL", §4.1
        (repetition penalty).
    """

    top_k: int = 0
    top_p: float = 1.0
    temperature: float = 1.0
    seed: int | Sequence[int] | None = None
    n_samples: int = 1

    length_penalty = 0.0
    length_penalty_kind = "gnmt"

    def __post_init__(self):
        super().__post_init__()
        if isinstance(self.seed, Iterable):
            object.__setattr__(self, "seed", tuple(self.seed))  # Hashable, as the other fields.
        seeds = self.seed if isinstance(self.seed, tuple) else () if self.seed is None else (self.seed,)
        require(
            counts(0, top_k=self.top_k),
            within("(0, 1]", top_p=self.top_p),
            at_least(1e-3, temperature=self.temperature),
            counts(1, n_samples=self.n_samples),
            *(counts(0, seed=seed) for seed in seeds),
        )

    @property
    def beam_size(self) -> int:
        """Number of rows per sentence."""
        return self.n_samples

    @property
    def n_best(self) -> int:
        """Number of hypotheses per sentence."""
        return self.n_samples

    def make_searcher(self, sentences, ids, allowed=None):
        """Makes the search over `sentences`; see `keras_transformer.decoding.greedy`."""
        from keras_transformer.decoding.greedy import Sampler

        return Sampler(self, sentences, ids, allowed)

    def noise(self, batch_size: int, max_length: int):
        """Draws the uniform random numbers of a search.

        Args:
            batch_size: number of sentences.
            max_length: maximum tokens per hypothesis. A larger value appends numbers and keeps the others.

        Returns:
            Float32 array `(batch_size, n_samples, max_length)` in [0, 1).
        """
        import numpy as np

        if isinstance(self.seed, tuple):
            if len(self.seed) != batch_size:
                raise ValueError(
                    f"`seed` must be an int or have one seed per sentence. "
                    f"Received: {counted(len(self.seed), 'seed')} for {counted(batch_size, 'sentence')}"
                )
            each = dataclasses.replace(self, seed=None)
            return np.concatenate([dataclasses.replace(each, seed=seed).noise(1, max_length) for seed in self.seed])
        shape = (max_length, batch_size, self.n_samples)
        return np.moveaxis(np.random.default_rng(self.seed).random(shape, "float32"), 0, 2)


def _processor_problems(processor):
    if processor is not None and not callable(processor):
        yield f"`logits_processor` must be callable. Received: logits_processor={processor!r}"
