"""Subwords: the special ids, the SentencePiece options and a tokenizer that needs no TensorFlow."""

import dataclasses
import functools
import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from keras_transformer.model_directory import ModelDirectory, ModelDirectoryError

#: Subwords learnt by default, from text that holds as many.
DEFAULT_VOCAB_SIZE = 8000

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3
#: The pieces of these ids.
SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")
#: After the special ids and 256 bytes come what the text's characters merge to, the commonest first.
FIRST_MERGED_ID = 260


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """How subwords are learnt: SentencePiece BPE with byte fallback, so that no text is unknown.

    Args:
        vocab_size: number of subwords, of which 4 are special and 256 are bytes. Default: 8,000, or as many as the text
            holds where that is less.
        shared: one vocabulary for both sides; otherwise one each, of `vocab_size` subwords.
        normalization: SentencePiece's rule. The default `nmt_nfkc` rewrites ligatures, full-width
            letters and the like; `identity` keeps them. Runs of spaces become one in every case.
        character_coverage: share of the text's characters that get a subword of their own.
        sample_size: pairs of sentences that the subwords are learnt from, drawn at random from larger corpora. They are
            held in memory.

    Raises:
        ValueError: naming the argument that is out of range.
    """

    vocab_size: int | None = None
    shared: bool = True
    normalization: Literal["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"] = "nmt_nfkc"
    character_coverage: float = 1.0
    sample_size: int = 1_000_000

    def __post_init__(self):
        if self.vocab_size is not None and self.vocab_size < 261:
            raise ValueError(
                "`tokenizer.vocab_size` must be at least 261: 4 special subwords, 256 bytes and the text's own. "
                f"Received: vocab_size={self.vocab_size}"
            )
        if not 0.9 <= self.character_coverage <= 1:
            raise ValueError(
                "`tokenizer.character_coverage` must be in [0.9, 1]. "
                f"Received: character_coverage={self.character_coverage}"
            )


def train_sentencepiece(sentences: Iterable[str], config: TokenizerConfig) -> bytes:
    """Learns subwords.

    Args:
        sentences: the text, one sentence at a time.
        config: the options.

    Returns:
        A serialised SentencePiece model.

    Raises:
        ValueError: if the text does not hold enough different pieces for `vocab_size`, or is empty.
    """
    sentences = list(sentences)
    try:
        return _sentencepiece(sentences, config, config.vocab_size or DEFAULT_VOCAB_SIZE)
    except RuntimeError as error:
        limit = re.search(r"value <= (\d+)", str(error))
        if config.vocab_size is None and limit:
            return _sentencepiece(sentences, config, int(limit[1]))
        raise ValueError(_explain(str(error), limit, config.vocab_size)) from error


def _sentencepiece(sentences, config, vocab_size) -> bytes:
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        model_type="bpe",
        vocab_size=vocab_size,
        byte_fallback=True,
        normalization_rule_name=config.normalization,
        character_coverage=config.character_coverage,
        pad_id=PAD_ID,
        unk_id=UNK_ID,
        bos_id=BOS_ID,
        eos_id=EOS_ID,
        max_sentence_length=1 << 20,  # In bytes; longer lines would be skipped silently.
        minloglevel=2,
    )
    return model.getvalue()


def _explain(message, limit, vocab_size):
    if limit:
        return f"`tokenizer.vocab_size` must be at most {limit[1]} for this text. Received: vocab_size={vocab_size}"
    if "smaller than" in message or "Vocabulary size" in message:
        return f"`tokenizer.vocab_size` is too small for this text's characters. Received: vocab_size={vocab_size}"
    return f"No subwords can be learnt from this text: {message}"


class Tokenizer:
    """A SentencePiece model: lines to ids and back.

    Args:
        model: the serialised model, or the path of its file.

    Raises:
        ValueError: if it is not a SentencePiece model, or its special ids are not this package's.
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
        """Hash of the model file, which tells one tokenizer from another."""
        return hashlib.sha256(self.model).hexdigest()

    @functools.cached_property
    def pieces(self) -> list[str]:
        """The subwords, by id."""
        return [self._processor.id_to_piece(i) for i in range(self.vocab_size)]

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The ids of each line, with the end id; of many lines on all cores.

        Args:
            lines: text.

        Returns:
            One list of ids a line.
        """
        return self._processor.encode(list(lines), add_eos=True)

    def decode(self, ids: Iterable[Sequence[int]]) -> list[str]:
        """The text of each row of ids, up to its first end or padding.

        Args:
            ids: rows of ids.

        Returns:
            One line a row.
        """
        rows = [[int(i) for i in row] for row in ids]
        ends = [next((k for k, i in enumerate(row) if i in (EOS_ID, PAD_ID)), len(row)) for row in rows]
        return self._processor.decode([row[:end] for row, end in zip(rows, ends, strict=True)])


def load_tokenizers(directory: ModelDirectory, sha256: Sequence[str] | None = None) -> tuple[Tokenizer, Tokenizer]:
    """The source's and the target's tokenizer.

    Args:
        directory: a model directory.
        sha256: what the hashes of the source's and the target's must be. Default: any.

    Returns:
        Two tokenizers; one object twice where it is shared.

    Raises:
        ValueError: if a file is no SentencePiece model, its special ids are not this package's, or
            its hash is another.
    """
    tokenizers = {path: Tokenizer(path) for path in directory.tokenizer_files}
    source, target = (tokenizers[path] for path in directory.tokenizer_files)
    if sha256 and list(sha256) != [source.sha256, target.sha256]:
        raise ModelDirectoryError(f"The tokenizer in {directory.path} is not the one of its model")
    return source, target
