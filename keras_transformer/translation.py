"""Lines in, translations out: what every runtime's translator has in common, and Keras's own."""

import dataclasses
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from keras_transformer.model_directory import ModelDirectory
from keras_transformer.tokenization import PAD_ID, Tokenizer

#: A longer line is translated from its first so many subwords, with a warning.
MAX_SOURCE_LENGTH = 512


@dataclasses.dataclass(frozen=True)
class Translation:
    """One line's translation.

    Attributes:
        text: the best hypothesis.
        score: its log probability over the length penalty; 0 for an empty line.
        tokens: its subword ids, the end counted.
    """

    text: str
    score: float
    tokens: tuple[int, ...] = ()


class Translator:
    """Translates lines with a runtime's search; subclasses give `search`.

    Lines are sorted by length, batched, and returned in their own order. A line without text stays
    an empty line.

    Args:
        source_tokenizer: of the source.
        target_tokenizer: of the target.
        num_positions: the model's learned positions, or `None` where any length will do.
    """

    def __init__(self, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer, num_positions: int | None = None):
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.max_source_length = longest_source(num_positions)

    def search(self, source: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The hypotheses of one batch.

        Args:
            source: int32 `(batch, source_length)`.

        Returns:
            Tokens int32 `(batch, n_best, length)` and scores float32 `(batch, n_best)`, best first.
        """
        raise NotImplementedError

    def translate(self, lines: Iterable[str], batch_size: int = 32) -> list[Translation]:
        """Translates lines.

        Args:
            lines: text; an iterable of strings, not one string.
            batch_size: sentences translated at a time.

        Returns:
            One `Translation` a line, in the order of the lines.

        Raises:
            ValueError: if `lines` is a string or holds anything but strings, or `batch_size` is not positive.

        Warns:
            UserWarning: for each line of more subwords than `max_source_length`, which is cut there.
        """
        lines = self._checked(lines, batch_size)
        sentences = self.source_tokenizer.encode(lines)
        self._warn_of_long(lines, [len(ids) - 1 for ids in sentences], self.max_source_length)
        sentences = [ids[:-1][: self.max_source_length] + ids[-1:] for ids in sentences]
        translations = [Translation("", 0.0)] * len(sentences)
        order = sorted((i for i, ids in enumerate(sentences) if len(ids) > 1), key=lambda i: len(sentences[i]))
        for chosen in _batched(order, batch_size):
            tokens, scores = self.search(pad([sentences[i] for i in chosen]))
            texts = self.target_tokenizer.decode(tokens[:, 0])
            for i, text, row, score in zip(chosen, texts, tokens[:, 0], scores[:, 0], strict=True):
                translations[i] = Translation(text, float(score), tuple(int(t) for t in row if t != PAD_ID))
        return translations

    @staticmethod
    def _checked(lines, batch_size):
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1. Received: batch_size={batch_size}")
        if isinstance(lines, (str, bytes)):
            raise ValueError(f"`lines` must be a list of strings. Received: {lines[:80]!r}")
        lines = list(lines)
        wrong = [line for line in lines if not isinstance(line, str)]
        if wrong:
            raise ValueError(f"`lines` must hold strings. Received: {wrong[0]!r}")
        # Lone surrogates are no text; SentencePiece takes valid UTF-8 only.
        return [line.encode("utf-8", errors="replace").decode("utf-8") for line in lines]

    @staticmethod
    def _warn_of_long(lines, lengths, longest):
        for line, length in zip(lines, lengths, strict=True):
            if length > longest:
                warnings.warn(
                    f"a line of {length} subwords is translated from its first {longest}: {line[:60]}…", stacklevel=3
                )


class KerasTranslator(Translator):
    """Translates with `Transformer.generate`.

    Args:
        directory: a finished model directory.
        strategy: `BeamSearch` or `GreedySearch`. Default: `BeamSearch()`, the paper's.

    Raises:
        ValueError: if the directory holds no finished model, or its weights cannot be read.

    Example:

        KerasTranslator("runs/en-de").translate(["Two men are outside."])[0].text
    """

    def __init__(self, directory: str | Path, strategy=None):
        from keras_transformer.saving import load_model

        directory = ModelDirectory(directory)
        directory.require_finished()
        self.model = load_model(directory.model_file, compile=False)
        super().__init__(*load_tokenizers(directory), self.model.config.max_length)
        self.strategy = strategy

    def search(self, source: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `Translator.search`."""
        return tuple(self.model.generate(source, self.strategy))


def longest_source(num_positions: int | None) -> int:
    """Subwords of a line that are translated, the end not counted.

    Args:
        num_positions: the model's learned positions, or `None` where any length will do.
    """
    return MAX_SOURCE_LENGTH if num_positions is None else min(MAX_SOURCE_LENGTH, num_positions - 1)


def load_tokenizers(directory: ModelDirectory) -> tuple[Tokenizer, Tokenizer]:
    """The source's and the target's tokenizer.

    Args:
        directory: a model directory.

    Returns:
        Two tokenizers; one object twice where it is shared.

    Raises:
        ValueError: if a file is no SentencePiece model, or its special ids are not this package's.
    """
    tokenizers = {path: Tokenizer(path) for path in directory.tokenizer_files}
    source, target = (tokenizers[path] for path in directory.tokenizer_files)
    return source, target


def pad(sentences: Sequence[Sequence[int]]) -> np.ndarray:
    """Rows of ids as one matrix.

    Args:
        sentences: rows of ids.

    Returns:
        Int32 `(rows, longest)`, padded with 0.
    """
    matrix = np.full((len(sentences), max(map(len, sentences), default=0)), PAD_ID, "int32")
    for row, ids in zip(matrix, sentences, strict=True):
        row[: len(ids)] = ids
    return matrix


def _batched(items: list[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
