"""Pairs of lines in, log probabilities out."""

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path

from keras_transformer.model_directory import ModelDirectory
from keras_transformer.text.batching import BATCH_SIZE, BATCH_TOKENS, BatchLimits, pad
from keras_transformer.text.lines import checked_lines, encode_lines, max_tokens


@dataclasses.dataclass(frozen=True)
class PairScore:
    """What a model says of one given translation.

    Attributes:
        log_prob: log p of the whole translation, in nats.
        num_tokens: its subwords, the end counted.
        mean_log_prob: log p of a subword; the translation's perplexity is exp(-mean).
    """

    log_prob: float
    num_tokens: int

    @property
    def mean_log_prob(self) -> float:
        """`log_prob / num_tokens`."""
        return self.log_prob / self.num_tokens


class Scorer:
    """Scores given translations with `Transformer.token_log_probs`.

    A line without text is scored like any other: its tokens are the end alone.

    Args:
        directory: a finished model directory.

    Raises:
        ValueError: if the directory holds no finished model, its weights cannot be read, or its tokenizer is
            another model's.

    Example:

        Scorer("runs/en-de").score(["Two men are outside."], ["Zwei Männer sind draußen."])[0].log_prob
    """

    def __init__(self, directory: str | Path):
        directory = ModelDirectory(directory)
        directory.require_finished()  # Before the import of Keras, which takes many seconds.
        from keras_transformer.saving import load_finished

        self.model, self.tokenizers = load_finished(directory)
        self.longest = max_tokens(self.model.config.max_length)

    def score(
        self,
        source: Iterable[str],
        target: Iterable[str],
        batch_size: int = BATCH_SIZE,
        batch_tokens: int = BATCH_TOKENS,
    ) -> list[PairScore]:
        """Scores pairs of lines, sorted by length and batched.

        Args:
            source: text; an iterable of strings, not one string.
            target: its translation, as many lines.
            batch_size: pairs scored at a time, at most.
            batch_tokens: tokens of either side scored at a time, at most, padding counted. A longer pair
                is scored alone.

        Returns:
            One `PairScore` a pair, in their order.

        Raises:
            ValueError: if a side is a string or holds anything but strings, there are not as many source
                as target lines, or `batch_size` or `batch_tokens` is not positive.

        Warns:
            UserWarning: for each line of more subwords than `longest`, which is cut there.
        """
        return self._score(source, target, BatchLimits(batch_size, batch_tokens))

    def _score(self, source, target, limits, first_line=1):
        sources, targets = self._encoded(source, target, first_line)
        lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
        scores: dict[int, PairScore] = {}
        for chosen in limits.batches(lengths):
            pairs = (pad([side[i] for i in chosen]) for side in (sources, targets))
            totals = self.model.token_log_probs(*pairs).sum(axis=1, dtype="float64")
            scores |= {i: PairScore(float(total), len(targets[i])) for i, total in zip(chosen, totals, strict=True)}
        return [scores[i] for i in range(len(lengths))]

    def score_stream(
        self, pairs: Iterable[tuple[str, str]], batch_size: int = BATCH_SIZE, batch_tokens: int = BATCH_TOKENS
    ) -> Iterator[PairScore]:
        """Scores more pairs than memory holds: in chunks of 64 batches, each of which is sorted by length.

        Args:
            pairs: of a source and a target line; they are read one chunk at a time.
            batch_size: see `score`.
            batch_tokens: see `score`.

        Yields:
            One `PairScore` a pair, in their order.

        Raises:
            ValueError: see `score`.

        Warns:
            UserWarning: see `score`.
        """
        limits, first_line = BatchLimits(batch_size, batch_tokens), 1
        for chunk in limits.chunks(pairs):
            yield from self._score(*zip(*chunk, strict=True), limits, first_line)
            first_line += len(chunk)

    def _encoded(self, source, target, first_line):
        """The ids of each side's lines."""
        source, target = checked_lines("source", source), checked_lines("target", target)
        if len(source) != len(target):
            raise ValueError(
                f"`source` and `target` must have as many lines. Received: {len(source)} and {len(target)}"
            )
        of_source, of_target = self.tokenizers
        source_ids = encode_lines(of_source, source, self.longest, first_line)
        return source_ids, encode_lines(of_target, target, self.longest, first_line)
