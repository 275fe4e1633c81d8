"""Blocks of a training stream: pairs from a mixture, changed at random, tokenized and packed into rows.

Worker processes make the blocks, so this module imports neither Keras nor a backend.
"""

import dataclasses
import functools
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from keras_transformer.storage.rows import TokenSide
from keras_transformer.storage.token_directory import TokenDirectory
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.training.data.augmentation import augment, joined, merged
from keras_transformer.training.data.bpe_dropout import BpeDropout
from keras_transformer.training.data.mixture import Mixture
from keras_transformer.training.data.packing import Order, Packing
from keras_transformer.training.data_config import AugmentationConfig


class Block(NamedTuple):
    """A block of tokenized pairs, packed into rows.

    Attributes:
        source: the source sentences.
        target: the target sentences.
        packing: the rows.
        order: the order of pairs and rows.
    """

    source: TokenSide
    target: TokenSide
    packing: Packing
    order: Order


class TokenizedCorpus(NamedTuple):
    """A tokenized corpus.

    Attributes:
        split: the split of the token directory.
        tag: id of the symbol that starts every source sentence, if there is one.
    """

    split: str
    tag: int | None = None


@dataclasses.dataclass(frozen=True)
class BlockMaker:
    """Makes the blocks of a stream. The arguments determine each block.

    Args:
        path: folder of the tokenized corpora.
        corpora: the corpora.
        mixture: the order of the pairs.
        augmentation: an `AugmentationConfig`.
        max_length: maximum length of a changed sentence, at least that of the corpora. Default: only the rows limit it.
    """

    path: str
    corpora: tuple[TokenizedCorpus, ...]
    mixture: Mixture
    augmentation: AugmentationConfig
    max_length: int | None = None

    def sentences(self, seed: int, number: int, longest: tuple[int, int]) -> tuple[TokenSide, TokenSide]:
        """The tokenized pairs of a block.

        Args:
            seed: seed of the order and of the changes.
            number: index of the block.
            longest: maximum length of a sentence on each side, at least that of the corpora. A changed pair that is
                longer is replaced by the unchanged pairs.
        """
        if self.max_length is not None:
            longest = min(longest[0], self.max_length), min(longest[1], self.max_length)
        generator = np.random.default_rng((seed, number))
        parts = []
        for corpus, sides, chosen in zip(self.corpora, self._sides, self.mixture.pairs(seed, number), strict=True):
            if len(chosen):
                part = tuple(side.take(chosen) for side in sides)
                parts.append(self._changed(part, corpus.tag, longest, generator) if self.augmentation.is_used else part)
        return tuple(TokenSide.concatenated(sides) for sides in zip(*parts, strict=True))

    def block(self, seed: int, number: int, lengths: tuple[int, int]) -> Block:
        """A block in rows.

        Args:
            seed: seed of the order and of the changes.
            number: index of the block.
            lengths: source and target length of a row.
        """
        source, target = self.sentences(seed, number, lengths)
        packing = Packing(source.lengths, target.lengths, lengths)
        return Block(source, target, packing, packing.order(np.random.default_rng((seed, number, 1))))

    @property
    def longest(self) -> tuple[int, int]:
        """The lengths of the longest source and of the longest target of the corpora."""
        source, target = (max(int(side.lengths.max()) for side in sides) for sides in zip(*self._sides, strict=True))
        return source, target

    def num_tokens(self, counts: Iterable[int]) -> float:
        """The approximate number of tokens in some unchanged pairs, on the side that has more.

        Args:
            counts: number of pairs of each corpus.
        """
        means = (max(side.lengths.mean() for side in sides) for sides in self._sides)
        return sum(count * float(mean) for count, mean in zip(counts, means, strict=True))

    @functools.cached_property
    def _sides(self):
        return [TokenDirectory(self.path).sides(corpus.split) for corpus in self.corpora]

    @functools.cached_property
    def _tokenizers(self):
        models = TokenDirectory(self.path).tokenizer_models()
        return Tokenizer(models[0]), Tokenizer(models[-1])

    @functools.cached_property
    def _samplers(self):
        return [BpeDropout(tokenizer) for tokenizer in self._tokenizers]

    def _changed(self, sides, tag, longest, generator):
        """Changes the pairs of one corpus."""
        options, groups, changed = self.augmentation, None, sides
        if options.changes_text:
            groups, changed = self._changed_text(sides, tag, generator)
        rates = options.source_sampling, options.target_sampling
        changed = [
            self._samplers[i](side, rate, generator) if rate else side
            for i, (side, rate) in enumerate(zip(changed, rates, strict=True))
        ]
        fits = np.logical_and(*(side.lengths <= length for side, length in zip(changed, longest, strict=True)))
        if fits.all():
            return tuple(changed)
        kept, replaced = np.flatnonzero(fits), np.flatnonzero(~fits)
        if groups is not None:
            replaced = [pair for i in replaced for pair in groups[i]]
        pairs = zip(changed, sides, strict=True)
        return tuple(TokenSide.concatenated([new.take(kept), old.take(replaced)]) for new, old in pairs)

    def _changed_text(self, sides, tag, generator):
        """Changes the text of pairs. Returns the original pairs in each new pair, and the new sides."""
        first = 0 if tag is None else 1
        rows = [row[first:] for row in sides[0].lists()], sides[1].lists()
        texts = (tokenizer.decode(side) for tokenizer, side in zip(self._tokenizers, rows, strict=True))
        pairs = list(zip(*texts, strict=True))
        groups = merged(pairs, self.augmentation.merge, generator)
        texts = zip(*augment(joined(pairs, groups), self.augmentation, generator), strict=True)
        source, target = (t.encode(lines) for t, lines in zip(self._tokenizers, texts, strict=True))
        if tag is not None:
            source = [[tag, *row] for row in source]
        return groups, [TokenSide.of_lists(source), TokenSide.of_lists(target)]
