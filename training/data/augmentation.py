"""Random changes of the training text: subwords, letter case, punctuation, typos, merged sentences."""

import re
from collections.abc import Callable, Sequence

import numpy as np

from keras_transformer.storage.rows import TokenSide
from keras_transformer.storage.token_directory import Prefixes
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.training.data.bpe_dropout import BpeDropout

#: A pair of source text and target text.
Pair = tuple[str, str]

#: Punctuation at the end of a sentence, with the spaces before it.
_END = re.compile(r"\s*[.!?…。！？؟।]+$")
#: Words that can have a typo: at least four letters.
_WORD = re.compile(r"[^\W\d_]{4,}")


class Augmenter:
    """Changes tokenized pairs at random.

    Args:
        config: an `AugmentationConfig`.
        tokenizers: the tokenizers of source and target.
    """

    def __init__(self, config, tokenizers: tuple[Tokenizer, Tokenizer]):
        self.config = config
        self.tokenizers = tokenizers
        self.rates = config.source_sampling, config.target_sampling
        self.samplers = [BpeDropout(t) if rate else None for t, rate in zip(tokenizers, self.rates, strict=True)]

    def __call__(
        self, sides: Sequence[TokenSide], prefixes: Prefixes, longest: tuple[int, int], generator: np.random.Generator
    ) -> tuple[TokenSide, ...]:
        """Changes pairs of one corpus.

        Args:
            sides: the source and target sentences.
            prefixes: the ids that start each source and each target, which stay.
            longest: maximum length on each side. A changed pair that is longer is replaced by the unchanged pairs.
            generator: generator of the random choices.

        Returns:
            The source and target sentences.
        """
        groups, changed = self._changed_text(sides, prefixes, generator) if self.config.changes_text else (None, sides)
        changed = [
            sampler(side, rate, generator) if sampler else side
            for side, sampler, rate in zip(changed, self.samplers, self.rates, strict=True)
        ]
        fits = np.logical_and(*(side.lengths <= length for side, length in zip(changed, longest, strict=True)))
        if fits.all():
            return tuple(changed)
        kept, replaced = np.flatnonzero(fits), np.flatnonzero(~fits)
        if groups is not None:
            replaced = [pair for i in replaced for pair in groups[i]]
        pairs = zip(changed, sides, strict=True)
        return tuple(TokenSide.concatenated([new.take(kept), old.take(replaced)]) for new, old in pairs)

    def _changed_text(self, sides, prefixes, generator):
        """Changes the text of pairs. Returns the original pairs in each new pair, and the new sides."""
        rows = ([row[len(ids) :] for row in side.lists()] for side, ids in zip(sides, prefixes, strict=True))
        texts = (tokenizer.decode(side) for tokenizer, side in zip(self.tokenizers, rows, strict=True))
        pairs = list(zip(*texts, strict=True))
        groups = merged(pairs, self.config.merge, generator)
        texts = zip(*augment(joined(pairs, groups), self.config, generator), strict=True)
        encoded = [t.encode(lines) for t, lines in zip(self.tokenizers, texts, strict=True)]
        return groups, [
            TokenSide.of_lists([[*ids, *row] for row in side]) for side, ids in zip(encoded, prefixes, strict=True)
        ]


def merged(pairs: Sequence[Pair], probability: float, generator: np.random.Generator) -> list[list[int]]:
    """Groups of pair indices, one or two each: a pair is merged with the next one with this probability."""
    chosen = generator.random(len(pairs)) < probability
    groups, i = [], 0
    while i < len(pairs):
        size = 2 if chosen[i] and i + 1 < len(pairs) else 1
        groups.append([*range(i, i + size)])
        i += size
    return groups


def augment(pairs: Sequence[Pair], config, generator: np.random.Generator) -> list[Pair]:
    """Changes letter case, punctuation and spelling at random, as an `AugmentationConfig` says."""
    for probability, change in (
        (config.no_end_punctuation, without_end),
        (config.title_case, _on_both(title_case)),
        (config.upper_case, _on_both(str.upper)),
    ):
        if probability:
            chosen = generator.random(len(pairs)) < probability
            pairs = [change(pair) if is_chosen else pair for pair, is_chosen in zip(pairs, chosen, strict=True)]
    if config.typos:
        pairs = [(with_typos(source, config.typos, generator), target) for source, target in pairs]
    return list(pairs)


def _on_both(change: Callable[[str], str]) -> Callable[[Pair], Pair]:
    return lambda pair: (change(pair[0]), change(pair[1]))


def title_case(line: str) -> str:
    """Starts each word with a capital letter. Other letters do not change.

    Example:

    >>> title_case("the NATO's state-of-the-art plan")
    "The NATO's State-of-the-art Plan"
    """
    return re.sub(r"(^|\s)(\S)", lambda found: found[1] + found[2].upper(), line)


def without_end(pair: Pair) -> Pair:
    """Removes the punctuation at the end of both sides. A pair is unchanged if one side has none, or consists of it.

    Example:

    >>> without_end(("He sleeps .", "Er schläft."))
    ('He sleeps', 'Er schläft')
    >>> without_end(("Hello!", "Hallo"))
    ('Hello!', 'Hallo')
    """
    changed = tuple(_END.sub("", line) for line in pair)
    is_used = all(new and new != line for new, line in zip(changed, pair, strict=True))
    return changed if is_used else pair


def with_typos(line: str, probability: float, generator: np.random.Generator) -> str:
    """Adds typing errors to words with at least four letters, each with this probability.

    A typo swaps two neighbouring letters, or omits, repeats or replaces one letter. The first letter does not change. A
    replacement is another letter of the line.
    """
    words = [found.span() for found in _WORD.finditer(line)]
    chosen = np.flatnonzero(generator.random(len(words)) < probability)
    if not chosen.size:
        return line
    letters = "".join(line[begin:end] for begin, end in words)
    parts, last = [], 0
    for begin, end in (words[i] for i in chosen):
        parts += [line[last:begin], _misspelled(line[begin:end], letters, generator)]
        last = end
    return "".join([*parts, line[last:]])


def _misspelled(word, letters, generator):
    kind, place, letter = generator.integers([4, len(word) - 2, len(letters)])
    before, (first, second), after = word[: place + 1], word[place + 1 : place + 3], word[place + 3 :]
    changed = (second + first, second, first + first + second, letters[letter] + second)[kind]
    return before + changed + after


def joined(pairs: Sequence[Pair], groups: Sequence[Sequence[int]]) -> list[Pair]:
    """Joins the text of the pairs in each group.

    >>> joined([("a", "x"), ("b", "y"), ("c", "z")], [[0], [1, 2]])
    [('a', 'x'), ('b c', 'y z')]
    """
    if len(groups) == len(pairs):
        return list(pairs)
    return [tuple(" ".join(pairs[i][side] for i in group) for side in (0, 1)) for group in groups]
