"""Agreement of the attention weights of an exported program with those of its Keras model."""

import dataclasses

import numpy as np

from keras_transformer.config import EOS_ID, PAD_ID
from keras_transformer.counting import counted
from keras_transformer.export.verify.keras_search import KerasSearch

#: Maximum difference of the weights of a target token, for float32 and for other types. At most 1.
MOST_DIFFERENCE, MOST_APPROXIMATE_DIFFERENCE = 1e-3, 0.2
#: Maximum number of sentences of a compared batch.
_MOST_SENTENCES = 7


@dataclasses.dataclass(frozen=True)
class AttentionReport:
    """How the attention weights of an exported program compare with those of the Keras model.

    The difference of a target token is half the sum of the differences of its weights, in [0, 1].

    Attributes:
        tokens: number of compared target tokens.
        difference: the largest difference of a token; in an approximate program, the average one.
        is_approximate: whether the program has other types than float32.
    """

    tokens: int
    difference: float
    is_approximate: bool

    def __str__(self):
        words = ("approximate: ", "average") if self.is_approximate else ("", "largest")
        tokens = counted(self.tokens, "target token")
        return f"{words[0]}{words[1]} difference of the attention of {tokens} {self.difference:.1e}"

    @property
    def passed(self) -> bool:
        """Whether the export is accepted."""
        return self.difference < (MOST_APPROXIMATE_DIFFERENCE if self.is_approximate else MOST_DIFFERENCE)


def compare_attention(
    expected: KerasSearch, program, batches: list[np.ndarray], is_approximate: bool = False
) -> AttentionReport:
    """Compares the mean cross-attention weights of random targets, in batches with 2 to 7 rows."""
    model, differences = expected.model, []
    for source in batches:
        if not 1 < len(source) <= _MOST_SENTENCES:
            continue
        target = _as_target(source[::-1], model.config.vocab_size)
        difference = np.abs(model.mean_attention(source, target) - program.mean_attention(source, target))
        difference = difference.sum(axis=-1) / 2
        differences.append(difference[target != PAD_ID])
    found = np.concatenate(differences)
    difference = float(found.mean() if is_approximate else found.max())
    return AttentionReport(len(found), difference if np.isfinite(difference) else np.inf, is_approximate)


def _as_target(ids, vocab_size):
    """Source ids as ids of the target vocabulary, which may be smaller."""
    first = EOS_ID + 1
    return np.where(ids < first, ids, first + ids % (vocab_size - first)).astype("int32")
