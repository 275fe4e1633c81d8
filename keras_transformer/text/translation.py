"""The translation of a line."""

import dataclasses
import json
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Translation:
    """The translation of a line.

    Attributes:
        text: text of the best hypothesis.
        score: log probability of the hypothesis in nats, divided by its length penalty. With `SplittingTranslator`, the
            sum over the sentences. 0 for an empty line.
        tokens: subword ids of the hypothesis, including the end token. Empty for an empty line, with
            `SplittingTranslator`, and with a SavedModel.
        alternatives: the other `n_best - 1` hypotheses, best first.
    """

    text: str
    score: float
    tokens: tuple[int, ...] = ()
    alternatives: tuple["Translation", ...] = ()

    @property
    def hypotheses(self) -> tuple["Translation", ...]:
        """All `n_best` hypotheses, best first."""
        return (self, *self.alternatives)

    @property
    def line(self) -> str:
        r"""The text of the best hypothesis on one line, for files with one translation per line.

        Example:

        >>> Translation("two\nlines", -0.25).line
        'two lines'
        """
        return " ".join(self.text.splitlines())

    def to_json(self, source: str) -> str:
        """The hypotheses as a JSON object on one line.

        Args:
            source: the translated line.

        Example:

        >>> Translation("zwei", -0.25).to_json("two")
        '{"source": "two", "translations": [{"text": "zwei", "score": -0.25}]}'
        """
        translations = [{"text": one.text, "score": round(one.score, 4)} for one in self.hypotheses]
        return json.dumps({"source": source, "translations": translations}, ensure_ascii=False)


def best_first(hypotheses: Sequence[Translation]) -> Translation:
    """Makes one `Translation` of the hypotheses of a line.

    Args:
        hypotheses: at least one, best first.
    """
    best, *others = hypotheses
    return dataclasses.replace(best, alternatives=tuple(others))
