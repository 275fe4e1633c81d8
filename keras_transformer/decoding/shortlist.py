"""Lexical shortlists: the tokens that are likely translations of the source. This module does not import Keras."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from keras_transformer.decoding.strategies import Sampling

#: Minimum number of candidates. Every beam needs enough tokens to choose from, even if some are forbidden.
SMALLEST = 128


class Shortlist:
    """The target tokens that a search considers, given the tokens of the source.

    The candidates of a batch are the likely translations of all its source tokens, and tokens that are always
    considered. The search then computes the logits of the candidates only. With a large vocabulary, the logits of
    all tokens would be most of the work of a small model. The candidates depend on all sentences of the batch, so a
    translation may depend on them too.

    Args:
        table: int `(source_vocab_size, width)`: the likely translations of each source token, padded with any token
            that is always considered.
        always: int `(tokens,)`: the tokens that are always considered: the special tokens, and frequent ones.
        vocab_size: size of the target vocabulary.

    Raises:
        ValueError: if the ids are not in the vocabulary, or `always` has fewer than 128 tokens of a larger vocabulary.

    Example:

    >>> shortlist = Shortlist(np.zeros((1000, 2), "int32") + [[7, 900]], range(128), vocab_size=1000)
    >>> shortlist.candidates([[5, 6, 3]]).shape
    (129,)

    Reference:
        Jean et al. 2015, "On Using Very Large Target Vocabulary for Neural Machine Translation", §3.3.
    """

    def __init__(self, table, always, vocab_size: int):
        self.table, self.always = np.asarray(table), np.unique(np.asarray(always))
        self.vocab_size = vocab_size
        for name, ids in (("table", self.table), ("always", self.always)):
            if not np.issubdtype(ids.dtype, np.integer) or ids.ndim != (2 if name == "table" else 1):
                raise ValueError(f"`{name}` must be an int array. Received: shape={ids.shape}, dtype={ids.dtype}")
            if ids.size and not 0 <= ids.min() <= ids.max() < vocab_size:
                raise ValueError(
                    f"`{name}` must contain ids in [0, {vocab_size}). Received: {ids.min()} to {ids.max()}"
                )
        if len(self.always) < min(SMALLEST, vocab_size):
            raise ValueError(f"`always` must have at least {SMALLEST} tokens. Received: {len(self.always)}")
        # Half the size for nearly all vocabularies.
        self.table = self.table.astype("uint16" if vocab_size <= 1 << 16 else "int32")

    def candidates(self, source) -> np.ndarray:
        """The candidates of a batch.

        Args:
            source: int ids `(batch, length)`.

        Returns:
            Int32 `(candidates,)` in ascending order.
        """
        return np.union1d(self.table[np.asarray(source)], self.always).astype("int32")

    def check(self, config, strategy) -> None:
        """Checks that a search can use the list.

        Args:
            config: the `TransformerConfig` of the model.
            strategy: the strategy.

        Raises:
            ValueError: if the search cannot use the list.
        """
        sizes, ours = (config.source_vocabulary, config.vocab_size), (len(self.table), self.vocab_size)
        if sizes != ours:
            raise ValueError(f"The shortlist must have the model's vocabulary sizes, {sizes}. Received: {ours}")
        last = max(config.pad_id, config.bos_id, config.eos_id)
        if not np.isin(np.arange(last + 1), self.always).all():
            raise ValueError(f"`always` must contain the ids 0 to {last}, up to the last special token")
        if isinstance(strategy, Sampling):
            raise ValueError("A shortlist requires greedy or beam search. Received: strategy=Sampling")
        if strategy.logits_processor is not None:
            raise ValueError(
                "A shortlist requires a strategy without `logits_processor`, which needs the logits of all tokens. "
                f"Received: logits_processor={strategy.logits_processor}"
            )
        if strategy.beam_size > SMALLEST // 2:
            raise ValueError(f"A shortlist allows at most {SMALLEST // 2} beams. Received: {strategy.beam_size}")

    def save(self, path: str | Path) -> None:
        """Writes the list to a file in NumPy's npz format."""
        with open(path, "wb") as file:
            np.savez_compressed(file, table=self.table, always=self.always, vocab_size=self.vocab_size)

    @classmethod
    def load(cls, path: str | Path) -> "Shortlist":
        """Reads a file of `save`.

        Raises:
            ValueError: if the file is not a shortlist.
        """
        try:
            with np.load(path) as arrays:
                return cls(arrays["table"], arrays["always"], int(arrays["vocab_size"]))
        except (KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"Not a shortlist: {path} ({error})") from error
