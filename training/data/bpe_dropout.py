"""BPE-dropout: random subwords. Uses NumPy only.

SentencePiece samples subwords too, but since version 0.2.2 its random numbers differ in each process even with the same
seed. A resumed training would then differ from an unbroken one.
"""

import itertools

import numpy as np

from keras_transformer.storage.rows import TokenSide, ranges
from keras_transformer.text.tokenization import Tokenizer

#: The character that SentencePiece puts at the beginning of a word.
_SPACE = "\u2581"


class BpeDropout:
    """Splits sentences into random subwords.

    Each word starts as its characters. In each step, every possible merge is omitted with a probability, and the best
    of the others is applied. A word is finished when no merge is left.

    Args:
        tokenizer: a BPE tokenizer.

    Raises:
        ValueError: if the tokenizer is not a BPE model.

    Reference:
        Provilkov et al. 2020, "BPE-Dropout: Simple and Effective Subword Regularization", Algorithm 1.
    """

    def __init__(self, tokenizer: Tokenizer):
        if not tokenizer.is_bpe:
            raise ValueError("Subword sampling requires a BPE tokenizer. Received: another SentencePiece model")
        pieces = tokenizer.pieces
        known = {pieces[i]: i for i in tokenizer.text_ids}
        # The characters of each piece. A piece with a character that is no piece by itself is never split.
        parts = [
            [known[c] for c in piece] if piece in known and all(c in known for c in piece) else [i]
            for i, piece in enumerate(pieces)
        ]
        self._part_counts = np.fromiter(map(len, parts), "int64", len(parts))
        self._part_starts = np.cumsum(self._part_counts) - self._part_counts
        self._parts = np.fromiter(itertools.chain.from_iterable(parts), "int32")
        self._starts_word = np.array([piece.startswith(_SPACE) for piece in pieces])
        # All ways to make a piece from two others: the two ids in one number -> the id of the piece. SentencePiece
        # numbers the pieces of BPE in the order of the merges, so lower ids are better.
        merges = sorted(
            (known[piece[:i]] * len(pieces) + known[piece[i:]], merged)
            for piece, merged in known.items()
            for i in range(1, len(piece))
            if piece[:i] in known and piece[i:] in known
        )
        self._vocab_size = len(pieces)
        # Marks that two symbols cannot be merged. No greater than necessary: `__call__` multiplies it by the number of
        # symbols.
        self._none = len(pieces)
        self._pairs, self._merged = np.array([*merges, (len(pieces) ** 2, self._none)], "int64").T.copy()

    def __call__(self, side: TokenSide, probability: float, generator: np.random.Generator) -> TokenSide:
        """Splits sentences.

        Args:
            side: the sentences, in the best subwords.
            probability: probability that a merge is omitted, in [0, 1).
            generator: generator of the random choices.

        Returns:
            The same sentences in random subwords.
        """
        counts = self._part_counts[side.ids]
        symbols = self._parts[ranges(self._part_starts[side.ids], counts)]
        sentences = np.repeat(np.repeat(np.arange(len(side.lengths)), side.lengths), counts)
        starts = self._starts_word[symbols] | (np.diff(sentences, prepend=-1) > 0)
        result = np.full(len(symbols), -1, "int32")  # Each subword stands at the place of its first character.
        places = np.arange(len(symbols))
        while len(symbols):
            firsts = np.flatnonzero(starts)
            merged = self._merges(symbols, starts)
            merged[generator.random(len(merged)) < probability] = self._none
            # The best merge of each word, and the leftmost of equal ones.
            best = np.minimum.reduceat(merged * len(symbols) + np.arange(len(symbols)), firsts)
            merged, chosen = np.divmod(best, len(symbols))
            is_finished = np.repeat(merged == self._none, np.diff(firsts, append=len(symbols)))
            result[places[is_finished]] = symbols[is_finished]
            chosen = chosen[merged != self._none]
            symbols[chosen] = merged[merged != self._none]
            is_left = ~is_finished
            is_left[chosen + 1] = False  # The second part of a merge.
            symbols, starts, places = symbols[is_left], starts[is_left], places[is_left]
        is_used = result >= 0
        lengths = np.bincount(sentences[is_used], minlength=len(side.lengths)).astype("int32")
        return TokenSide(result[is_used], lengths)

    def _merges(self, symbols, starts) -> np.ndarray:
        """The result of merging each symbol with the next one of its word, or `_none`."""
        pairs = symbols[:-1].astype("int64") * self._vocab_size + symbols[1:]
        found = np.searchsorted(self._pairs, pairs)
        is_possible = (self._pairs[found] == pairs) & ~starts[1:]
        return np.append(np.where(is_possible, self._merged[found], self._none), self._none)
