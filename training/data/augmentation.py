"""Changes of the training text: letter case, punctuation, typos, merged sentences. Uses NumPy only."""

import re
from collections.abc import Callable, Sequence

import numpy as np

#: A pair of source text and target text.
Pair = tuple[str, str]

#: Punctuation at the end of a sentence, with the spaces before it.
_END = re.compile(r"\s*[.!?…。！？؟।]+$")
#: Words that can have a typo: at least four letters.
_WORD = re.compile(r"[^\W\d_]{4,}")


def merged(pairs: Sequence[Pair], probability: float, generator: np.random.Generator) -> list[list[int]]:
    """Chooses neighbouring pairs to be merged into one.

    Args:
        pairs: the pairs.
        probability: probability that a pair is merged with the next one.
        generator: generator of the random choices.

    Returns:
        The indices of the pairs in each new pair: one or two.
    """
    chosen = generator.random(len(pairs)) < probability
    groups, i = [], 0
    while i < len(pairs):
        size = 2 if chosen[i] and i + 1 < len(pairs) else 1
        groups.append([*range(i, i + size)])
        i += size
    return groups


def augment(pairs: Sequence[Pair], config, generator: np.random.Generator) -> list[Pair]:
    """Changes pairs at random.

    Args:
        pairs: the pairs.
        config: an `AugmentationConfig`. Its options of merging and subword sampling are ignored.
        generator: generator of the random choices.

    Returns:
        The changed pairs.
    """
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
    """Adds typing errors to words with at least four letters.

    A typo swaps two neighbouring letters, or omits, repeats or replaces one letter. The first letter does not change. A
    replacement is another letter of the line.

    Args:
        line: the line.
        probability: probability that a word has a typo.
        generator: generator of the random choices.
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
    """Joins the text of merged pairs.

    Args:
        pairs: the pairs.
        groups: the result of `merged`.

    Example:

    >>> joined([("a", "x"), ("b", "y"), ("c", "z")], [[0], [1, 2]])
    [('a', 'x'), ('b c', 'y z')]
    """
    if len(groups) == len(pairs):
        return list(pairs)
    return [tuple(" ".join(pairs[i][side] for i in group) for side in (0, 1)) for group in groups]
