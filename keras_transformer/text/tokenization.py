"""Subword tokenization with SentencePiece: special ids, options, training and the tokenizer."""

import dataclasses
import functools
import hashlib
import io
import itertools
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from keras_transformer.checks import at_least, require, within
from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from keras_transformer.decoding.text_constraints import TextConstraints
from keras_transformer.text.normalization import normalization_rule, used_shapes

#: Default vocabulary size. A small corpus may yield a smaller vocabulary.
DEFAULT_VOCAB_SIZE = 8000
#: Pieces of the special ids.
SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")
#: SentencePiece's sign for a space.
_SPACE = "▁"
#: Number of lines from which SentencePiece uses all cores. Starting its threads takes longer than encoding a few lines.
_PARALLEL = 64
#: Errors of SentencePiece about a vocabulary that is too large or too small for a text.
_LARGEST, _SMALLEST = re.compile(r"value <= (\d+)"), re.compile(r"required_chars\. \d+ vs (\d+)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """Options of tokenizer training: SentencePiece BPE with byte fallback, which can encode any text.

    Args:
        vocab_size: number of subwords, including 4 special tokens and 256 bytes. Default: 8,000, or the largest
            possible number for a small corpus, or twice the number of characters if 8,000 are not enough for them.
        shared: whether source and target share a vocabulary. Otherwise each has `vocab_size` subwords.
        normalization: how the text changes before it is divided into subwords. The default `nfc` composes characters
            and removes invisible ones; see `keras_transformer.text.normalization`. The others are rules of
            SentencePiece. Its `nmt_nfkc` also replaces characters by simpler ones, such as `²` by `2` and `…` by
            `...`, in translations, too. All rules merge consecutive spaces.
        character_coverage: fraction of the characters of the corpus that are subwords. The others become bytes.
        sample_size: maximum sentence pairs for tokenizer training, sampled at random and held in memory.

    Raises:
        ValueError: if an argument is out of range.
    """

    vocab_size: int | None = None
    shared: bool = True
    normalization: Literal["nfc", "nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"] = "nfc"
    character_coverage: float = 1.0
    sample_size: int = 1_000_000

    def __post_init__(self):
        if self.vocab_size is not None and self.vocab_size < 261:
            raise ValueError(
                "`tokenizer.vocab_size` must be at least 261: 4 special tokens, 256 bytes and one subword of the text. "
                f"Received: vocab_size={self.vocab_size}"
            )
        require(
            at_least(1, **{"tokenizer.sample_size": self.sample_size}),
            within("[0.98, 1]", **{"tokenizer.character_coverage": self.character_coverage}),  # SentencePiece's limits.
        )


def train_sentencepiece(
    sentences: Iterable[str], config: TokenizerConfig, tags: Sequence[str] = (), kept: Iterable[str] | None = None
) -> bytes:
    """Trains a SentencePiece tokenizer, and returns the serialized model.

    Args:
        sentences: the sentences.
        config: a `TokenizerConfig`.
        tags: symbols, such as `<bt>`, that are one subword each. Text cannot produce these subwords.
        kept: letters and digits that the default normalization keeps. Default: `used_shapes` of the sentences.

    Raises:
        ValueError: if `vocab_size` is too large or too small for the text, or the text is empty.
    """
    sentences = list(sentences)
    options = {"control_symbols": list(tags), "character_coverage": config.character_coverage}
    if config.normalization != "nfc":
        return _of_possible_size(
            sentences, config.vocab_size, options | {"normalization_rule_name": config.normalization}
        )
    rule = normalization_rule(used_shapes(sentences) if kept is None else kept)
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8") as file:
        file.write(rule)
        file.flush()
        model = _of_possible_size(sentences, config.vocab_size, options | {"normalization_rule_tsv": file.name})
    proto = _parsed(model)
    # Not the name of the temporary file, so that equal text gives equal models.
    proto.normalizer_spec.name, proto.normalizer_spec.normalization_rule_tsv = config.normalization, ""
    return proto.SerializeToString(deterministic=True)


def _of_possible_size(sentences, vocab_size, options) -> bytes:
    """A tokenizer of a size. Without one, of the default size or of another one that the text allows."""
    try:
        return _sentencepiece(sentences, vocab_size or DEFAULT_VOCAB_SIZE, options)
    except RuntimeError as error:
        most, least = _LARGEST.search(str(error)), _SMALLEST.search(str(error))
        if vocab_size is None and most:
            return _sentencepiece(sentences, int(most[1]), options)
        if vocab_size is None and least:
            return _of_possible_size(sentences, 2 * int(least[1]), options)
        raise ValueError(_explain(str(error), most, least, vocab_size)) from error


def _sentencepiece(sentences, vocab_size, options) -> bytes:
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        model_type="bpe",
        vocab_size=vocab_size,
        byte_fallback=True,
        pad_id=PAD_ID,
        unk_id=UNK_ID,
        bos_id=BOS_ID,
        eos_id=EOS_ID,
        max_sentence_length=1 << 20,  # In bytes; longer lines would be skipped silently.
        minloglevel=2,
        **options,
    )
    return model.getvalue()


def _explain(message, most, least, vocab_size):
    if "sentences_.empty()" in message or "all_chars_count" in message:
        return "The tokenizer must have text: at least one line that is not empty, in a file that is not a pipe"
    if most:
        return f"`tokenizer.vocab_size` must be at most {most[1]} for this text. Received: vocab_size={vocab_size}"
    if least:
        return (
            f"`tokenizer.vocab_size` must be at least {least[1]} for the characters of this text, or "
            f"`tokenizer.character_coverage` must be less. Received: vocab_size={vocab_size}"
        )
    return f"Training the tokenizer on this text failed: {message}"


class Tokenizer:
    """A SentencePiece tokenizer.

    Args:
        model: the serialized SentencePiece model, or the path of its file.

    Raises:
        ValueError: if `model` is not a SentencePiece model, or its special ids differ from those of this package.
    """

    def __init__(self, model: bytes | str | Path):
        import sentencepiece

        self.model = model if isinstance(model, bytes) else Path(model).read_bytes()
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=self.model)
        except RuntimeError as error:
            raise ValueError(f"Not a SentencePiece model: {model if not isinstance(model, bytes) else ''}") from error
        processor = self._processor
        ids = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
        if ids != (PAD_ID, UNK_ID, BOS_ID, EOS_ID):
            raise ValueError(f"The ids of pad, unk, bos and eos must be 0, 1, 2 and 3. Received: {ids}")

    @property
    def vocab_size(self) -> int:
        """Number of subwords."""
        return self._processor.vocab_size()

    @property
    def sha256(self) -> str:
        """SHA-256 hash of the serialized model."""
        return hashlib.sha256(self.model).hexdigest()

    @functools.cached_property
    def pieces(self) -> list[str]:
        """List of subwords in the order of their ids."""
        return [self._processor.id_to_piece(i) for i in range(self.vocab_size)]

    @functools.cached_property
    def is_bpe(self) -> bool:
        """Whether the model is a BPE model, and not a unigram model."""
        spec = _parsed(self.model).trainer_spec
        return spec.model_type == spec.BPE

    @functools.cached_property
    def text_ids(self) -> list[int]:
        """The ids of subwords of text: all but special symbols, bytes and user-defined symbols."""
        return [i for i, piece in enumerate(_parsed(self.model).pieces) if piece.type == piece.NORMAL]

    @functools.cached_property
    def unknown_ids(self) -> list[int]:
        """The ids of characters that have no subword of text: the unknown subword and the bytes."""
        return [i for i in range(self.vocab_size) if self._is_unknown(i)]

    def _is_unknown(self, i):
        return self._processor.is_unknown(i) or self._processor.is_byte(i)

    @functools.cached_property
    def text_constraints(self) -> TextConstraints:
        """Which subwords a model may generate after which, so that they form valid text."""
        pieces = [*enumerate(_parsed(self.model).pieces)]
        symbols = [i for i, piece in pieces if piece.type in (piece.UNKNOWN, piece.CONTROL)]
        of_bytes = {i: int(piece.piece[3:5], 16) for i, piece in pieces if piece.type == piece.BYTE}  # <0x09>
        return TextConstraints.from_bytes(self.vocab_size, set(symbols) - {PAD_ID, BOS_ID, EOS_ID}, of_bytes)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Encodes lines to ids. Many lines are encoded on all cores.

        Args:
            lines: the lines.

        Returns:
            One list of ids per line, with the end token.
        """
        if len(lines) < _PARALLEL:
            return [self._processor.encode(line, add_eos=True) for line in lines]
        return self._processor.encode(list(lines), add_eos=True)

    def decode(self, ids: Iterable[Sequence[int]]) -> list[str]:
        """Decodes rows of ids to lines. Each row is decoded up to its first end token or padding.

        Args:
            ids: rows of ids.

        Returns:
            One line per row.
        """
        rows = [_before_end(row) for row in ids]
        if len(rows) < _PARALLEL:
            return [self._processor.decode(row) for row in rows]
        return self._processor.decode(rows)

    def spelling(self, text: str) -> str | None:
        """The text of the subwords of a text, after normalization.

        Args:
            text: the text.

        Returns:
            `None` if a character of the text has no subword, but bytes or the unknown subword.
        """
        ids = self._processor.encode(text)
        if any(map(self._is_unknown, ids)):
            return None
        return "".join(map(self._processor.id_to_piece, ids)).replace(_SPACE, " ")

    def encoded_spans(self, lines: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Returns the part of a line that each of its subwords covers, with the space before it.

        Args:
            lines: the lines.

        Returns:
            One list of pairs `(begin, end)` per line, without the end token. A part is empty if the subword is a byte
            of a character, except the last byte.
        """
        return [found["offsets"] for found in self._processor.encode(list(lines), return_type="offset_mapping")]

    def decoded_spans(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """Returns the part of the decoded line that each subword covers; see `encoded_spans`.

        Args:
            ids: the row of ids.
        """
        return self._processor.decode(_before_end(ids), return_type="offset_mapping")["offsets"]


def _parsed(model: bytes):
    """The fields of a serialized SentencePiece model."""
    from sentencepiece import sentencepiece_model_pb2 as messages

    return messages.ModelProto.FromString(model)  # pyright: ignore[reportAttributeAccessIssue]


def _before_end(ids: Iterable[int]) -> list[int]:
    """The ids before the first end token or padding."""
    return [int(i) for i in itertools.takewhile(lambda i: i not in (EOS_ID, PAD_ID), ids)]
