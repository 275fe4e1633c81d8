"""Log probabilities of given translations."""

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path

from keras_transformer.checks import require, same_number
from keras_transformer.storage.languages import Direction, languages_of
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.text.lines import checked_lines, encode_lines, max_tokens
from keras_transformer.translate.batching import BATCH_SIZE, BATCH_TOKENS, BatchLimits, pad
from keras_transformer.translate.finished_model import load_finished


@dataclasses.dataclass(frozen=True)
class PairScore:
    """The score of a translation.

    Attributes:
        log_prob: log probability of the translation, in nats.
        num_tokens: number of subwords of the translation, including the end token.
        mean_log_prob: mean log probability per subword. The perplexity is `exp(-mean_log_prob)`.
    """

    log_prob: float
    num_tokens: int

    @property
    def mean_log_prob(self) -> float:
        """`log_prob / num_tokens`."""
        return self.log_prob / self.num_tokens


class LikelihoodScorer:
    """Scores given translations with `Transformer.token_log_probs`.

    An empty line is scored too. Its only token is the end token.

    Args:
        directory: model directory of a finished training.

    Raises:
        ValueError: if the directory contains no finished model, the model file cannot be read, or a tokenizer belongs
            to another model.

    Example:

        LikelihoodScorer("runs/en-de").score(["Two men are outside."], ["Zwei Männer sind draußen."])[0].log_prob
    """

    def __init__(self, directory: str | Path):
        self.model, self.tokenizers = load_finished(ModelDirectory(directory))
        self.languages = languages_of(directory)
        self.longest = max_tokens(self.model.config.max_length) - self.languages.max_source_prefix

    def score(
        self,
        source: Iterable[str],
        target: Iterable[str],
        batch_size: int = BATCH_SIZE,
        batch_tokens: int = BATCH_TOKENS,
        source_language: str | None = None,
        target_language: str | None = None,
    ) -> list[PairScore]:
        """Scores pairs of lines, sorted by length and batched.

        Args:
            source: source lines, an iterable of strings, not a single string.
            target: translations, one line per source line.
            batch_size: maximum pairs per batch.
            batch_tokens: maximum tokens per batch of the longer side, including padding. A longer pair is scored
                alone.
            source_language: code of the source language, for a model with several languages. Default: that of the
                model.
            target_language: code of the target language, likewise. A token that the model is forced to write for it is
                not scored.

        Returns:
            One `PairScore` per pair, in the order of the pairs.

        Raises:
            ValueError: if `source` or `target` is a string or contains other objects than strings, the numbers of
                lines differ, `batch_size` or `batch_tokens` is not positive, or the model does not know a language or
                needs one that is not given.

        Warns:
            UserWarning: for each line with more than `longest` subwords, which is truncated.
        """
        direction = self.languages.direction(source_language, target_language)
        return self._score(source, target, BatchLimits(batch_size, batch_tokens), direction)

    def _score(self, source, target, limits, direction: Direction, first_line=1):
        """`score`, after the checks of the limits. `first_line` is the number of the first pair, for warnings."""
        lines = checked_lines("source", source), checked_lines("target", target)
        require(same_number("lines", source=lines[0], target=lines[1]))
        numbers = range(first_line, first_line + len(lines[0]))
        sources, targets = (
            encode_lines(tokenizer, side, self.longest, numbers)
            for tokenizer, side in zip(self.tokenizers, lines, strict=True)
        )
        prefix = direction.target_prefix
        targets = [[*prefix, *ids] for ids in targets]
        sources = [direction.source_ids(ids) for ids in sources]
        lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
        scores: dict[int, PairScore] = {}
        for chosen in limits.batches(lengths):
            pairs = (pad([side[i] for i in chosen]) for side in (sources, targets))
            log_probs = self.model.token_log_probs(*pairs)[:, len(prefix) :]
            totals = log_probs.sum(axis=1, dtype="float64")
            counts = [len(targets[i]) - len(prefix) for i in chosen]
            scores |= dict(zip(chosen, map(PairScore, map(float, totals), counts), strict=True))
        return [scores[i] for i in range(len(lengths))]

    def score_stream(
        self,
        pairs: Iterable[tuple[str, str]],
        batch_size: int = BATCH_SIZE,
        batch_tokens: int = BATCH_TOKENS,
        source_language: str | None = None,
        target_language: str | None = None,
    ) -> Iterator[PairScore]:
        """Scores a stream of pairs that need not fit in memory. Chunks of 64 batches are sorted by length.

        Args:
            pairs: an iterable of (source line, target line), which is read one chunk at a time.
            batch_size: see `score`.
            batch_tokens: see `score`.
            source_language: see `score`.
            target_language: see `score`.

        Yields:
            One `PairScore` per pair, in the order of the pairs.

        Raises:
            ValueError: see `score`.

        Warns:
            UserWarning: see `score`.
        """
        limits, first_line = BatchLimits(batch_size, batch_tokens), 1
        direction = self.languages.direction(source_language, target_language)
        for chunk in limits.chunks(pairs):
            sources, targets = zip(*chunk, strict=True)
            yield from self._score(sources, targets, limits, direction, first_line)
            first_line += len(chunk)
