"""The translation of a line."""

import dataclasses
from collections.abc import Sequence

from keras_transformer.decoding.scores import NEG_INF
from keras_transformer.storage.languages import Direction
from keras_transformer.text.files import json_line, one_line


@dataclasses.dataclass(frozen=True)
class Translation:
    """The translation of a line.

    Attributes:
        text: text of the best hypothesis.
        score: log probability of the hypothesis in nats, divided by its length penalty. With `SplittingTranslator`, the
            sum over the sentences. 0 for an empty line.
        tokens: subword ids of the hypothesis, including the end token. Empty for an empty line, with
            `SplittingTranslator`, and with a SavedModel.
        alternatives: the other hypotheses, at most `n_best - 1`, best first. No two hypotheses have the same words, and
            none is empty, unless there is no other.
        kept: the parts that were not translated: for each its `(begin, end)` in the line and in `text`.
        written: what the model wrote, which lacks these parts; `None` if it is `text`.
        source_language: code of the language of the line, if the model has several languages.
        target_language: code of the language of the translation, likewise.
    """

    text: str
    score: float
    tokens: tuple[int, ...] = ()
    alternatives: tuple["Translation", ...] = ()
    kept: tuple[tuple[tuple[int, int], tuple[int, int]], ...] = ()
    written: str | None = None
    source_language: str | None = None
    target_language: str | None = None

    @property
    def hypotheses(self) -> tuple["Translation", ...]:
        """All hypotheses, best first."""
        return (self, *self.alternatives)

    @property
    def line(self) -> str:
        r"""The text of the best hypothesis on one line, for files with one translation per line.

        Example:

        >>> Translation("two\nlines", -0.25).line
        'two lines'
        """
        return one_line(self.text)

    def between(self, direction: Direction) -> "Translation":
        """The translation with its languages.

        Args:
            direction: the languages.
        """
        return dataclasses.replace(
            self,
            source_language=direction.source,
            target_language=direction.target,
            alternatives=tuple(one.between(direction) for one in self.alternatives),
        )

    def to_json(self, source: str) -> str:
        """The hypotheses as a JSON object on one line, with the languages that are known.

        Args:
            source: the translated line.

        Example:

        >>> Translation("zwei", -0.25).to_json("two")
        '{"source": "two", "translations": [{"text": "zwei", "score": -0.25}]}'
        """
        translations = [{"text": one.text, "score": round(one.score, 4)} for one in self.hypotheses]
        languages = {"source_language": self.source_language, "target_language": self.target_language}
        known = {name: code for name, code in languages.items() if code is not None}
        return json_line({"source": source, **known, "translations": translations})


def best_first(hypotheses: Sequence[Translation], n_best: int) -> Translation:
    """Makes one `Translation` of the hypotheses of a line.

    Hypotheses with the words of a better one are removed, and so are empty ones, unless there is no other. A search
    that has found fewer hypotheses than it returns fills the other places with scores of `NEG_INF`, which are removed.

    Args:
        hypotheses: at least one, best first, without alternatives.
        n_best: maximum number of hypotheses to keep.

    Example:

    >>> found = [("", -1.0), ("zwei", -2.0), (" zwei", -3.0), ("drei", -4.0), ("", -1e9)]
    >>> [one.text for one in best_first([Translation(*one) for one in found], n_best=4).hypotheses]
    ['zwei', 'drei']
    """
    by_words: dict[tuple[str, ...], Translation] = {}
    for one in hypotheses:
        if one.score > 0.5 * NEG_INF:
            by_words.setdefault(tuple(one.text.split()), one)
    kept = [one for words, one in by_words.items() if words] or [*by_words.values()] or [hypotheses[0]]
    return dataclasses.replace(kept[0], alternatives=tuple(kept[1:n_best]))


def by_rank(translations: Sequence[Translation], n_best: int) -> list[tuple[Translation, ...]]:
    """Lists the best hypotheses of several sentences, then the second ones, and so on.

    Args:
        translations: the translations of the sentences.
        n_best: maximum number of ranks.

    Returns:
        One hypothesis of each sentence per rank. A sentence with fewer hypotheses than the others repeats its last one.

    Example:

    >>> one, two = Translation("a", -1.0, alternatives=(Translation("b", -2.0),)), Translation("c", -1.0)
    >>> [[hypothesis.text for hypothesis in rank] for rank in by_rank([one, two], n_best=3)]
    [['a', 'c'], ['b', 'c']]
    """
    count = max((len(one.hypotheses) for one in translations), default=1)
    return [
        tuple(one.hypotheses[min(rank, len(one.alternatives))] for one in translations)
        for rank in range(min(count, n_best))
    ]
