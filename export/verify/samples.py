"""Agreement of the samples of an exported program with the distribution and the noise of the Keras model."""

import dataclasses

import numpy as np

from keras_transformer.counting import counted
from keras_transformer.export.verify.equality import TIE
from keras_transformer.export.verify.quality import MOST_SCORE_ERROR

#: Maximum average distance of the noise from the samples of int8 and float16 programs.
MOST_DISTANCE = 0.01


@dataclasses.dataclass(frozen=True)
class SampleAgreement:
    """How the samples of an exported program compare with those of the Keras model for the same noise.

    Attributes:
        samples: number of compared samples.
        equal: samples with the same tokens.
        largest_distance: largest distance of the noise from the interval that a sampled token has in the cumulative
            distribution of the Keras model. Rounding may lead to the next token at the end of an interval.
        average_distance: the average of these distances.
        largest_score_difference: largest difference between the program's score and the Keras model's score of the same
            tokens.
        score_error: the average of these differences, relative to the scores.
        is_approximate: whether the program has other types than float32.
    """

    samples: int
    equal: int
    largest_distance: float
    average_distance: float
    largest_score_difference: float
    score_error: float
    is_approximate: bool

    def __str__(self):
        approximate = "approximate: " if self.is_approximate else ""
        return (
            f"{approximate}{self.equal} of {counted(self.samples, 'sample')} equal, noise at most "
            f"{self.largest_distance:.1e} and on average {self.average_distance:.1e} from the sampled tokens, "
            f"largest score difference {self.largest_score_difference:.1e}"
        )

    @property
    def passed(self) -> bool:
        """Whether the export is accepted."""
        if self.is_approximate:
            return self.average_distance < MOST_DISTANCE and self.score_error < MOST_SCORE_ERROR
        return self.largest_distance < TIE and self.largest_score_difference < TIE


def compare_samples(expected, program, batches: list, is_approximate: bool = False) -> SampleAgreement:
    """Compares the samples of `program.search` for the noise of `expected`, a `KerasSearch`.

    Args:
        expected: the Keras model.
        program: the program.
        batches: sources.
        is_approximate: whether the program has other types than float32.
    """
    equal, errors, sizes, largest, total, count = [], [], [], 0.0, 0.0, 0
    for source in batches:
        (tokens, scores), (ours, _) = program.search(source), expected.search(source)
        length = max(tokens.shape[2], ours.shape[2])
        tokens, ours = (_padded(x, length, expected.pad_id) for x in (tokens, ours))
        equal += [*(tokens == ours).all(axis=-1).ravel()]
        distances = expected.replay(source, tokens)
        largest, total = max(largest, float(distances.max())), total + float(distances.sum())
        count += int((tokens != expected.pad_id).sum())
        for sample in range(tokens.shape[1]):
            right = expected.forced_scores(source, tokens[:, sample])
            errors += [*np.abs(right - scores[:, sample])]
            sizes += [*np.abs(right)]
    return SampleAgreement(
        len(equal),
        int(np.sum(equal)),
        largest,
        total / count,
        float(np.max(errors)),
        float(np.sum(errors) / np.sum(sizes)),
        is_approximate,
    )


def _padded(x, length, value):
    """Arrays `(batch, n_samples, …)` with at least `length` columns."""
    return np.pad(x, ((0, 0), (0, 0), (0, max(0, length - x.shape[2]))), constant_values=value)
