"""Pairs of lines in, log probabilities out."""

import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path

from keras_transformer.model_directory import ModelDirectory
from keras_transformer.translation import longest_source, pad


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
        from keras_transformer.saving import load_finished

        self.model, self.tokenizers = load_finished(ModelDirectory(directory))
        self.longest = longest_source(self.model.config.max_length)

    def score(self, source: Sequence[str], target: Sequence[str], batch_size: int = 32) -> list[PairScore]:
        """Scores pairs of lines, sorted by length and batched.

        Args:
            source: text.
            target: its translation, as many lines.
            batch_size: pairs scored at a time.

        Returns:
            One `PairScore` a pair, in their order.

        Raises:
            ValueError: if there are not as many source as target lines, or `batch_size` is not positive.

        Warns:
            UserWarning: for each line of more subwords than the model takes, or than 512, which is cut
                there.
        """
        if len(source) != len(target):
            raise ValueError(
                f"`source` and `target` must have as many lines. Received: {len(source)} and {len(target)}"
            )
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1. Received: batch_size={batch_size}")
        sides = zip(self.tokenizers, (source, target), strict=True)
        sources, targets = (self._encoded(tokenizer, lines) for tokenizer, lines in sides)
        order = sorted(range(len(targets)), key=lambda i: (len(targets[i]), len(sources[i])))
        scores: dict[int, PairScore] = {}
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            pairs = (pad([side[i] for i in chosen]) for side in (sources, targets))
            totals = self.model.token_log_probs(*pairs).sum(axis=1, dtype="float64")
            scores |= {i: PairScore(float(total), len(targets[i])) for i, total in zip(chosen, totals, strict=True)}
        return [scores[i] for i in range(len(order))]

    def _encoded(self, tokenizer, lines):
        # Lone surrogates are no text; SentencePiece takes valid UTF-8 only.
        sentences = tokenizer.encode([line.encode("utf-8", errors="replace").decode("utf-8") for line in lines])
        for line, ids in zip(lines, sentences, strict=True):
            if len(ids) - 1 > self.longest:
                warnings.warn(
                    f"a line of {len(ids) - 1} subwords is scored by its first {self.longest}: {line[:60]}…",
                    stacklevel=3,
                )
        return [ids[:-1][: self.longest] + ids[-1:] for ids in sentences]
